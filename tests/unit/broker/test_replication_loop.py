"""A follower's loop beside what else happens to its logs: a topic that is deleted, a cut, descriptors that run out.
None of it says that the disk is broken, for which a broker leaves its cluster."""

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch, create_log
from sim_disk import SimDisk

from tidelog.broker.peers.links import PeerLink
from tidelog.broker.peers.replication import Replication
from tidelog.clock import SystemClock
from tidelog.cluster.replica import Replica
from tidelog.cluster.throttle import UNLIMITED, Throttle
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode
from tidelog.ids import TopicId
from tidelog.wire.messages.data import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
)
from tidelog.wire.record_batch import patch

TOPIC_ID = UUID(int=7)
LEADER = 2


class TakenAway(SimDisk):
    """Something happens while a thread syncs."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def before(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            self.meanwhile()
        super().before(operation, path)


class Scene:
    """Broker 1 follows broker 2, whose answers are made up here."""

    def __init__(self, answer: Callable[[Any], Any], records: int = 0) -> None:
        self.disk = TakenAway()
        self.log = create_log(self.disk, "/data/orders-0", TopicConfig())
        for _ in range(records):
            self.log.append(batch(b"old"), leader_epoch=0, now_ms=NOW)
        self.log.flush()
        self.replica = Replica(self.log, TOPIC_ID, -1, 0)
        self.replica.follow(LEADER, 1, 0)
        self.asked: list[Any] = []
        self.disk_errors: list[str] = []
        self.checkpoints = 0
        self.full = False
        self._answer = answer
        clock = SystemClock()
        self.room = Replication(
            1,
            asyncio.get_running_loop(),
            clock,
            lambda node: cast(PeerLink, self),
            lambda: 10,
            self._checkpoint,
            self.disk_errors.append,
            Throttle(1, lambda: UNLIMITED, lambda topic: (), clock.monotonic_ms()),
            lambda replica: True,
        )

    async def call(self, request: Any, version: int, *, timeout: float) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0.001)
        return self._answer(request)

    async def _checkpoint(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space")
        self.checkpoints += 1

    def offsets_asked_for(self) -> list[int]:
        return [
            partition.fetch_offset
            for request in self.asked
            if isinstance(request, FetchRequest)
            for topic in request.topics
            for partition in topic.partitions
        ]

    def delete(self) -> None:
        self.room.forget([self.replica])
        self.log.abandon("deleted")


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 10))


def fetched(records: bytes = b"", **fields: Any) -> FetchResponse:
    data = PartitionData(partition_index=0, high_watermark=0, records=records, **{"error_code": 0, **fields})
    topic = FetchableTopicResponse(topic_id=TopicId(TOPIC_ID), partitions=(data,))
    return FetchResponse(responses=(topic,))


def bound(offset: int) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, timestamp=-1, offset=offset, leader_epoch=1)
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="orders", partitions=(partition,)),))


def one_record(offset: int) -> bytes:
    records = batch(b"new")
    patch(records, base_offset=offset, leader_epoch=1)
    return bytes(records)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def follow_until_deleted(scene: Scene) -> None:
    scene.room.follow(scene.replica)
    await until(lambda: scene.log.closed)
    await asyncio.sleep(0.05)
    await scene.room.stop()


def test_a_topic_deleted_while_its_log_is_synced_is_not_a_broken_disk() -> None:
    async def story() -> None:
        scene = Scene(lambda request: fetched(one_record(0)))

        def meanwhile() -> None:
            scene.disk.fail_on["sync"] = errno.ENOENT  # the directory has another name by now
            scene.delete()

        scene.disk.meanwhile = meanwhile
        await follow_until_deleted(scene)
        assert scene.disk_errors == []

    run(story)


def test_a_topic_deleted_while_its_leader_is_asked_where_it_begins_is_not_a_broken_disk() -> None:
    async def story() -> None:
        def answer(request: Any) -> Any:
            if isinstance(request, FetchRequest):
                return fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            scene.delete()
            return bound(100)

        scene = Scene(answer, records=1)
        await follow_until_deleted(scene)
        assert scene.disk_errors == []

    run(story)


def test_a_sync_that_finds_no_descriptor_is_tried_again() -> None:
    async def story() -> None:
        scene = Scene(lambda request: fetched(one_record(0)) if scene.log.end_offset == 0 else fetched())
        scene.disk.fail_on["sync"] = errno.EMFILE
        scene.room.follow(scene.replica)
        await until(lambda: scene.replica.safe_offset == 1)
        await until(lambda: 1 in scene.offsets_asked_for())
        await scene.room.stop()
        assert scene.disk_errors == []
        assert scene.offsets_asked_for().count(0) == 1, "it was asked for again and again meanwhile"

    run(story)


def test_nothing_is_taken_behind_a_cut_before_the_recovery_point_is_moved() -> None:
    """A recovery believes what is before it. The disk is full when the log is cut, and then it is not."""

    async def story() -> None:
        def answer(request: Any) -> Any:
            if scene.log.end_offset == 2:
                return fetched(diverging_epoch=EpochEndOffset(epoch=0, end_offset=1))
            assert scene.checkpoints, "the leader was asked for more"
            return fetched()

        scene = Scene(answer, records=2)
        scene.full = True
        scene.room.follow(scene.replica)
        await until(lambda: scene.log.end_offset == 1)
        await asyncio.sleep(1.2)  # what failed is tried again after a second
        asked = len(scene.asked)
        scene.full = False
        await until(lambda: len(scene.asked) > asked)
        await scene.room.stop()
        assert scene.checkpoints == 1
        assert scene.offsets_asked_for()[:2] == [2, 1]

    run(story)
