"""The disk follows the image as far as it can: what it refuses is done later and keeps nothing else from being done."""

import asyncio
import errno
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch
from sim_disk import SimDisk

from tidelog.broker.cleaner import LEFT_ALONE_MS, Cleaner
from tidelog.broker.deep_work import DeepWork
from tidelog.broker.metadata import LocalMetadata
from tidelog.broker.partitions import Partitions
from tidelog.clock import SystemClock
from tidelog.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION, MetadataLog
from tidelog.cluster.records import (
    AnyRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    TopicRemoved,
)
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.errors import KafkaError, StorageOffline
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.storage.cleanable import read_cleaner_checkpoint, write_cleaner_checkpoint
from tidelog.storage.compaction import CompactionRequest, CompactionResult
from tidelog.storage.log_dir import LogDir

HERE = BrokerConfig().node_id
ELSEWHERE = 77
EMPTY = MetadataImage("test-cluster")


class FullAt(SimDisk):
    """Has no space for whatever is called so."""

    def __init__(self) -> None:
        super().__init__()
        self.full: set[str] = set()

    def before(self, operation: str, path: str) -> None:
        if operation in ("create", "write", "rename") and any(name in path for name in self.full):
            raise OSError(errno.ENOSPC, "no space", path)
        super().before(operation, path)


class Scene:
    def __init__(self, disk: FullAt | None = None) -> None:
        self.disk = disk or FullAt()
        self.directory = LogDir.open(self.disk, "/data", cluster_id=None, node_id=HERE, new_id=lambda: UUID(int=1))
        self.partitions = Partitions(self.directory, BrokerConfig(), SystemClock())
        self.image = EMPTY

    async def follow(self, *records: AnyRecord) -> None:
        before, self.image = self.image, self.image.apply(records)
        await self.partitions.follow(before, self.image)

    async def settle(self) -> None:
        await self.partitions.follow(self.image, self.image)

    def write(self, topic: str, number: int = 0) -> None:
        self.partitions.get(topic, number).append(batch(b"a"), acks=-1, now_ms=NOW)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


def topic(name: str, number: int, partitions: int = 1, leader: int = HERE, epoch: int = 0) -> list[AnyRecord]:
    return [TopicRecord(name, UUID(int=number)), *led_by(number, partitions, leader, epoch)]


def led_by(number: int, partitions: int, leader: int, epoch: int) -> list[AnyRecord]:
    both = (HERE, ELSEWHERE)
    return [PartitionRecord(UUID(int=number), each, leader, epoch, both, both, epoch) for each in range(partitions)]


def test_a_removal_that_the_disk_refuses_keeps_nothing_else_from_being_followed(scene: Scene) -> None:
    async def story() -> None:
        await scene.follow(*topic("orders", 1), *topic("payments", 2))
        scene.disk.full = {"checkpoint"}
        with pytest.raises(StorageOffline):
            await scene.follow(TopicRemoved("orders", UUID(int=1)), *led_by(2, 1, ELSEWHERE, 1))
        assert not scene.partitions.get("payments", 0).is_leader
        with pytest.raises(KafkaError):
            scene.partitions.get("orders", 0)
        with pytest.raises(StorageOffline):  # not before nothing on disk speaks of the old one any more
            await scene.follow(*topic("orders", 3))
        scene.disk.full = set()
        await scene.settle()
        assert scene.partitions.get("orders", 0).topic_id == UUID(int=3)

    run(story())


def test_a_partition_that_the_disk_refuses_keeps_no_other_from_its_role(scene: Scene) -> None:
    async def story() -> None:
        scene.disk.full = {"orders-1"}
        with pytest.raises(StorageOffline):
            await scene.follow(*topic("orders", 1, partitions=3))
        assert scene.partitions.get("orders", 2).is_leader
        assert not scene.partitions.is_complete
        with pytest.raises(StorageOffline):
            await scene.follow(*led_by(1, 3, ELSEWHERE, 1))
        assert not scene.partitions.get("orders", 2).is_leader, "it would go on acknowledging"
        scene.disk.full = set()
        await scene.settle()
        assert scene.partitions.get("orders", 1).leader == ELSEWHERE
        assert scene.partitions.is_complete

    run(story())


