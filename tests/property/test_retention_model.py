"""Retention: only whole, old enough or surplus segments go, oldest first, and never what readers may still need."""

import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from batches import NOW, append, create_log, open_log, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.storage.log import Log, delete_segments

DIRECTORY = "/data/orders-0"


def build(config: TopicConfig, times: list[int]) -> tuple[SimDisk, Log]:
    disk = SimDisk()
    log = create_log(disk, DIRECTORY, config)
    for time in times:
        append(log, b"v%d" % time, timestamps=[NOW + time])
    return disk, log


@settings(max_examples=150, deadline=None)
@given(
    times=st.lists(st.integers(0, 1000), max_size=30),
    retention_ms=st.integers(-1, 1000),
    retention_bytes=st.integers(-1, 2500),
    age=st.integers(0, 2500),
    upper=st.integers(0, 30),
    reopened=st.booleans(),
)
def test_only_what_the_limits_name_goes(
    times: list[int], retention_ms: int, retention_bytes: int, age: int, upper: int, reopened: bool
) -> None:
    config = TopicConfig(segment_bytes=250, retention_ms=retention_ms, retention_bytes=retention_bytes)
    disk, log = build(config, times)
    if reopened:  # cold segments know their age from their time index alone
        log.close()
        log = open_log(disk, DIRECTORY, config, clean=True, recovery_point=len(times))
    before = read_values(log)
    upper = min(upper, log.end_offset)
    segments = [(one.base_offset, one.next_offset, one.size, one.max_timestamp) for one in log.segments]
    size = log.size_bytes
    gone = log.expire(NOW + age, upper)
    delete_segments(gone)
    assert read_values(log) == [one for one in before if one[0] >= log.start_offset]
    assert log.start_offset <= upper
    assert log.end_offset == len(times)
    surplus = size - retention_bytes if retention_bytes >= 0 else -1
    for (_, end, bytes_, newest), segment in zip(segments, gone, strict=False):
        too_old = retention_ms >= 0 and NOW + age - newest > retention_ms
        too_much = surplus >= bytes_
        assert too_old or too_much
        assert end <= upper
        surplus -= bytes_
        assert segment.base_offset < log.start_offset
    if len(gone) < len(segments):
        _, end, bytes_, newest = segments[len(gone)]
        active = len(gone) == len(segments) - 1
        assert (
            end > upper
            or (not (retention_ms >= 0 and NOW + age - newest > retention_ms) and (active or surplus < bytes_))
            or not bytes_
        )
    assert not [name for name in disk.names if name.endswith(".deleted")]


def test_an_expired_active_segment_is_rolled_and_dropped() -> None:
    _, log = build(TopicConfig(retention_ms=100), [0, 1, 2])
    assert len(log.expire(NOW + 200, 3)) == 1
    assert (log.start_offset, log.end_offset) == (3, 3)
    assert append(log, b"next") == 3


def test_a_future_timestamp_keeps_its_segment() -> None:
    _, log = build(TopicConfig(retention_ms=100, segment_bytes=100), [0, 999_999, 0])
    assert [one.base_offset for one in log.expire(NOW + 200, 3)] == [0]


def test_a_compacted_topic_only_loses_what_was_deleted_by_request() -> None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1, segment_bytes=100)
    _, log = build(config, [0, 1, 2, 3])
    assert log.expire(NOW + 10_000, 4) == []
    log.advance_start_offset(2)
    assert [one.base_offset for one in log.expire(NOW + 10_000, 4)] == [0, 1]
    assert log.start_offset == 2


def test_records_without_timestamps_age_from_when_their_segment_was_seen() -> None:
    disk = SimDisk()
    log = create_log(disk, DIRECTORY, TopicConfig(retention_ms=100))
    append(log, b"timeless", timestamps=[-1])
    assert log.expire(NOW + 100, 1) == []
    assert len(log.expire(NOW + 101, 1)) == 1


def test_a_slice_outlives_its_segment() -> None:
    _, log = build(TopicConfig(retention_ms=100, segment_bytes=100), [0, 0, 0])
    piece = log.read(0, 1000, upper=3)
    content = piece.file.read(piece.position, piece.length)
    delete_segments(log.expire(NOW + 1000, 3))
    assert piece.file.read(piece.position, piece.length) == content
