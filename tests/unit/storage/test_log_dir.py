"""One data directory: who may use it, what it remembers, and how fast it opens."""

import errno
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from batches import NOW, append, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import KafkaError, StorageOffline
from tidelog.ids import TopicId, TopicPartition
from tidelog.storage.checkpoints import decode_offsets, decode_properties, decode_uuid, encode_uuid
from tidelog.storage.disk import Disk, DiskLocked, RealDisk
from tidelog.storage.log_dir import LogDir, WrongDirectory

PLACE = TopicPartition("orders", 0)
TOPIC = TopicId(UUID("00000000-0000-0000-0000-0000000000aa"))
OTHER = TopicId(UUID("00000000-0000-0000-0000-0000000000bb"))
CONFIG = TopicConfig()
ids = count(1)


def open_dir(disk: Disk, path: str = "/data", *, cluster_id: str | None = None, node_id: int = 1) -> LogDir:
    return LogDir.open(disk, path, cluster_id=cluster_id, node_id=node_id, new_id=lambda: UUID(int=next(ids)))


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_a_second_broker_is_refused(tmp_path: Path) -> None:
    directory = open_dir(RealDisk(), str(tmp_path))
    with pytest.raises(DiskLocked, match="another broker"):
        open_dir(RealDisk(), str(tmp_path))
    directory.close(clean=True)
    open_dir(RealDisk(), str(tmp_path)).close(clean=True)


def test_identity_is_kafkas_file_and_stays(disk: SimDisk) -> None:
    directory = open_dir(disk, node_id=3)
    properties = decode_properties(disk.read_all("/data/meta.properties"))
    assert properties == {
        "version": "1",
        "cluster.id": directory.cluster_id,
        "node.id": "3",
        "directory.id": directory.directory_id,
    }
    assert encode_uuid(decode_uuid(directory.cluster_id)) == directory.cluster_id
    directory.close(clean=True)
    again = open_dir(disk, node_id=3)
    assert (again.cluster_id, again.directory_id) == (directory.cluster_id, directory.directory_id)
    again.close(clean=True)
    for wrong in ({"node_id": 4}, {"node_id": 3, "cluster_id": "another"}):
        with pytest.raises(WrongDirectory, match="belongs to"):
            open_dir(disk, **wrong)  # type: ignore[arg-type]


def test_a_clean_stop_is_opened_without_scanning(disk: SimDisk) -> None:
    directory = open_dir(disk)
    log = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    append(log, b"a", b"b")
    directory.high_watermarks[PLACE] = 2
    directory.close(clean=True)
    assert disk.exists("/data/.kafka_cleanshutdown")
    again = open_dir(disk)
    assert again.clean
    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert again.high_watermarks == {PLACE: 2}
    log = again.open_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    assert log.recovery.bytes_scanned == 0
    assert (log.flushed_offset, log.end_offset) == (2, 2)


def test_a_kill_is_recovered_from_the_checkpoint(disk: SimDisk) -> None:
    directory = open_dir(disk)
    log = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    append(log, b"a", b"b")
    log.flush()
    directory.checkpoint()
    assert decode_offsets(disk.read_all("/data/recovery-point-offset-checkpoint")) == {PLACE: 2}
    append(log, b"c")
    directory.close(clean=False)
    again = open_dir(disk)
    assert not again.clean
    log = again.open_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    assert log.recovery.bytes_scanned > 0
    assert read_values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("damage", [b"", b"garbage\n", b"0\n9\norders 0 1\n", b"\xff\xfe"])
def test_damaged_checkpoints_cost_a_scan_and_nothing_else(disk: SimDisk, damage: bytes) -> None:
    directory = open_dir(disk)
    append(directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW), b"a")
    directory.checkpoint()
    directory.close(clean=True)
    for name in disk.names:
        if name.endswith(("checkpoint", "partition.metadata")):
            disk.names[name].cache[:] = damage
    log = open_dir(disk).open_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    assert read_values(log) == [(0, b"a")]


def test_deleted_records_stay_deleted(disk: SimDisk) -> None:
    directory = open_dir(disk)
    log = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    append(log, b"a")
    append(log, b"b")
    log.advance_start_offset(1)
    directory.checkpoint_start_offsets()
    operations = disk.operations
    directory.checkpoint_start_offsets()
    assert disk.operations == operations
    directory.close(clean=False)
    log = open_dir(disk).open_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    assert read_values(log) == [(1, b"b")]


def test_a_topic_id_that_does_not_fit_is_refused(disk: SimDisk) -> None:
    directory = open_dir(disk)
    directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    assert disk.read_all("/data/orders-0/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAqg\n"
    directory.close(clean=True)
    with pytest.raises(KafkaError, match="topic id"):
        open_dir(disk).open_log(PLACE, OTHER, CONFIG, now_ms=NOW)


@pytest.mark.parametrize("seed", range(10))
def test_whose_records_they_are_is_as_durable_as_they_are(disk: SimDisk, seed: int) -> None:
    directory = open_dir(disk)
    append(directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW), b"of the old topic")
    directory.logs[PLACE].flush()
    disk.crash(Random(seed))
    # Else a topic of that name, made while this broker was down, would begin with them.
    with pytest.raises(KafkaError, match="holds topic id"):
        open_dir(disk).open_log(PLACE, OTHER, CONFIG, now_ms=NOW)


