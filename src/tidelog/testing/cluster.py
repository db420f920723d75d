"""A cluster of real broker processes on this machine, for tests: start, kill, pause and wake them."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tidelog.cli.cluster.ports import hold_ports
from tidelog.cli.cluster.processes import Network, Processes
from tidelog.testing.broker import as_text


class Cluster(Processes):
    """`Cluster(3)`; `with` starts and stops it. Nodes are numbered from 1. Settings have Kafka's names, values may be
    plain. `kill`, `pause`, `resume` and `terminate` do to a node what the world may do to it."""

    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, Any] | None = None,
        *,
        data_dir: str | Path | None = None,
        network: Network | None = None,
    ) -> None:
        self._own_dir = data_dir is None
        numbers = range(1, nodes + 1)
        self._held = hold_ports(2 * nodes)
        free = [each.port for each in self._held]
        super().__init__(
            dict(zip(numbers, free[:nodes], strict=True)),
            dict(zip(numbers, free[nodes:], strict=True)),
            {key: as_text(value) for key, value in (settings or {}).items()},
            Path(data_dir) if data_dir is not None else Path(),
            network,
        )

    def start(self) -> "Cluster":
        if self._own_dir:
            self.data_dir = Path(tempfile.mkdtemp(prefix="tidelog-cluster-"))
        try:
            self.start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def add_node(self, settings: Mapping[str, Any] | None = None) -> int:
        """One more broker, which does not vote. Its id, at once; `wait_ready` when it should serve."""
        node = max(self.ports) + 1
        held = hold_ports(2)
        self._held += held
        self.ports[node], self.controller_ports[node] = (each.port for each in held)
        self.start_node(node, {key: as_text(value) for key, value in (settings or {}).items()})
        return node

    def restart(self, node: int) -> None:
        """One that has ended. Returns when it serves."""
        self.start_node(node)
        self.wait_ready(node)

    def stop(self) -> None:
        self.stop_all()
        for each in self._held:
            each.close()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
