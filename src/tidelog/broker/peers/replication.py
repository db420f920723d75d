"""Followers at work: one loop per leader that fetches what is new in the partitions it leads, and makes it safe here.

A fetch says that everything before the offset it asks for is safe, so the next one is sent only when what the last one
brought is on disk. What to keep, cut or append is decided by `cluster.follower`.
"""

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from uuid import UUID

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.clock import Clock
from tidelog.cluster import follower
from tidelog.cluster.replica import Replica
from tidelog.cluster.throttle import Throttle
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicId
from tidelog.storage.disk import OUT_OF_DESCRIPTORS
from tidelog.storage.flush import Flush
from tidelog.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    ReplicaState,
)
from tidelog.wire.messages.data import PartitionData as Fetched

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 7
EARLIEST, LATEST = -2, -1
WAIT_MS: Final = 500
ANSWER_SECONDS: Final = 2.0
"""Beyond the long poll, after which a leader that does not answer is asked anew."""
MAX_BYTES: Final = 16 * 1024 * 1024
PARTITION_BYTES: Final = 4 * 1024 * 1024
PAUSE_SECONDS: Final = 0.05
"""After an error, before the leader is asked again."""

log = get_logger("replication")

LinkTo = Callable[[int], PeerLink]


class Replication:
    """The partitions this broker follows, by who leads them."""

    def __init__(
        self,
        node_id: int,
        loop: AbstractEventLoop,
        clock: Clock,
        link_to: LinkTo,
        broker_epoch: Callable[[], int],
        checkpoint: Callable[[], Awaitable[None]],
        on_disk_error: Callable[[str], None],
        throttle: Throttle,
        is_in_sync: Callable[[Replica], bool],
    ) -> None:
        self.throttle = throttle
        self.is_in_sync = is_in_sync
        self._checkpoint = checkpoint
        """Makes recovery points durable."""
        self._cut: set[Replica] = set()
        self.node_id = node_id
        self.loop = loop
        self.clock = clock
        self.link_to = link_to
        self.broker_epoch = broker_epoch
        self.on_disk_error = on_disk_error
        self._by_leader: dict[int, LeaderLoop] = {}

    def follow(self, replica: Replica) -> None:
        """From now on by whoever leads it according to the replica; nobody, if that is this broker or unknown."""
        self.forget([replica])
        if replica.is_leader or replica.leader < 0:
            return
        if replica.leader not in self._by_leader:
            self._by_leader[replica.leader] = LeaderLoop(self, replica.leader)
        self._by_leader[replica.leader].add(replica)

    def is_held_back(self, replica: Replica) -> bool:
        """Whether there is a limit on how fast it catches up. Whoever is in sync has none: producers wait for it."""
        return self.throttle.concerns(replica) and not self.is_in_sync(replica)

    def forget(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            for loop in self._by_leader.values():
                loop.remove(replica)

    def note_cut(self, replica: Replica) -> None:
        self._cut.add(replica)

    async def settle_cuts(self) -> None:
        """Before anything is taken: a recovery believes what is before the recovery point, and that may lie behind the
        end of a log that was cut. What fails is tried again."""
        if self._cut:
            cut = frozenset(self._cut)
            await self._checkpoint()
            self._cut -= cut

    async def stop(self) -> None:
        await asyncio.gather(*(loop.stop() for loop in self._by_leader.values()))


class LeaderLoop:
    def __init__(self, room: Replication, leader: int) -> None:
        self._room = room
        self._leader = leader
        self._replicas: dict[tuple[UUID, int], Replica] = {}
        self._paused: dict[Replica, float] = {}
        self._changed = asyncio.Event()
        self._task: Task[None] = room.loop.create_task(self._run())

    def add(self, replica: Replica) -> None:
        self._replicas[replica.topic_id, replica.partition.partition] = replica
        self._paused.pop(replica, None)
        self._changed.set()

    def remove(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.partition.partition)
        if self._replicas.get(key) is replica:
            del self._replicas[key]
            self._paused.pop(replica, None)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if not await self._round():
                    self._changed.clear()
                    await asyncio.wait_for(self._changed.wait(), PAUSE_SECONDS if self._replicas else None)
            except TimeoutError:
                continue
            except Unreachable:
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception:
                log.exception("following failed", leader=self._leader)
                await asyncio.sleep(1.0)

    async def _round(self) -> bool:
        """One fetch. False if there is nothing to ask for now."""
        await self._room.settle_cuts()
        await self._flush([each for each in self._due().values() if each.safe_offset < each.log.end_offset])
        asked = self._due()
        if not asked:
            return False
        held_back, budget, wait_ms = self._limits(asked.values())
        if held_back and not budget:
            asked = {key: replica for key, replica in asked.items() if replica not in held_back}
            if not asked:
                await asyncio.sleep(wait_ms / 1000)
                return True
        wishes = {key: follower.wish_of(replica) for key, replica in asked.items()}
        most = {key: budget for key, replica in asked.items() if replica in held_back}
        response = await self._room.link_to(self._leader).call(
            self._request(wishes, most, wait_ms), FETCH_VERSION, timeout=WAIT_MS / 1000 + ANSWER_SECONDS
        )
        if response.error_code:
            raise Unreachable(f"refused: {response.error_code}")
        appended = []
        heard = []
        for topic in response.responses:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition_index)
                replica, wish = asked.get(key), wishes.get(key)
                if replica is None or wish is None or self._replicas.get(key) is not replica:
                    continue
                if await self._take(replica, wish, result):
                    appended.append(replica)
                if replica in held_back:
                    self._room.throttle.spend(len(result.records or b""))
                heard.append((replica, wish, result))
        await self._flush(appended)
        for replica, wish, result in heard:
            if result.error_code == 0 and replica.log.failure is None:
                follower.hear(replica, wish.leader_epoch, result.high_watermark, result.log_start_offset)
        return True

    def _due(self) -> dict[tuple[UUID, int], Replica]:
        now = self._room.loop.time()
        return {
            key: replica
            for key, replica in self._replicas.items()
            if replica.log.failure is None and self._paused.get(replica, 0.0) <= now
        }

    def _limits(self, replicas: Iterable[Replica]) -> tuple[set[Replica], int, int]:
        """Whose copying is limited, how many bytes each may get now, and how long to wait for an answer: what had to be
        left out is asked for as soon as it may be."""
        held_back = {replica for replica in replicas if self._room.is_held_back(replica)}
        if not held_back:
            return held_back, PARTITION_BYTES, WAIT_MS
        now_ms = self._room.clock.monotonic_ms()
        budget = self._room.throttle.budget(now_ms)
        return held_back, min(budget, PARTITION_BYTES), self._room.throttle.wait_ms(WAIT_MS, now_ms)

    def _request(
        self, wishes: dict[tuple[UUID, int], follower.Wish], most: dict[tuple[UUID, int], int], wait_ms: int
    ) -> FetchRequest:
        by_topic: dict[UUID, list[FetchPartition]] = {}
        for (topic_id, partition), wish in wishes.items():
            by_topic.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=wish.leader_epoch,
                    fetch_offset=wish.fetch_offset,
                    last_fetched_epoch=wish.last_fetched_epoch,
                    log_start_offset=wish.log_start_offset,
                    partition_max_bytes=most.get((topic_id, partition), PARTITION_BYTES),
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._room.node_id, replica_epoch=self._room.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=tuple(
                FetchTopic(topic_id=TopicId(topic_id), partitions=tuple(partitions))
                for topic_id, partitions in by_topic.items()
            ),
        )

    async def _take(self, replica: Replica, wish: follower.Wish, result: Fetched) -> bool:
        """True if something was appended."""
        try:
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_anew(replica, wish)
            elif result.error_code:
                # The metadata of one of us is not the newest. It soon will be.
                self._paused[replica] = self._room.loop.time() + PAUSE_SECONDS
            elif result.diverging_epoch.epoch >= 0:
                self._room.note_cut(replica)
                end = follower.part(replica, wish, result.diverging_epoch.epoch, result.diverging_epoch.end_offset)
                await self._room.settle_cuts()
                log.info("cut back to the leader's history", partition=str(replica.partition), end_offset=end)
            else:
                return follower.take(replica, result.records or b"", wish, self._room.clock.now_ms())
        except KafkaError as error:
            if replica.log.closed:
                return False  # deleted while the leader was asked: no fault of the disk
            log.warning("not followed", partition=str(replica.partition), error=str(error))
            self._paused[replica] = self._room.loop.time() + 1.0
            if replica.log.failure is not None:
                self._room.on_disk_error(f"a follower's log has failed: {replica.log.failure}")
        return False

    async def _begin_anew(self, replica: Replica, wish: follower.Wish) -> None:
        start, end = await self._bounds(replica, wish, EARLIEST), await self._bounds(replica, wish, LATEST)
        if start is None or end is None:
            self._paused[replica] = self._room.loop.time() + PAUSE_SECONDS
            return
        log.warning(
            "the leader has nothing at this offset", partition=str(replica.partition), offset=wish.fetch_offset,
            leader_start=start, leader_end=end,
        )  # fmt: skip
        self._room.note_cut(replica)
        follower.begin_anew(replica, wish, start, end, self._room.clock.now_ms())
        await self._room.settle_cuts()

    async def _bounds(self, replica: Replica, wish: follower.Wish, which: int) -> int | None:
        request = ListOffsetsRequest(
            replica_id=self._room.node_id,
            isolation_level=0,
            topics=(
                ListOffsetsTopic(
                    name=replica.partition.topic,
                    partitions=(
                        ListOffsetsPartition(
                            partition_index=replica.partition.partition,
                            current_leader_epoch=wish.leader_epoch,
                            timestamp=which,
                        ),
                    ),
                ),
            ),
        )
        link = self._room.link_to(self._leader)
        response: Any = await link.call(request, LIST_OFFSETS_VERSION, timeout=ANSWER_SECONDS)
        found = response.topics[0].partitions[0]
        return None if found.error_code else int(found.offset)

    async def _flush(self, replicas: list[Replica]) -> None:
        flushes = []
        for replica in replicas:
            if replica.config.flush_on_ack and replica.log.failure is None:
                flush = replica.log.begin_flush()
                if flush is not None:
                    flushes.append((replica, flush))
        if not flushes:
            return

        def run() -> list[OSError | None]:
            return [_error_of(flush) for _, flush in flushes]

        errors = await self._room.loop.run_in_executor(None, run)
        for (replica, flush), error in zip(flushes, errors, strict=True):
            if replica.log.closed:
                continue  # deleted while the sync ran: its files were taken from under it
            if error is not None and error.errno in OUT_OF_DESCRIPTORS:
                # It passes, and says nothing of the disk.
                self._paused[replica] = self._room.loop.time() + PAUSE_SECONDS
            elif error is not None:
                self._room.on_disk_error(f"a follower's log could not be synced: {error}")
            elif replica.log.failure is None:
                replica.log.complete_flush(flush)


def _error_of(flush: Flush) -> OSError | None:
    try:
        flush.run()
    except OSError as error:
        return error
    return None
