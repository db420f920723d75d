"""A cluster of real broker processes on this machine, for tests and for trying: start, kill, pause and wake them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tidelog.testing.broker import as_text

READY: Final = "is ready on"
READY_SECONDS: Final = 60.0


class Cluster:
    """`Cluster(3)`; `with` starts and stops it. Nodes are numbered from 1. Settings have Kafka's names."""

    def __init__(
        self, nodes: int = 3, settings: Mapping[str, Any] | None = None, *, data_dir: str | Path | None = None
    ) -> None:
        self.nodes = list(range(1, nodes + 1))
        self._settings = {key: as_text(value) for key, value in (settings or {}).items()}
        self._own_dir = data_dir is None
        self.data_dir = Path(data_dir) if data_dir is not None else Path()
        free = _free_ports(2 * nodes)
        self.ports = dict(zip(self.nodes, free[:nodes], strict=True))
        self._controller_ports = dict(zip(self.nodes, free[nodes:], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def voters(self) -> str:
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controller_ports.items())

    # -- all of them --------------------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        if self._own_dir:
            self.data_dir = Path(tempfile.mkdtemp(prefix="tidelog-cluster-"))
        try:
            for node in self.nodes:
                self.start_node(node)
            for node in self.nodes:
                self.wait_ready(node)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- one of them --------------------------------------------------------------------------------------------------

    def start_node(self, node: int) -> None:
        """Returns at once; `wait_ready` when it should serve."""
        directory = self.data_dir / f"node-{node}"
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]}",
            "controller.quorum.voters": self.voters,
            "default.replication.factor": str(min(3, len(self.nodes))),
            **self._settings,
            "log.dirs": str(directory / "data"),
        }
        command = [sys.executable, "-m", "tidelog", "serve"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with (directory / "log.txt").open("wb") as output:
            self._processes[node] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=dict(os.environ)
            )

    def wait_ready(self, node: int) -> None:
        """Until it may lead. Raises RuntimeError with its last words if it ended instead."""
        deadline = time.monotonic() + READY_SECONDS
        while READY not in (said := self.log_of(node)):
            if self._processes[node].poll() is not None:
                raise RuntimeError(f"node {node} did not start:\n{said[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {node} is not ready after {READY_SECONDS:g} s:\n{said[-2000:]}")
            time.sleep(0.01)

    def log_of(self, node: int) -> str:
        path = self.data_dir / f"node-{node}" / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid_of(self, node: int) -> int:
        return self._processes[node].pid

    def is_running(self, node: int) -> bool:
        return node in self._processes and self._processes[node].poll() is None

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


def _free_ports(count: int) -> list[int]:
    """Held open together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