def test_a_log_that_was_killed_before_its_first_flush_has_a_durable_name_when_it_is_opened(disk: SimDisk) -> None:
    directory = open_dir(disk)
    directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    again = open_dir(disk)
    synced = []
    disk.before = lambda operation, path: synced.append((operation, path))  # type: ignore[method-assign]
    again.open_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    # What is acknowledged next is in a directory whose own name a power loss could still take.
    assert ("sync_dir", "/data") in synced


def test_deletion_is_at_once_and_survives_a_crash(tmp_path: Path) -> None:
    disk = RealDisk()
    directory = open_dir(disk, str(tmp_path))
    log = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    append(log, b"a")
    held = log.read(0, 100, upper=1)
    remove = directory.delete_log(PLACE)
    assert not directory.has_log(PLACE)
    assert log.failed
    assert (tmp_path / f"orders-0.{TOPIC.hex}-delete").exists()
    directory.create_log(PLACE, OTHER, CONFIG, now_ms=NOW)
    directory.close(clean=False)  # before anybody called `remove`
    again = open_dir(disk, str(tmp_path))
    assert not (tmp_path / f"orders-0.{TOPIC.hex}-delete").exists()
    assert again.open_log(PLACE, OTHER, CONFIG, now_ms=NOW).end_offset == 0
    remove()
    assert held.file.read(held.position, held.length)
    again.close(clean=True)


def test_leftovers_of_a_deleted_topic_go_and_its_successor_stays(disk: SimDisk) -> None:
    directory = open_dir(disk)
    directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    directory.create_log(TopicPartition("orders", 1), OTHER, CONFIG, now_ms=NOW)
    directory.create_log(TopicPartition("orders-0", 0), TOPIC, CONFIG, now_ms=NOW)
    directory.delete_leftovers("orders", TOPIC)
    assert [name for name in disk.listdir("/data") if name.startswith("orders")] == ["orders-0-0", "orders-1"]


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    directory = open_dir(RealDisk(), str(tmp_path))
    place = TopicPartition("x" * 249, 0)
    directory.create_log(place, TOPIC, CONFIG, now_ms=NOW)
    directory.delete_log(place)()
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []
    directory.close(clean=True)


def test_a_failed_directory_acknowledges_nothing_and_leaves_no_clean_mark(disk: SimDisk) -> None:
    directory = open_dir(disk)
    first = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    second = directory.create_log(TopicPartition("orders", 1), TOPIC, CONFIG, now_ms=NOW)
    append(first, b"a")
    append(second, b"b")
    flush = first.begin_flush()
    assert flush is not None
    disk.fail_on = {"sync": errno.EIO}
    with pytest.raises(OSError, match="sync"):
        flush.run()
    directory.fail("sync failed")
    for attempt in (lambda: append(second, b"c"), second.begin_flush, directory.prepare_checkpoint):
        with pytest.raises(StorageOffline):
            attempt()
    with pytest.raises(StorageOffline):
        directory.create_log(TopicPartition("orders", 2), TOPIC, CONFIG, now_ms=NOW)
    directory.close(clean=True)
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_a_start_offset_that_could_not_be_written_is_written_when_it_is_tried_again(disk: SimDisk) -> None:
    """DeleteRecords is tried again after an error. Told that all is well, it would promise what a crash takes back."""
    directory = open_dir(disk)
    log = directory.create_log(PLACE, TOPIC, CONFIG, now_ms=NOW)
    append(log, b"a", b"b")
    log.flush()
    log.advance_start_offset(1)
    disk.fail_on = {"create": errno.EMFILE}
    with pytest.raises(OSError, match="create"):
        directory.checkpoint_start_offsets()
    directory.checkpoint_start_offsets()
    assert decode_offsets(disk.read_all("/data/log-start-offset-checkpoint")) == {PLACE: 1}


def test_a_thousand_partitions_open_at_once(tmp_path: Path) -> None:
    disk = RealDisk()
    directory = open_dir(disk, str(tmp_path))
    places = [TopicPartition("many", number) for number in range(1000)]
    for place in places:
        append(directory.create_log(place, TOPIC, CONFIG, now_ms=NOW), b"x")
    directory.close(clean=True)
    directory = open_dir(disk, str(tmp_path))
    for place in places:
        directory.open_log(place, TOPIC, CONFIG, now_ms=NOW)
    assert sum(log.end_offset for log in directory.logs.values()) == 1000
    assert sum(log.recovery.bytes_scanned for log in directory.logs.values()) == 0
    assert not any(log.active_segment.is_open for log in directory.logs.values())
    directory.close(clean=True)
