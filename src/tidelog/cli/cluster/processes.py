"""Brokers of one cluster as processes on this machine: start, kill, pause, wake, stop. `tidelog cluster start` and
`tidelog.testing.Cluster` are made of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tidelog.cli.cluster.ports import HERE

READY: Final = "is ready on"
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.01
_LAST_WORDS: Final = 2000


class Network(Protocol):
    """Where the brokers' processes live."""

    def host_of(self, node: int) -> str: ...

    def inside(self, node: int, command: Sequence[str]) -> list[str]:
        """The command that runs this command there."""
        ...


class Loopback:
    """All on 127.0.0.1, each on ports of its own."""

    def host_of(self, node: int) -> str:
        return HERE

    def inside(self, node: int, command: Sequence[str]) -> list[str]:
        return list(command)


class DidNotStart(RuntimeError):
    """With the last words of the broker."""


class Processes:
    """Nodes by their id. The first ones vote; a node that is added later is a broker that does not."""

    def __init__(
        self,
        ports: Mapping[int, int],
        controller_ports: Mapping[int, int],
        settings: Mapping[str, str],
        data_dir: Path,
        network: Network | None = None,
    ) -> None:
        self.ports = dict(ports)
        self.controller_ports = dict(controller_ports)
        self.voting = list(ports)
        self.settings = dict(settings)
        self.data_dir = data_dir
        self.network = network or Loopback()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def nodes(self) -> list[int]:
        return sorted(self.ports)

    def address_of(self, node: int) -> str:
        return f"{self.network.host_of(node)}:{self.ports[node]}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.address_of(node) for node in self.nodes)

    @property
    def voters(self) -> str:
        return ",".join(
            f"{node}@{self.network.host_of(node)}:{self.controller_ports[node]}" for node in sorted(self.voting)
        )

    def directory_of(self, node: int) -> Path:
        """Its data is in `data` there, and what it says in `log.txt`."""
        return self.data_dir / f"node-{node}"

    # -- starting -----------------------------------------------------------------------------------------------------

    def command(self, node: int, settings: Mapping[str, str]) -> list[str]:
        host = self.network.host_of(node)
        given = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{host}:{self.ports[node]}",
            "controller.quorum.voters": self.voters,
            "default.replication.factor": str(min(3, len(self.voting))),
            **self.settings,
            **settings,
            "log.dirs": str(self.directory_of(node) / "data"),
        }
        if node not in self.voting:
            given["controller.listener"] = f"{host}:{self.controller_ports[node]}"
        command = [sys.executable, "-m", "tidelog", "serve"]
        for name, value in given.items():
            command += ["--set", f"{name}={value}"]
        return self.network.inside(node, command)

    def start_node(self, node: int, settings: Mapping[str, str] | None = None) -> None:
        """Returns at once; `wait_ready` when it should serve."""
        directory = self.directory_of(node)
        directory.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C is for whoever started it, who stops it in order.
        with (directory / "log.txt").open("wb") as output:
            self._processes[node] = subprocess.Popen(
                self.command(node, settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ),
            )

    def start_all(self) -> None:
        for node in self.nodes:
            self.start_node(node)
        for node in self.nodes:
            self.wait_ready(node)

    def is_ready(self, node: int) -> bool:
        return READY in self.log_of(node)

    def wait_ready(self, node: int, seconds: float = READY_SECONDS) -> None:
        """Until it may lead. Raises DidNotStart with its last words if it ended instead."""
        deadline = time.monotonic() + seconds
        while not self.is_ready(node):
            if self._processes[node].poll() is not None:
                raise DidNotStart(f"node {node} did not start:\n{self.log_of(node)[-_LAST_WORDS:]}")
            if time.monotonic() > deadline:
                said = self.log_of(node)[-_LAST_WORDS:]
                raise DidNotStart(f"node {node} is not ready after {seconds:g} s:\n{said}")
            time.sleep(_LOOK_SECONDS)

    # -- looking ------------------------------------------------------------------------------------------------------

    def log_of(self, node: int) -> str:
        path = self.directory_of(node) / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid_of(self, node: int) -> int:
        return self._processes[node].pid

    def is_running(self, node: int) -> bool:
        return node in self._processes and self._processes[node].poll() is None

    def exit_code(self, node: int) -> int | None:
        """Of one that has ended; negative is the signal that ended it."""
        return self._processes[node].poll()

    # -- ending -------------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """kill -9: nothing is flushed or said."""
        self._processes[node].kill()
        self._processes[node].wait()

    def terminate(self, node: int) -> None:
        """A clean stop: leaders move away first."""
        self._processes[node].terminate()
        self._processes[node].wait(READY_SECONDS)

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def stop_all(self) -> list[int]:
        """Every node, cleanly if it can be. Those that had to be killed."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        killed = []
        deadline = time.monotonic() + STOP_SECONDS
        for node, process in self._processes.items():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                killed.append(node)
                process.kill()
                process.wait()
        self._processes.clear()
        return killed
