"""What may happen to the brokers of a cluster, by dice; and whether all replicas are the same afterwards."""

import random
import time
from collections.abc import Callable

from tidelog.cli.cluster.network import Namespaces
from tidelog.testing import Cluster

Undo = Callable[[], None]
SETTLE_S = 1.5
CALM = 0.7
"""How often the next accident waits until everybody is there: else most of a storm would be waiting for restarts."""


class Storm:
    """One accident after another, some of them together. Everything it does is printed, for the day it finds
    something."""

    def __init__(self, cluster: Cluster, seed: int, network: Namespaces | None = None) -> None:
        print(f"\nseed {seed}")
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._network = network
        self._began = time.monotonic()
        self.accidents = 0

    def blow(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            victims = self._dice.sample(self._cluster.nodes, self._dice.choices((1, 2, 3), (7, 2, 1))[0])
            undo = [self._accident(node) for node in victims]
            time.sleep(self._dice.uniform(0.1, 3.5))
            for each in undo:
                each()
            if self._dice.random() < CALM:
                for node in self._cluster.nodes:
                    self._cluster.wait_ready(node)
            time.sleep(self._dice.uniform(0, SETTLE_S))

    def _accident(self, node: int) -> Undo:
        kinds = [self._kill, self._kill, self._pause, self._pause, self._terminate]
        if self._network is not None:
            kinds = [self._kill, self._pause, self._isolate, self._isolate, self._deafen, self._mute]
        self.accidents += 1
        return self._dice.choice(kinds)(node)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.2f} s  {text}")

    def _kill(self, node: int) -> Undo:
        self._say(f"kill {node}")
        self._cluster.kill(node)
        return lambda: self._start(node)

    def _terminate(self, node: int) -> Undo:
        self._say(f"terminate {node}")
        self._cluster.terminate(node)
        return lambda: self._start(node)

    def _start(self, node: int) -> None:
        self._say(f"start {node}")
        self._cluster.start_node(node)

    def _pause(self, node: int) -> Undo:
        self._say(f"pause {node}")
        self._cluster.pause(node)

        def resume() -> None:
            self._say(f"resume {node}")
            self._cluster.resume(node)

        return resume

    # -- with a network of its own for every broker ------------------------------------------------------------------

    def _isolate(self, node: int) -> Undo:
        network = self._networked(f"isolate {node}")
        network.isolate(node)

        def rejoin() -> None:
            self._say(f"rejoin {node}")
            network.rejoin(node)

        return rejoin

    def _deafen(self, node: int) -> Undo:
        """It hears nobody, and everybody hears it."""
        return self._one_way(f"deafen {node}", [(other, node) for other in self._cluster.nodes if other != node])

    def _mute(self, node: int) -> Undo:
        return self._one_way(f"mute {node}", [(node, other) for other in self._cluster.nodes if other != node])

    def _one_way(self, what: str, ways: list[tuple[int, int]]) -> Undo:
        network = self._networked(what)
        blocked = [way for way in ways if network.drop(*way)]

        def undo() -> None:
            self._say(f"end of {what}")
            for way in blocked:
                network.pass_on(*way)

        return undo

    def _networked(self, what: str) -> Namespaces:
        assert self._network is not None
        self._say(what)
        return self._network


def stored(cluster: Cluster, node: int, topic: str, number: int) -> bytes:
    """A replica's batches, whatever files they are in: brokers begin a new file each at its own time."""
    files = sorted((cluster.directory_of(node) / "data" / f"{topic}-{number}").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def check_replicas(cluster: Cluster, topic: str, partitions: int) -> None:
    """Of a cluster that has stopped, after everything that was sent had been acknowledged."""
    for number in range(partitions):
        copies = {node: stored(cluster, node, topic, number) for node in cluster.nodes}
        assert len(copies[1]) > 0
        different = [node for node in cluster.nodes if copies[node] != copies[1]]
        lengths = {node: len(copy) for node, copy in copies.items()}
        assert not different, f"{topic}-{number}: nodes 1 and {different} hold different bytes ({lengths})"
