"""Keeps the in-sync sets of the partitions this broker leads as they should be, by asking the quorum. While there is no
quorum to ask, nobody is left waiting for followers that are gone."""

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.broker.logs import get_logger
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.clock import Clock
from tidelog.cluster import elections
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.progress import Followers
from tidelog.cluster.records import AnyRecord
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError

LOOK_SECONDS: Final = 0.05
ASLEEP_MS: Final = 500
"""Since the last look: then this process stood still, and what it should have heard waits to be read."""

log = get_logger("replication")


class IsrKeeper:
    def __init__(
        self, node_id: int, partitions: Partitions, metadata: QuorumMetadata, lag_max_ms: int, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._metadata = metadata
        self._lag_max_ms = lag_max_ms
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            asked = self._wanted()
            if not asked:
                continue
            asking = Asking(self._node_id, asked)
            try:
                await self._metadata.change(asking.decide)
            except KafkaError as error:
                log.warning("in-sync sets not changed", error=str(error))
                # It may have been granted: what was asked for stays asked for, and is asked for again.
                asking.refused_at_once.clear()
            await self._metadata.catch_up()  # the next look is at nothing older than what was decided on
            for replica in asking.refused_at_once:
                replica.withdraw_isr()

    def _wanted(self) -> dict[Replica, frozenset[int]]:
        now_ms = self._clock.monotonic_ms()
        image = self._metadata.image
        wanted = {}
        for replica in self._partitions:
            followers = replica.followers
            if not replica.is_leader or followers is None:
                continue
            isr = followers.asked or replica.wanted_isr(self._lag_max_ms, now_ms)
            if isr is None:
                continue
            # Whoever is not there cannot join, however much it had when it was last heard of. If it was asked for while
            # it was, that can't be granted any more: the picture on which it was decided is not the newest.
            isr = frozenset(node for node in isr if node in followers.isr or _may_join(image, followers, node))
            if isr != followers.isr:
                followers.ask(isr)
                wanted[replica] = isr
            elif followers.asked is not None:
                replica.withdraw_isr()
        return wanted


def _may_join(image: MetadataImage, followers: Followers, node: int) -> bool:
    return image.is_available(node) and image.brokers[node].broker_epoch == followers.joining_epoch_of(node)


class SilenceWatch:
    """Without a majority of the quorum nobody takes a dead follower out of an in-sync set. What is written then waits
    for it until the producer gives up, unless the leader says at once that it has not enough replicas."""

    def __init__(
        self, partitions: Partitions, has_controller: Callable[[], bool], silence_max_ms: int, clock: Clock
    ) -> None:
        self._partitions = partitions
        self._has_controller = has_controller
        self._silence_max_ms = silence_max_ms
        self._clock = clock
        self._alone = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        looked_ms = self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, looked_ms = looked_ms, self._clock.monotonic_ms()
            if looked_ms - before < ASLEEP_MS:
                self._look(looked_ms)

    def _look(self, now_ms: int) -> None:
        was_alone, self._alone = self._alone, not self._has_controller()
        if not (was_alone or self._alone):
            return
        for replica in self._partitions:
            if not self._alone:
                replica.is_deserted = False
            elif replica.is_leader and replica.listen(self._silence_max_ms, now_ms):
                log.warning("too few replicas are heard of", partition=str(replica.partition))
                self._partitions.on_short(replica)


class Asking:
    """One round of asking. The quorum may want to be asked again, and then nobody knows at first what became of the
    question before: what was asked for stays asked for until newer metadata says otherwise."""

    def __init__(self, node_id: int, asked: dict[Replica, frozenset[int]]) -> None:
        self._node_id = node_id
        self._asked = asked
        self._rounds = 0
        self.refused_at_once: list[Replica] = []

    def decide(self, image: MetadataImage) -> list[AnyRecord]:
        records: list[AnyRecord] = []
        self._rounds += 1
        for replica, isr in self._asked.items():
            followers = replica.followers
            if followers is None:
                continue
            try:
                records += elections.alter_isr(
                    image,
                    replica.topic_id,
                    replica.partition.partition,
                    leader=self._node_id,
                    leader_epoch=replica.leader_epoch,
                    partition_epoch=replica.partition_epoch,
                    isr=[(node, followers.joining_epoch_of(node)) for node in sorted(isr)],
                )
            except KafkaError as error:
                if self._rounds == 1 and error.code is ErrorCode.INELIGIBLE_REPLICA:
                    self.refused_at_once.append(replica)
                log.debug("in-sync set not changed", partition=str(replica.partition), error=str(error))
        return records
