"""When a compacted log is worth compacting, which part of it, and the checkpoint that remembers how far it is clean.

Offsets below the cleaner checkpoint hold each key once; from there on the log is dirty. The rules are Kafka's: the
active segment, anything at or beyond the last stable offset and anything younger than `min.compaction.lag.ms` stays
out; the rest is due when its share of the bytes passes `min.cleanable.dirty.ratio`, or when it has waited longer than
`max.compaction.lag.ms`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tidelog.config import TopicConfig
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk

CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"


class SegmentFacts(NamedTuple):
    base_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int


class Cleanable(msgspec.Struct, frozen=True):
    """A log's state of cleanliness. `segments` (base offsets) end where `upper` begins."""

    first_dirty: int
    upper: int
    segments: tuple[int, ...]
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def cleanable(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    *,
    cleaned_to: int | None,
    start_offset: int,
    end_offset: int,
    upper: int,
    now_ms: int,
) -> Cleanable:
    """`segments` are all of the log's in order, the active one last; `cleaned_to` is its entry in the checkpoint."""
    # A checkpoint outside the log comes from before a truncation or deletion: all of the log counts as dirty.
    first_dirty = cleaned_to if cleaned_to is not None and start_offset <= cleaned_to <= end_offset else start_offset
    limit = min(upper, segments[-1].base_offset)
    young = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else None
    old = now_ms - config.max_compaction_lag_ms
    chosen: list[int] = []
    clean_bytes = dirty_bytes = 0
    overdue = False
    end = segments[0].base_offset
    for segment, following in pairwise(segments):
        dirty = following.base_offset > first_dirty
        if following.base_offset > limit or (dirty and young is not None and segment.max_timestamp > young):
            break
        chosen.append(segment.base_offset)
        end = following.base_offset
        if dirty:
            dirty_bytes += segment.size
            overdue = overdue or 0 < segment.first_timestamp < old
        else:
            clean_bytes += segment.size
    return Cleanable(first_dirty, max(first_dirty, end), tuple(chosen), clean_bytes, dirty_bytes, overdue)


def read_cleaner_checkpoint(disk: Disk, log_dir: str) -> dict[TopicPartition, int]:
    """Empty when missing or damaged: that costs a longer compaction, never a record."""
    path = f"{log_dir}/{CLEANER_CHECKPOINT}"
    if not disk.exists(path):
        return {}
    checkpoint: dict[TopicPartition, int] = {}
    try:
        version, count, *lines = disk.read_all(path).decode("ascii").splitlines()
        if int(version) != 0 or int(count) != len(lines):
            return {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            checkpoint[TopicPartition(topic, int(partition))] = int(offset)
    except ValueError:  # also what undecodable bytes raise
        return {}
    return checkpoint


def write_cleaner_checkpoint(disk: Disk, log_dir: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items()))
    disk.write_atomic(f"{log_dir}/{CLEANER_CHECKPOINT}", f"0\n{len(offsets)}\n{lines}".encode("ascii"))
