"""When compaction is due and over what, as a table; and the checkpoint in Kafka's words."""

from pathlib import Path

import pytest

from tidelog.config import TopicConfig
from tidelog.ids import TopicPartition
from tidelog.storage.cleanable import (
    Cleanable,
    SegmentFacts,
    cleanable,
    read_cleaner_checkpoint,
    write_cleaner_checkpoint,
)
from tidelog.storage.disk import RealDisk

NOW = 1_700_000_000_000
HOUR = 3_600_000
# Four sealed segments of 100 bytes, written an hour apart, and the active one.
SEGMENTS = [SegmentFacts(i * 10, 100, NOW - (5 - i) * HOUR, NOW - (4 - i) * HOUR) for i in range(5)]


def look(
    config: TopicConfig | None = None, *, cleaned_to: int | None = None, start: int = 0, upper: int = 45
) -> Cleanable:
    return cleanable(
        SEGMENTS,
        config or TopicConfig(),
        cleaned_to=cleaned_to,
        start_offset=start,
        end_offset=45,
        upper=upper,
        now_ms=NOW,
    )


@pytest.mark.parametrize(
    ("cleaned_to", "upper", "segments", "clean", "dirty"),
    [
        pytest.param(None, 45, (0, 10, 20, 30), 0, 400, id="never cleaned: all but the active segment"),
        pytest.param(20, 45, (0, 10, 20, 30), 200, 200, id="half clean"),
        pytest.param(25, 45, (0, 10, 20, 30), 200, 200, id="clean up to inside a segment"),
        pytest.param(40, 45, (0, 10, 20, 30), 400, 0, id="all clean"),
        pytest.param(20, 35, (0, 10, 20), 200, 100, id="a segment reaching past upper stays out"),
        pytest.param(20, 5, (), 0, 0, id="upper in the first segment"),
        pytest.param(99, 45, (0, 10, 20, 30), 0, 400, id="a checkpoint beyond the log is not believed"),
    ],
)
def test_which_segments(cleaned_to: int | None, upper: int, segments: tuple[int, ...], clean: int, dirty: int) -> None:
    found = look(cleaned_to=cleaned_to, upper=upper)
    assert (found.segments, found.clean_bytes, found.dirty_bytes) == (segments, clean, dirty)
    assert found.upper >= found.first_dirty
    if segments:
        assert found.upper == max(segments[-1] + 10, found.first_dirty)


def test_a_checkpoint_before_the_logs_start_is_moved_there() -> None:
    assert look(cleaned_to=3, start=12).first_dirty == 12


def test_records_younger_than_the_lag_wait() -> None:
    found = look(TopicConfig(min_compaction_lag_ms=2 * HOUR + 1))
    assert (found.segments, found.upper) == ((0, 10), 20)


def test_what_is_clean_already_is_not_kept_out_by_its_youth() -> None:
    found = look(TopicConfig(min_compaction_lag_ms=100 * HOUR), cleaned_to=20)
    assert (found.segments, found.dirty_bytes) == ((0, 10), 0)


@pytest.mark.parametrize(
    ("cleaned_to", "config", "due"),
    [
        (None, TopicConfig(), True),
        (20, TopicConfig(), False),  # exactly half is not more than half
        (10, TopicConfig(), True),
        (30, TopicConfig(min_cleanable_dirty_ratio=0.2), True),
        (30, TopicConfig(), False),
        (30, TopicConfig(max_compaction_lag_ms=HOUR), True),  # its records have waited two hours
        (30, TopicConfig(max_compaction_lag_ms=3 * HOUR), False),
        (40, TopicConfig(max_compaction_lag_ms=1, min_cleanable_dirty_ratio=0.0), False),  # nothing dirty, nothing due
    ],
)
def test_when_it_is_due(cleaned_to: int | None, config: TopicConfig, due: bool) -> None:
    assert look(config, cleaned_to=cleaned_to).is_due(config) is due


def test_a_log_of_one_segment_has_nothing_to_clean() -> None:
    found = cleanable(SEGMENTS[:1], TopicConfig(), cleaned_to=None, start_offset=0, end_offset=9, upper=9, now_ms=NOW)
    assert (found.segments, found.dirty_ratio, found.is_due(TopicConfig())) == ((), 0.0, False)


def test_the_checkpoint_is_kafkas_file(tmp_path: Path) -> None:
    disk = RealDisk()
    assert read_cleaner_checkpoint(disk, str(tmp_path)) == {}
    offsets = {TopicPartition("orders", 11): 5, TopicPartition("orders", 2): 1 << 40, TopicPartition("a.b_c-d", 0): 0}
    write_cleaner_checkpoint(disk, str(tmp_path), offsets)
    text = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert text == f"0\n3\na.b_c-d 0 0\norders 2 {1 << 40}\norders 11 5\n"
    assert read_cleaner_checkpoint(disk, str(tmp_path)) == offsets


@pytest.mark.parametrize(
    "damage", [b"", b"0\n", b"1\n0\n", b"0\n2\norders 1 5\n", b"0\n1\norders x 5\n", b"0\n1\n\xff\xfe 1 1\n"]
)
def test_a_damaged_checkpoint_means_nothing_is_clean(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(damage)
    assert read_cleaner_checkpoint(RealDisk(), str(tmp_path)) == {}
