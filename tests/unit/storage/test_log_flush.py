"""Flushing: nothing counts as durable before its sync returned, and a failed sync is never tried again."""

import errno
from random import Random

import pytest
from batches import append, create_log, open_log
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import StorageOffline

DIRECTORY = "/data/orders-0"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_what_is_appended_during_a_sync_waits_for_the_next(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a")
    flush = log.begin_flush()
    assert flush is not None
    append(log, b"b")
    flush.run()
    assert log.flushed_offset == 0
    log.complete_flush(flush)
    assert (log.flushed_offset, log.end_offset) == (1, 2)
    log.flush()
    assert log.flushed_offset == 2
    assert log.begin_flush() is None


def test_segments_rolled_meanwhile_are_synced_with_the_rest(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=100))
    for i in range(4):
        append(log, b"%d" % i)
    log.flush()
    for segment in log.segments:
        inode = disk.names[segment.path]
        assert inode.durable == inode.cache


def test_overlapping_flushes_each_cover_all_they_promise(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=100))
    append(log, b"a")
    first = log.begin_flush()
    append(log, b"b")
    second = log.begin_flush()
    assert first is not None
    assert second is not None
    second.run()
    log.complete_flush(second)
    assert log.flushed_offset == 2
    assert all(disk.names[one.path].durable == disk.names[one.path].cache for one in log.segments)
    first.run()
    log.complete_flush(first)
    assert log.flushed_offset == 2


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_a_failed_sync_is_final(disk: SimDisk, operation: str) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a")
    flush = log.begin_flush()
    assert flush is not None
    disk.fail_on = {operation: errno.EIO}
    with pytest.raises(OSError, match=operation):
        flush.run()
    assert log.failed
    for attempt in (log.begin_flush, lambda: append(log, b"b"), lambda: log.complete_flush(flush)):
        with pytest.raises(StorageOffline):
            attempt()
    assert log.flushed_offset == 0
    operations = disk.operations
    log.close()
    assert disk.operations == operations  # not even closing touches it again


def test_a_flush_from_before_a_truncation_promises_nothing(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a")
    append(log, b"b")
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.truncate_to(1)
    append(log, b"c", epoch=1)
    log.complete_flush(flush)
    assert log.flushed_offset == 1  # the cut was made durable before anything was written behind it
    log.flush()
    assert log.flushed_offset == 2


def test_a_flush_that_ends_after_the_log_was_deleted_is_ignored(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a")
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.abandon("deleted")
    log.complete_flush(flush)
    assert log.flushed_offset == 0


def test_a_restart_point_shortens_the_next_recovery(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(index_interval_bytes=200))
    log.restart_point_bytes = 1000
    assert log.begin_restart_point() is None
    for i in range(40):
        append(log, b"%d" % i, producer=(1, 0, i))
    log.flush()
    size = log.size_bytes
    point = log.begin_restart_point()
    assert point is not None
    point.run()
    log.complete_restart_point(point)
    assert log.begin_restart_point() is None
    append(log, b"after", producer=(1, 0, 40))
    log.abandon("killed")
    again = open_log(disk, DIRECTORY, recovery_point=40)
    assert again.recovery.bytes_scanned == again.size_bytes - size
    assert append(again, b"retry", producer=(1, 0, 37)) == 37
    assert again.end_offset == 41


@pytest.mark.parametrize("seed", range(5))
def test_a_late_flush_does_not_take_back_epochs_that_another_made_durable(disk: SimDisk, seed: int) -> None:
    """It was begun before the epoch was, and its thread is slow: by then somebody has flushed, and acknowledged."""
    log = create_log(disk, DIRECTORY)
    append(log, b"a", epoch=1)
    late = log.begin_flush()
    assert late is not None
    append(log, b"b", epoch=2)
    log.flush()
    late.run()
    assert log.flushed_offset == 2
    disk.crash(Random(seed))
    again = open_log(disk, DIRECTORY)
    assert (again.end_offset, again.epochs.latest, again.recovery.corrupt) == (2, 2, [])


def test_epochs_that_cannot_be_written_fail_the_flush_and_not_who_begins_it(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a", epoch=1)
    log.flush()
    log.epochs.assign(2, 1)
    disk.fail_on["create"] = errno.EIO
    flush = log.begin_flush()
    assert flush is not None
    with pytest.raises(OSError, match="create"):
        flush.run()
    assert log.failed
