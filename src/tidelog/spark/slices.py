"""Ranges of offsets divided into tasks: few and big, since each costs Spark a tenth of a second whatever it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition

SLICE_BYTES: Final = 64 << 20
"""Log bytes that one task reads unless an option says otherwise."""


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads. A plain class without slots: Spark pickles it to the executors."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId = NO_TOPIC_ID

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return f"Slice({self.at}, {self.start}..{self.end})"


def split(
    ranges: Sequence[Slice],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    bytes_per_record: Mapping[TopicPartition, float] | None = None,
) -> list[Slice]:
    """Divides ranges so that no slice has more than `max_records` and there are at least `min_partitions`, where there
    are records enough; without either option, so that no slice is bigger than SLICE_BYTES."""
    ranges = [r for r in ranges if r.end > r.start]
    if max_records is not None:
        ranges = [piece for r in ranges for piece in _cut(r, -(-(r.end - r.start) // max_records))]
    if min_partitions is not None:
        return _at_least(ranges, min_partitions)
    if max_records is not None or not bytes_per_record:
        return ranges
    return [
        piece
        for r in ranges
        for piece in _cut(r, -int(-(r.end - r.start) * bytes_per_record.get(r.at, 0.0) // SLICE_BYTES))
    ]


def _at_least(ranges: list[Slice], count: int) -> list[Slice]:
    """Gives the pieces that are missing to the biggest ranges, one by one: rounding never leaves fewer than asked."""
    if not ranges or len(ranges) >= count:
        return ranges
    total = sum(r.end - r.start for r in ranges)
    count = min(count, total)
    parts = [max(1, (r.end - r.start) * count // total) for r in ranges]
    while sum(parts) < count:
        widest = max(range(len(ranges)), key=lambda i: (ranges[i].end - ranges[i].start) / parts[i])
        parts[widest] += 1
    return [piece for r, n in zip(ranges, parts, strict=True) for piece in _cut(r, n)]


def _cut(whole: Slice, parts: int) -> list[Slice]:
    size = whole.end - whole.start
    parts = max(1, min(parts, size))
    edges = [whole.start + size * i // parts for i in range(parts + 1)]
    return [Slice(whole.topic, whole.partition, start, end, whole.topic_id) for start, end in pairwise(edges)]
