"""A recovery believes everything before the recovery point, so that must never lie behind the end of a log."""

import sys
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, append, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.ids import NO_TOPIC_ID, TopicPartition
from tidelog.storage.checkpoints import RECOVERY_POINTS, read_offsets
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir
from tidelog.wire.record_batch import Record, build_batch, patch

PLACE = TopicPartition("orders", 0)
SMALL = TopicConfig(segment_bytes=300)


def open_dir(disk: SimDisk) -> LogDir:
    return LogDir.open(disk, "/data", cluster_id="c", node_id=1, new_id=lambda: UUID(int=5))


def open_log(directory: LogDir) -> Log:
    return directory.open_log(PLACE, NO_TOPIC_ID, SMALL, now_ms=NOW)


def recovery_point(disk: SimDisk) -> int:
    return read_offsets(disk, f"/data/{RECOVERY_POINTS}")[PLACE]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_after_a_cut_is_not_believed_before_it_was_flushed(seed: int) -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    log = directory.create_log(PLACE, NO_TOPIC_ID, SMALL, now_ms=NOW)
    for i in range(12):
        append(log, b"old %d" % i)
    log.flush()
    directory.checkpoint()
    assert recovery_point(disk) == 12
    log.truncate_to(2)
    directory.checkpoint()
    assert recovery_point(disk) == 2
    for i in range(2, 9):
        append(log, b"new %d" % i, epoch=1)
    directory.close(clean=False)
    disk.crash(Random(seed))
    served = read_values(open_log(open_dir(disk)))
    old, new = ([(i, b"%s %d" % (kind, i)) for i in range(12)] for kind in (b"old", b"new"))
    assert served[:2] == old[:2]
    assert served in (old[: len(served)], old[:2] + new[2 : len(served)])


def test_a_log_that_opens_shorter_lowers_its_recovery_point() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    log = directory.create_log(PLACE, NO_TOPIC_ID, SMALL, now_ms=NOW)
    for i in range(8):
        append(log, b"value %d" % i)
    log.flush()
    directory.checkpoint()
    directory.close(clean=False)
    last = max(name for name in disk.names if name.endswith(".log"))
    disk.open(last).truncate(0)
    log = open_log(open_dir(disk))
    assert log.end_offset < 8
    assert recovery_point(disk) == log.end_offset


@pytest.mark.parametrize(("policy", "end"), [(frozenset({"compact"}), 10), (frozenset({"delete"}), 1)])
def test_gaps_that_a_follower_copied_from_a_compacted_leader_are_no_damage(policy: frozenset[str], end: int) -> None:
    config = TopicConfig(cleanup_policy=policy)
    disk = SimDisk()
    log = open_dir(disk).create_log(PLACE, NO_TOPIC_ID, config, now_ms=NOW)
    for base in (0, 9):
        batch = bytearray(build_batch([Record(0, NOW, b"k", b"v", ())], leader_epoch=0))
        patch(batch, base_offset=base, leader_epoch=0)
        log.append_as_follower(batch, now_ms=NOW)
    log.flush()
    disk.crash(Random(1))
    opened = Log.open(disk, log.directory, PLACE, config, now_ms=NOW, recovery_point=0)
    assert opened.end_offset == end
