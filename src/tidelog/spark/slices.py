"""Ranges of offsets divided into tasks: few and big, since each costs Spark a tenth of a second whatever it does.

The division depends on nothing but what it is given. A micro-batch that is replayed after a crash is then divided as it
was before, and a sink that writes one transaction per task can recognise what it has written already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition

TASK_BYTES_MAX: Final = 64 << 20
"""A range bigger than this is divided, unless an option says how."""
TASK_BYTES_MIN: Final = 16 << 20
"""Ranges that are smaller together share a task: reading this much takes about as long as starting a task."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Offsets `start` up to but without `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId = NO_TOPIC_ID

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


class ReadTask(InputPartition):
    """What one Spark task reads, one slice after the other."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(tuple(slices))
        self.slices = tuple(slices)

    def __repr__(self) -> str:
        return "ReadTask(" + ", ".join(f"{s.at}: {s.start}..{s.end}" for s in self.slices) + ")"


def plan(
    ranges: Sequence[Slice],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    record_bytes: Mapping[str, int] | None = None,
) -> list[ReadTask]:
    """Tasks with at most `max_records` each and at least `min_partitions` of them, where there are records enough.

    Without either option ranges are divided and put together by their bytes. `record_bytes` is what a record of each
    topic takes in the log; a topic that is not in it gets a task per partition.
    """
    ranges = [r for r in ranges if r.size > 0]
    if max_records is not None:
        ranges = [piece for r in ranges for piece in _cut(r, -(-r.size // max_records))]
    if min_partitions is not None:
        ranges = _at_least(ranges, min_partitions)
    if min_partitions is not None or max_records is not None or not record_bytes:
        return [ReadTask([r]) for r in ranges]
    pieces = [piece for r in ranges for piece in _cut(r, _pieces(r.size * record_bytes.get(r.topic, 0)))]
    return _together(pieces, record_bytes)


def _pieces(size: int) -> int:
    """Cores come in even numbers: of an odd number of tasks the last one runs alone."""
    count = -(-size // TASK_BYTES_MAX)
    return count + count % 2 if count > 1 else count


def _together(pieces: Sequence[Slice], record_bytes: Mapping[str, int]) -> list[ReadTask]:
    tasks: list[list[Slice]] = []
    filled = TASK_BYTES_MIN
    for piece in pieces:
        weight = piece.size * record_bytes.get(piece.topic, TASK_BYTES_MIN)
        if filled + weight > TASK_BYTES_MIN:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += weight
    return [ReadTask(slices) for slices in tasks]


def _at_least(ranges: list[Slice], count: int) -> list[Slice]:
    """Gives the pieces that are missing to the biggest ranges, one by one: rounding never leaves fewer than asked."""
    if not ranges or len(ranges) >= count:
        return ranges
    total = sum(r.size for r in ranges)
    count = min(count, total)
    parts = [max(1, r.size * count // total) for r in ranges]
    while sum(parts) < count:
        widest = max(range(len(ranges)), key=lambda i: ranges[i].size / parts[i])
        parts[widest] += 1
    return [piece for r, n in zip(ranges, parts, strict=True) for piece in _cut(r, n)]


def _cut(whole: Slice, parts: int) -> list[Slice]:
    parts = max(1, min(parts, whole.size))
    edges = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    return [Slice(whole.topic, whole.partition, start, end, whole.topic_id) for start, end in pairwise(edges)]
