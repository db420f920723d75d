"""Compaction of transactions: the aborted is nobody's last word, the committed is like any other, and a marker stays as
long as anything that it ends."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from batches import NOW, create_log, open_log, read_batches
from sim_disk import SimDisk
from txn_writer import Writer, compact_log, read_committed

from tidelog.config import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.recovery import verify
from tidelog.wire.record_batch import CONTROL, HAS_DELETE_HORIZON, BatchHeader

DIRECTORY = "/data/orders-0"
DAY = 86_400_000
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=DAY)


@pytest.fixture
def log() -> Log:
    return create_log(SimDisk(), DIRECTORY, COMPACTED)


def control(log: Log) -> list[BatchHeader]:
    return [header for header, _ in read_batches(log) if header.attributes & CONTROL]


def view(log: Log) -> Sequence[tuple[int, bytes | None, bytes | None]]:
    return read_committed(log)


def test_the_aborted_goes_and_hides_nothing(log: Log) -> None:
    plain, writer = Writer(log, 9), Writer(log, 1)
    plain.write((b"a", b"1"), (b"b", b"1"), transactional=False)
    writer.write((b"a", b"aborted"), (b"b", None))
    writer.abort()
    writer.write((b"b", b"committed"))
    writer.commit()
    log.roll(NOW)
    before = view(log)
    compact_log(log, last_offsets={})
    assert view(log) == [(0, b"a", b"1"), (5, b"b", b"committed")]
    assert [each for each in before if each != (1, b"b", b"1")] == view(log)
    assert len(control(log)) == 2, "the aborted batch was met, so its marker stays for now"
    assert log.aborted_transactions(0, log.end_offset) == [(1, 2)]


def test_a_marker_goes_when_it_ends_nothing_and_its_time_has_come(log: Log) -> None:
    writer = Writer(log, 1)
    writer.write((b"a", b"1"))
    writer.abort()
    writer.write((b"a", b"2"))
    writer.commit()
    writer.write((b"z", b"last"), transactional=False)
    log.roll(NOW)
    compact_log(log, last_offsets={})
    assert [header.attributes & HAS_DELETE_HORIZON for header in control(log)] == [0, 0]
    compact_log(log, now_ms=NOW + 1, last_offsets={})
    abort, commit = control(log)
    assert abort.attributes & HAS_DELETE_HORIZON
    assert abort.base_timestamp == NOW + 1 + DAY
    assert abort.max_timestamp == NOW
    assert not commit.attributes & HAS_DELETE_HORIZON, "its record is still there"
    compact_log(log, now_ms=NOW + DAY, last_offsets={})
    assert len(control(log)) == 2
    assert log.aborted_transactions(0, log.end_offset) == [(1, 0)]
    compact_log(log, now_ms=NOW + 1 + DAY, last_offsets={})
    assert [header.base_offset for header in control(log)] == [3]
    assert log.aborted_transactions(0, log.end_offset) == []
    assert view(log) == [(2, b"a", b"2"), (4, b"z", b"last")]


def test_a_marker_in_a_later_segment_decides_an_earlier_one(log: Log) -> None:
    one, two = Writer(log, 1), Writer(log, 2)
    one.write((b"a", b"kept"))
    one.commit()
    two.write((b"a", b"aborted"))
    log.roll(NOW)
    compact_log(log)
    assert view(log) == [(0, b"a", b"kept")], "not touched while it is undecided"
    two.abort()  # in the active segment, of which only the index says so
    compact_log(log)
    assert view(log) == [(0, b"a", b"kept")]
    assert sum(header.records_count for header, _ in read_batches(log)) == 3


def test_a_bare_header_at_the_end_of_a_segment_opens_no_transaction(log: Log) -> None:
    """Its batch is kept for its offset only. When the snapshots are lost, its marker must still be there to end it."""
    writer = Writer(log, 1)
    writer.write((b"a", b"1"))
    writer.abort()
    writer.write((b"b", b"1"))
    log.roll(NOW)
    writer.abort()
    log.roll(NOW)
    for round_number in range(4):
        compact_log(log, now_ms=NOW + 2 * DAY * round_number, last_offsets={})
    log.close()
    disk = log.disk
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(disk, DIRECTORY, COMPACTED, recovery_point=log.end_offset, clean=True)
    assert again.producers.transactions.open == {}
    assert view(again) == []


def test_a_snapshot_from_before_a_marker_goes_with_it(log: Log) -> None:
    """Taken while the transaction was open: with the marker gone, a replay from there would never see it end."""
    writer = Writer(log, 1)
    writer.write((b"a", b"1"))
    log.roll(NOW)
    writer.abort()
    log.roll(NOW)
    writer.write((b"z", b"plain"), transactional=False)
    log.roll(NOW)
    for round_number in range(3):
        compact_log(log, now_ms=NOW + 2 * DAY * round_number, last_offsets={})
    assert all(header.records_count == 0 for header in control(log))
    log.close()
    disk = log.disk
    for offset in (2, 3):
        disk.remove(f"{DIRECTORY}/{offset:020d}.snapshot")
    again = open_log(disk, DIRECTORY, COMPACTED, recovery_point=log.end_offset, clean=True)
    assert again.producers.transactions.open == {}
    assert again.last_stable_offset(again.end_offset) == again.end_offset


def test_tombstones_of_committed_transactions_count_and_go(log: Log) -> None:
    writer = Writer(log, 1)
    writer.write((b"a", b"1"))
    writer.commit()
    writer.write((b"a", None))
    writer.commit()
    log.roll(NOW)
    compact_log(log, last_offsets={})
    assert view(log) == [(2, b"a", None)]
    compact_log(log, now_ms=NOW + DAY, last_offsets={})
    assert view(log) == []


def test_segments_without_change_keep_their_indexes(log: Log) -> None:
    writer = Writer(log, 1)
    for key in (b"a", b"b", b"c"):
        writer.write((key, b"aborted"))
        writer.abort()
        writer.write((key, b"1"))
        writer.commit()
        log.roll(NOW)
    small = replace(COMPACTED, segment_bytes=400)
    log.reconfigure(small)
    compact_log(log)
    entries = {segment.base_offset: list(segment.transactions.index) for segment in log.segments}
    assert [entry for found in entries.values() for entry in found] == [
        (1, 0, 1, 2),
        (1, 4, 5, 6),
        (1, 8, 9, 10),
    ]
    names = log.disk.listdir(DIRECTORY)
    assert all(f"{base:020d}.txnindex" in names for base in list(entries)[:-1])
    assert verify(log.disk, DIRECTORY).sound
