"""Appending: offsets and epochs, rolling, what the topic's settings change, and what a bad disk does to it."""

import errno
from itertools import count
from random import Random

import pytest
from batches import NOW, append, batch, create_log, open_log, read_batches, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage, FencedLeaderEpoch, KafkaError, StorageOffline
from tidelog.storage.recovery import verify
from tidelog.wire.record_batch import LOG_APPEND_TIME, crc_of, iter_records

DIRECTORY = "/data/orders-0"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_the_producers_checksum_survives_numbering(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    data = batch(b"a", b"b")
    original = bytes(data)
    append(log, b"first")
    log.append(memoryview(data), leader_epoch=4, now_ms=NOW)
    (header, stored) = read_batches(log)[1]
    assert (header.base_offset, header.partition_leader_epoch) == (1, 4)
    assert bytes(stored[16:]) == original[16:]
    assert crc_of(stored) == header.crc


def test_a_read_only_buffer_is_not_written_to(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    data = bytes(batch(b"a"))
    copy = bytes(bytearray(data))
    log.append(data, leader_epoch=9, now_ms=NOW)
    log.append(memoryview(data), leader_epoch=9, now_ms=NOW)
    assert data == copy
    assert [header.base_offset for header, _ in read_batches(log)] == [0, 1]


def test_log_append_time_stamps_and_seals_the_batch(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(message_timestamp_type="LogAppendTime"))
    answer = log.append(batch(b"a", timestamps=[5], producer=(1, 0, 0)), leader_epoch=0, now_ms=NOW)
    assert answer.append_time_ms == NOW
    ((header, stored),) = read_batches(log)
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == NOW
    assert crc_of(stored) == header.crc
    assert [record.timestamp for record in iter_records(stored)] == [NOW]
    retry = log.append(batch(b"a", timestamps=[5], producer=(1, 0, 0)), leader_epoch=0, now_ms=NOW + 5)
    assert retry == (0, 0, NOW, True)


def test_a_bad_batch_stores_nothing(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    data = batch(b"a")
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append(data, leader_epoch=0, now_ms=NOW)
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_batch_larger_than_a_segment_is_refused(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=100))
    with pytest.raises(KafkaError, match=r"segment\.bytes"):
        append(log, b"x" * 200)
    assert log.end_offset == 0


def test_segments_roll_by_size_and_by_record_time(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=250, segment_ms=1000))
    for time in (0, 500, 1000, 1001, 1002):
        append(log, b"x", timestamps=[NOW + time])
    assert [one.base_offset for one in log.segments] == [0, 3]
    for _ in range(3):
        append(log, b"x" * 30, timestamps=[NOW + 1003])
    assert len(log.segments) > 2
    assert read_values(log)[-1][0] == log.end_offset - 1


def test_segments_roll_when_their_index_is_full(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(index_interval_bytes=1, segment_index_bytes=24))
    for _ in range(8):
        append(log, b"x", timestamps=[NOW])
    assert [one.base_offset for one in log.segments] == [0, 4], "the first batch needs no entry"
    assert len(read_values(log)) == 8


def test_a_changed_setting_takes_effect_at_once(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"x")
    log.reconfigure(TopicConfig(segment_bytes=100))
    append(log, b"x")
    assert len(log.segments) == 2


def test_an_epoch_that_ended_is_fenced(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"x", epoch=3)
    with pytest.raises(FencedLeaderEpoch):
        append(log, b"x", epoch=2)
    assert log.epochs.entries == [(3, 0)]


def test_a_follower_takes_batches_as_they_are(disk: SimDisk) -> None:
    leader = create_log(disk, "/data/leader-0")
    for i in range(5):
        append(leader, b"%d" % i, epoch=i // 2, producer=(1, 0, i))
    follower = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=160))
    data = b"".join(bytes(stored) for _, stored in read_batches(leader))
    assert follower.append_as_follower(data + data[:70]) == 5
    assert b"".join(bytes(stored) for _, stored in read_batches(follower)) == data
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.producers[1].batches == leader.producers.producers[1].batches
    with pytest.raises(CorruptMessage):
        follower.append_as_follower(data)


def test_a_follower_of_a_compacted_leader_finds_its_way_over_gaps(disk: SimDisk) -> None:
    leader = create_log(disk, "/data/leader-0")
    for i in range(9):
        append(leader, b"%d" % i)
    kept = [bytes(stored) for header, stored in read_batches(leader) if header.base_offset in (0, 3, 4, 8)]
    follower = create_log(disk, DIRECTORY)
    follower.append_as_follower(b"".join(kept))
    assert [offset for offset, _ in read_values(follower, 1)] == [3, 4, 8]
    assert [offset for offset, _ in read_values(follower, 4, 8)] == [4]
    follower.close()
    again = open_log(disk, DIRECTORY, recovery_point=9)
    assert [offset for offset, _ in read_values(again, 5)] == [8]


# -- a bad disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_recovers_when_there_is_space_again(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"before")
    disk.fail_on = {"write": errno.ENOSPC}
    with pytest.raises(StorageOffline):
        append(log, b"lost")
    assert not log.failed
    assert append(log, b"after") == 1
    assert read_values(log) == [(0, b"before"), (1, b"after")]


def test_a_refused_batch_does_not_count_as_sent(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    disk.fail_on = {"write": errno.ENOSPC}
    with pytest.raises(StorageOffline):
        append(log, b"x", producer=(1, 0, 0))
    assert append(log, b"x", producer=(1, 0, 0)) == 0


@pytest.mark.parametrize("operation", ["write", "create", "truncate", "rename"])
def test_a_disk_that_fails_while_rolling_leaves_the_log_whole(disk: SimDisk, operation: str) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=100, index_interval_bytes=0))
    append(log, b"before")
    disk.fail_on = {operation: errno.EIO}
    try:
        append(log, b"perhaps")
    except StorageOffline:
        append(log, b"perhaps")
    assert read_values(log) == [(0, b"before"), (1, b"perhaps")]
    log.close()
    assert verify(disk, DIRECTORY).problems == []


@pytest.mark.parametrize("opened", range(4))
def test_a_roll_that_found_no_descriptor_costs_nothing_that_fits_behind_it(disk: SimDisk, opened: int) -> None:
    config = TopicConfig(segment_bytes=200)
    log = create_log(disk, DIRECTORY, config)
    append(log, b"before")
    creations = count()
    proceed = disk.before

    def run_out(operation: str, path: str) -> None:
        if operation == "create" and next(creations) == opened:
            raise OSError(errno.EMFILE, "too many open files", path)
        proceed(operation, path)

    disk.before = run_out  # type: ignore[method-assign]
    with pytest.raises(StorageOffline):
        append(log, b"too much for this segment" * 4)
    disk.before = proceed  # type: ignore[method-assign]
    assert append(log, b"small") == 1
    log.flush()
    disk.crash(Random(1))
    # A file of the segment that was not begun would end the log where it was to begin.
    again = open_log(disk, DIRECTORY, config, recovery_point=1)
    assert read_values(again) == [(0, b"before"), (1, b"small")]
    assert again.end_offset == 2


def test_a_write_that_cannot_be_undone_fails_the_log_for_good(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"before")
    disk.fail_on = {"write": errno.EIO, "undo": errno.EIO}
    with pytest.raises(StorageOffline):
        append(log, b"lost")
    assert log.failed
    with pytest.raises(StorageOffline):
        append(log, b"never")
    with pytest.raises(StorageOffline):
        log.begin_flush()
    assert read_values(log) == [(0, b"before")]
