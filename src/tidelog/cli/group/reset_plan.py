"""Where a reset takes each partition: decided from offsets that were looked up, before anything is changed."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
import typer

from tidelog.ids import TopicPartition

_DURATION: Final = re.compile(
    r"^P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$", re.I
)
_SHORT: Final = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class To(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"
    GIVEN = "given"  # one by one, from a CSV


class Target(msgspec.Struct, frozen=True):
    to: To
    number: int = 0
    """The offset, milliseconds since 1970, or by how many to shift."""
    given: Mapping[TopicPartition, int] = {}


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up about one partition."""

    partition: TopicPartition
    start: int
    end: int
    committed: int | None
    at_time: int | None = None
    """The offset of the time asked for; None if all records are older."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    old_offset: int | None
    new_offset: int
    warning: str | None = None

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def effect(self) -> str:
        """As the group will feel it."""
        if self.old_offset is None:
            return f"first commit, {self.end_offset - self.new_offset:,} to read"
        step = self.new_offset - self.old_offset
        if step == 0:
            return "stays"
        return f"skips {step:,}" if step > 0 else f"repeats {-step:,}"


def plan(target: Target, known: Iterable[Known]) -> list[Change]:
    return [_change(target, one) for one in known]


def _change(target: Target, one: Known) -> Change:
    asked = _asked(target, one)
    offset = min(max(asked, one.start), one.end)
    warning = None
    if asked < one.start:
        warning = f"{asked} was deleted already: set to the oldest record, {one.start}"
    elif asked > one.end:
        warning = f"{asked} is not written yet: set to the end, {one.end}"
    return Change(
        topic=one.partition.topic,
        partition=one.partition.partition,
        start_offset=one.start,
        end_offset=one.end,
        old_offset=one.committed,
        new_offset=offset,
        warning=warning,
    )


def _asked(target: Target, one: Known) -> int:
    match target.to:
        case To.EARLIEST:
            return one.start
        case To.LATEST:
            return one.end
        case To.CURRENT:
            return one.end if one.committed is None else one.committed
        case To.TIME:
            return one.end if one.at_time is None else one.at_time
        case To.OFFSET:
            return target.number
        case To.GIVEN:
            return target.given[one.partition]
        case To.SHIFT:
            if one.committed is None:
                raise typer.BadParameter(f"--shift-by: {one.partition} has no committed offset to shift from")
            return one.committed + target.number


def parse_duration(text: str, option: str = "--by-duration") -> timedelta:
    """ISO 8601, as Kafka's tool has it (PT1H30M), or as people say it (90m)."""
    short = _SHORT.match(text)
    try:
        if short:
            return timedelta(seconds=float(short[1]) * _UNITS[short[2]])
        iso = _DURATION.match(text)
        if iso and any(iso.groups()):
            return timedelta(**{unit: float(value) for unit, value in iso.groupdict().items() if value})
    except OverflowError:
        pass
    raise typer.BadParameter(f"{option} {text}: expected PT1H30M, or a number and ms, s, m, h or d such as 90m")


def since(duration: timedelta, now: datetime) -> int:
    """The milliseconds since 1970 that were so long ago; before that is no time of a record."""
    return max(0, int((now.timestamp() - duration.total_seconds()) * 1000))


def parse_csv(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """`topic,partition,offset` lines, as --export-csv and Kafka's own tool write them."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells == ["topic", "partition", "offset"]):
            continue
        if len(cells) != 3 or not (cells[1].isdecimal() and cells[2].isdecimal()):
            raise typer.BadParameter(f"--from-csv line {number}: expected topic,partition,offset, got {','.join(row)}")
        partition = TopicPartition(cells[0], int(cells[1]))
        if partition in found:
            raise typer.BadParameter(f"--from-csv line {number}: {partition} is there twice")
        found[partition] = int(cells[2])
    if not found:
        raise typer.BadParameter("--from-csv: there is no topic,partition,offset line in it")
    return found


def csv_lines(changes: Sequence[Change]) -> Iterator[str]:
    for one in changes:
        yield f"{one.topic},{one.partition},{one.new_offset}"