def test_who_cannot_begin_to_lead_because_its_disk_is_full_says_so(scene: Scene) -> None:
    """Another in sync could lead instead, if the broker went; nobody wrote yet whom it could refuse."""

    async def story() -> None:
        refused: list[Replica] = []
        scene.partitions.on_created = lambda replica: setattr(
            replica, "on_refused", lambda *told: refused.append(told[0])
        )
        await scene.follow(*topic("orders", 1, leader=ELSEWHERE))
        scene.disk.full = {"leader-epoch-checkpoint"}
        with pytest.raises(StorageOffline):
            await scene.follow(*led_by(1, 1, HERE, 1))
        assert refused == [scene.partitions.get("orders", 0)]

    run(story())


def test_a_topic_made_anew_while_this_broker_was_away_takes_the_place_of_the_old_one(scene: Scene) -> None:
    """It never hears of the removal: a snapshot says only what there is. What it has is not deleted for that."""

    async def story() -> None:
        await scene.follow(*topic("orders", 1))
        scene.write("orders")
        scene.directory.close(clean=True)
        back = Scene(scene.disk)
        back.partitions.may_miss_removals = True
        back.partitions.may_act = lambda image: False
        with pytest.raises(StorageOffline):  # it may be an image that is older than what is on this disk
            await back.follow(*topic("orders", 2), *topic("payments", 3))
        assert back.partitions.get("payments", 0).log.end_offset == 0, "not reached"
        back.partitions.may_act = lambda image: True
        await back.settle()
        assert back.partitions.get("orders", 0).topic_id == UUID(int=2)
        assert back.partitions.get("orders", 0).log.end_offset == 0
        kept = [name for name in back.disk.listdir("/data") if name.endswith("-stray")]
        assert kept == [f"orders-0.{UUID(int=1).hex}-stray"]

    run(story())


def test_what_is_left_of_a_topic_that_is_known_to_be_removed_makes_way(scene: Scene) -> None:
    async def story() -> None:
        await scene.follow(*topic("orders", 1))
        scene.write("orders")
        scene.disk.full = {"/data/orders-0"}  # renaming it
        with pytest.raises(StorageOffline):
            await scene.follow(TopicRemoved("orders", UUID(int=1)))
        scene.disk.full = set()
        scene.partitions.is_removed = {UUID(int=1)}.__contains__
        await scene.follow(*topic("orders", 2))
        assert scene.partitions.get("orders", 0).log.end_offset == 0
        assert not [name for name in scene.disk.listdir("/data") if "stray" in name]

    run(story())


def test_a_directory_of_an_unknown_topic_is_refused_by_a_broker_alone(scene: Scene) -> None:
    """Its metadata is its own, so that is damage."""

    async def story() -> None:
        await scene.follow(*topic("orders", 1))
        scene.directory.close(clean=True)
        with pytest.raises(KafkaError, match="holds topic id"):
            await Scene(scene.disk).follow(*topic("orders", 2))

    run(story())


def test_who_else_follows_is_told_though_the_disk_refused_something() -> None:
    """A room is told of each change once."""

    async def story() -> None:
        told: list[str] = []

        async def refuse(before: MetadataImage, after: MetadataImage) -> None:
            raise StorageOffline("no space")

        async def hear(before: MetadataImage, after: MetadataImage) -> None:
            told.extend(after.topics)

        metadata = LocalMetadata(cast(MetadataLog, None), EMPTY, SystemClock(), lambda reason: None)
        metadata.image = EMPTY.apply(topic("orders", 1))
        metadata.subscribe(refuse)
        metadata.subscribe(hear)
        with pytest.raises(StorageOffline):
            await metadata.settle()
        assert told == ["orders"]

    run(story())


def test_settings_that_do_not_go_together_here_keep_nothing_else_from_being_followed(scene: Scene) -> None:
    """They did where they were changed: another broker's file says something else."""

    async def story() -> None:
        lags = {"log.cleaner.min.compaction.lag.ms": "1000", "log.cleaner.max.compaction.lag.ms": "10"}
        configs = [ConfigRecord(BROKER_RESOURCE, "", key, value) for key, value in lags.items()]
        await scene.follow(*topic("orders", 1), *configs)
        assert scene.partitions.get("orders", 0).is_leader

    run(story())


def test_metadata_that_cannot_be_shortened_on_a_full_disk_is_read_as_it_is(scene: Scene) -> None:
    """A broker must start to have something deleted."""
    stored = scene.directory.create_log(METADATA_PARTITION, NO_TOPIC_ID, METADATA_CONFIG, now_ms=NOW)
    log = MetadataLog(stored)
    for number in range(1100):
        log.append([ProducerIdsRecord(number)], now_ms=NOW)
    image = log.replay(EMPTY)
    scene.disk.full = {"__cluster_metadata"}
    assert not log.snapshot_if_worthwhile(image, now_ms=NOW)
    scene.disk.full = set()
    assert log.snapshot_if_worthwhile(image, now_ms=NOW)
    assert MetadataLog(stored).replay(EMPTY).next_producer_id == 1099


