"""What an audit found: a verdict per check, numbers per partition, and what a report draws."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

EXAMPLES: Final = 5
"""Of every kind of finding so many are named; the numbers count all of them."""


class Verdict(StrEnum):
    """In the order of how bad they are."""

    SKIPPED = "skipped"
    OK = "ok"
    WARNING = "warning"
    VIOLATION = "violation"


_ORDER: Final = list(Verdict)


def many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def worst(verdicts: list[Verdict]) -> Verdict:
    return max(verdicts, key=_ORDER.index, default=Verdict.OK)


@dataclass(frozen=True, slots=True)
class Check:
    """`says` is one sentence, `examples` begin with a place in the log: topic-partition@offset."""

    name: str
    verdict: Verdict
    says: str
    examples: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class PartitionNumbers:
    """`start` up to but without `end` was looked at. What lies in between is one of: a record, a record of an aborted
    transaction, a marker of a transaction, compacted away, lost."""

    partition: int
    log_start: int
    start: int
    end: int
    batches: int = 0
    bytes: int = 0
    records: int = 0
    aborted: int = 0
    undecided: int = 0
    markers: int = 0
    compacted: int = 0
    lost: int = 0


@dataclass(slots=True)
class Report:
    topic: str
    cleanup_policy: str
    partitions: list[PartitionNumbers]
    checks: list[Check]
    event_time: str
    isolation: str = "read_committed"
    lateness: list[dict[str, int | None]] = field(default_factory=list)  # less than so many ms late: so many records
    hot_keys: list[dict[str, Any]] = field(default_factory=list)
    at: str = ""
    seconds: float = 0.0

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def verdict(self) -> Verdict:
        return worst([check.verdict for check in self.checks if check.verdict is not Verdict.SKIPPED])
