"""A network of its own for every broker of a local cluster, so that one can be cut off while its process runs on.

Linux network namespaces on a bridge, made by `ip`: that needs root. Pulling a broker's cable drops its packets both
ways and in silence; a black hole drops them one way.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.cli.problems import Problem

_HOST: Final = 254


class Namespaces:
    """Everything in it is named after `tag`, so that another process with the same tag finds it."""

    def __init__(self, tag: str, nodes: Iterable[int]) -> None:
        digest = hashlib.sha256(tag.encode()).digest()
        self.tag = tag
        self.nodes = list(nodes)
        self._name = f"tl{digest.hex()[:6]}"
        self._subnet = f"10.{100 + digest[6] % 100}.{digest[7]}"

    @staticmethod
    def check() -> None:
        """Raises a Problem where this cannot work."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            lacking = "root" if os.geteuid() != 0 else "the command `ip` (iproute2)"
            raise Problem(
                f"a network for every broker needs {lacking}",
                "start it without --namespaces: kill and pause work for everybody, only isolate does not",
            )

    def create(self) -> None:
        self.remove()
        try:
            self._ip("link", "add", self._name, "type", "bridge")
            self._ip("addr", "add", f"{self._subnet}.{_HOST}/24", "dev", self._name)
            self._ip("link", "set", self._name, "up")
            for node in self.nodes:
                self._add(node)
        except BaseException:
            self.remove()
            raise

    def _add(self, node: int) -> None:
        space, cable = self._space(node), self._cable(node)
        self._ip("netns", "add", space)
        self._ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._ip("link", "set", cable, "master", self._name, "up")
        self._ip("-n", space, "addr", "add", f"{self.host_of(node)}/24", "dev", "eth0")
        self._ip("-n", space, "link", "set", "eth0", "up")
        self._ip("-n", space, "link", "set", "lo", "up")

    def remove(self) -> None:
        for node in self.nodes:
            self._ip("netns", "delete", self._space(node), may_fail=True)
            self._ip("link", "delete", self._cable(node), may_fail=True)
        self._ip("link", "delete", self._name, may_fail=True)

    # -- a Network ----------------------------------------------------------------------------------------------------

    def host_of(self, node: int) -> str:
        return f"{self._subnet}.{node}"

    def inside(self, node: int, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._space(node), *command]

    # -- what may happen to it ----------------------------------------------------------------------------------------

    def isolate(self, node: int) -> None:
        self._ip("link", "set", self._cable(node), "down")

    def rejoin(self, node: int) -> None:
        self._ip("link", "set", self._cable(node), "up")

    def drop(self, source: int, target: int) -> bool:
        """What `source` sends to `target` is lost; the other way is open. False if it was lost already."""
        route = ("blackhole", f"{self.host_of(target)}/32")
        if route[1].removesuffix("/32") in self._ip("-n", self._space(source), "route", "show", "type", "blackhole"):
            return False
        self._ip("-n", self._space(source), "route", "add", *route)
        return True

    def pass_on(self, source: int, target: int) -> None:
        self._ip("-n", self._space(source), "route", "delete", "blackhole", f"{self.host_of(target)}/32")

    def is_isolated(self, node: int) -> bool:
        return "state UP" not in self._ip("link", "show", self._cable(node))

    def _space(self, node: int) -> str:
        return f"{self._name}-{node}"

    def _cable(self, node: int) -> str:
        return f"{self._name}v{node}"

    def _ip(self, *arguments: str, may_fail: bool = False) -> str:
        done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
        if done.returncode and not may_fail:
            raise Problem(
                f"ip {' '.join(arguments)}: {done.stderr.strip()}",
                "network namespaces, veth and bridges must be allowed here; without --namespaces nothing needs them",
            )
        return done.stdout