# -- the cleaner's checkpoint ------------------------------------------------------------------------------------------

ORDERS = TopicPartition("orders", 0)


def cleaner_of(scene: Scene) -> Cleaner:
    return Cleaner(scene.partitions, cast(DeepWork, None), SystemClock())


def test_how_far_logs_are_clean_is_not_forgotten_before_they_are_open(scene: Scene) -> None:
    """In a cluster a broker opens them when the quorum has told it which it has. All would be compacted again from
    their beginning, after every start."""

    async def story() -> None:
        gone = TopicPartition("gone", 0)
        write_cleaner_checkpoint(scene.disk, "/data", {ORDERS: 100, gone: 50})
        cleaner = cleaner_of(scene)
        assert read_cleaner_checkpoint(scene.disk, "/data") == {ORDERS: 100, gone: 50}
        await scene.follow(*topic("orders", 1))
        cleaner.forget_absent()
        assert read_cleaner_checkpoint(scene.disk, "/data") == {ORDERS: 100}

    run(story())


def test_a_compacted_topic_can_be_deleted_from_a_full_disk(scene: Scene) -> None:
    async def story() -> None:
        write_cleaner_checkpoint(scene.disk, "/data", {ORDERS: 100})
        await scene.follow(*topic("orders", 1))
        cleaner = cleaner_of(scene)
        scene.partitions.on_removed = cleaner.forget
        scene.disk.full = {"cleaner-offset-checkpoint"}
        await scene.follow(TopicRemoved("orders", UUID(int=1)))
        assert scene.disk.listdir("/data/orders-0") == []
        scene.disk.full = set()
        await cleaner.run()
        assert read_cleaner_checkpoint(scene.disk, "/data") == {}

    run(story())


class BusyDisk:
    """As a worker: the disk is full."""

    def __init__(self) -> None:
        self.asked = 0

    async def compact(self, request: CompactionRequest) -> CompactionResult:
        self.asked += 1
        raise KafkaError("OSError: [Errno 28] No space left on device")


class Later(SystemClock):
    passed_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.passed_ms


def test_a_compaction_that_failed_is_tried_again_after_a_while(scene: Scene) -> None:
    """Not at once: it must not starve the others. But the disk was full, and is not for ever; until the next start the
    log would only have grown."""

    async def story() -> None:
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        records = [ConfigRecord(TOPIC_RESOURCE, "orders", key, value) for key, value in configs.items()]
        await scene.follow(*topic("orders", 1), *records)
        scene.write("orders")
        replica = scene.partitions.get("orders", 0)
        replica.log.roll(NOW)
        replica.log.flush()
        replica.raise_watermark(1)
        worker, clock = BusyDisk(), Later()
        cleaner = Cleaner(scene.partitions, cast(DeepWork, worker), clock)
        for _ in range(3):
            await cleaner.run()
        assert worker.asked == 1
        clock.passed_ms = LEFT_ALONE_MS
        await cleaner.run()
        assert worker.asked == 2

    run(story())


def test_a_directory_that_is_still_a_deleted_topics_keeps_no_other_topic_from_being_hosted() -> None:
    async def follow() -> None:
        directory = LogDir.open(SimDisk(), "/data", cluster_id="c", node_id=1, new_id=lambda: UUID(int=9))
        directory.create_log(TopicPartition("again", 0), TopicId(UUID(int=1)), TopicConfig(), now_ms=NOW)
        del directory.logs[TopicPartition("again", 0)]
        partitions = Partitions(directory, BrokerConfig(node_id=1), SystemClock())
        image = MetadataImage("c").apply(
            record
            for name, topic_id in (("again", TopicId(UUID(int=2))), ("other", TopicId(UUID(int=3))))
            for record in (TopicRecord(name, topic_id), PartitionRecord(topic_id, 0, 1, 0, (1,), (1,)))
        )
        with pytest.raises(StorageOffline, match=r"again-0 is not in step yet.*holds topic id"):
            await partitions.follow(MetadataImage("c"), image)
        assert partitions.get("other", 0).is_leader
        # Once it is known to be a leftover, the next look at the image puts things right.
        directory.delete_leftovers("again", TopicId(UUID(int=1)))
        await partitions.follow(image, image)
        assert partitions.get("again", 0).is_leader

    asyncio.run(follow())
