"""Conditions on topic, partition, offset and timestamp become fewer offsets to read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tidelog.ids import TopicPartition

_OFFSET_MAX: Final = 2**63 - 1
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(slots=True)
class Narrowed:
    """What pushed conditions leave: partitions that pass every test, offsets in [first, until), records not older."""

    tests: list[Callable[[TopicPartition], bool]] = field(default_factory=list)
    first: int = 0
    until: int = _OFFSET_MAX
    timestamp_min: int | None = None

    def allows(self, at: TopicPartition) -> bool:
        return all(test(at) for test in self.tests)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Takes what it can use; returns what Spark must still check row by row."""
        return [condition for condition in filters if not self._take(condition)]

    def _take(self, condition: Filter) -> bool:
        """True if every row that will be read meets the condition."""
        path: tuple[str, ...] = getattr(condition, "attribute", ())  # not every kind of condition is about a column
        name = path[0] if len(path) == 1 else None
        if isinstance(condition, IsNotNull):
            return name in _NEVER_NULL
        if name in ("topic", "partition"):
            return self._take_place(name == "topic", condition)
        if name == "offset":
            return self._take_offset(condition)
        if name == "timestamp":
            self._take_timestamp(condition)
        return False

    def _take_place(self, is_topic: bool, condition: Filter) -> bool:
        if isinstance(condition, EqualTo):
            allowed = {condition.value}
        elif isinstance(condition, In):
            allowed = set(condition.value)
        else:
            return False
        self.tests.append(lambda at: (at.topic if is_topic else at.partition) in allowed)
        return True

    def _take_offset(self, condition: Filter) -> bool:
        match condition:
            case EqualTo(value=int(offset)):
                first, until = offset, offset + 1
            case GreaterThan(value=int(offset)):
                first, until = offset + 1, _OFFSET_MAX
            case GreaterThanOrEqual(value=int(offset)):
                first, until = offset, _OFFSET_MAX
            case LessThan(value=int(offset)):
                first, until = 0, offset
            case LessThanOrEqual(value=int(offset)):
                first, until = 0, offset + 1
            case _:
                return False
        self.first, self.until = max(self.first, first), min(self.until, until)
        return True

    def _take_timestamp(self, condition: Filter) -> None:
        """Only from below: behind the first record that is young enough, older ones may follow, so an upper limit says
        nothing about offsets, and Spark checks every row in any case."""
        if not isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
            return
        moment = _millis(condition.value)
        if moment is not None:
            self.timestamp_min = max(moment, self.timestamp_min or 0)


def _millis(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1000))
