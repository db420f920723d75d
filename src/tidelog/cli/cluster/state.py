"""The file in which `tidelog cluster start` remembers its brokers, for the commands that break and heal them."""

import os
import time
from pathlib import Path
from typing import Final

import msgspec

from tidelog.cli.problems import Problem

FILE: Final = "cluster.json"
WISH: Final = "start-again"
"""A file in a node's directory: whoever started the cluster should start this node again."""


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    pid: int
    port: int
    controller_port: int
    address: str


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    """Of the `tidelog cluster start` that runs it."""
    bootstrap: str
    nodes: tuple[NodeState, ...]
    namespaces: str | None = None
    """The tag of its networks, if every broker has its own."""

    def node(self, node: int) -> NodeState:
        for each in self.nodes:
            if each.id == node:
                return each
        there = ", ".join(str(each.id) for each in self.nodes)
        raise Problem(f"this cluster has no node {node}", f"its nodes are {there}")


def write(directory: Path, state: ClusterState) -> None:
    """Whole or not at all: somebody may be reading it."""
    partial = directory / f"{FILE}.new"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    partial.replace(directory / FILE)


def running(directory: Path) -> ClusterState:
    """The cluster that runs there. Raises a Problem if none does."""
    state = read(directory)
    if state is None:
        raise Problem(
            f"no cluster was started in {directory}",
            "this breaks only clusters that `tidelog cluster start` runs; say where with --data-dir",
        )
    if not is_alive(state.pid, *RUNNERS):
        raise Problem(f"the cluster in {directory} does not run any more", "`tidelog cluster start` starts it again")
    return state


def read(directory: Path) -> ClusterState | None:
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as wrong:
        raise Problem(f"{directory / FILE} cannot be read: {wrong}", "stop the cluster and start it again") from None


RUNNERS: Final = ("cluster", "demo")
"""Commands whose process keeps a cluster here."""


def is_alive(pid: int, *words: str) -> bool:
    """Whether that process runs and its command line has such a word: numbers of processes are used again."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    command = Path(f"/proc/{pid}/cmdline")
    if not command.parent.parent.joinpath("self").exists():  # not Linux: believe the number
        return True
    try:
        said = command.read_bytes()
    except OSError:
        return False
    if not said:  # one that has ended and waits to be noticed, or one so young that its words are not there yet
        return _state(pid) not in ("", "Z", "X")
    return any(word.encode() in said for word in words)


def is_paused(pid: int) -> bool:
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """The kernel's letter for it, or nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def wish_for(directory: Path, node: int, seconds: float) -> bool:
    """Asks whoever runs the cluster to start a node again. True when it has begun to."""
    wish = directory / f"node-{node}" / WISH
    wish.touch()
    deadline = time.monotonic() + seconds
    while wish.exists():
        if time.monotonic() > deadline:
            wish.unlink(missing_ok=True)
            return False
        time.sleep(0.02)
    return True
