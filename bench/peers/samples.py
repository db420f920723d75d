"""What was measured: one sample per side and round; its median, its spread, and the ratio of two sides. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

Values = dict[str, float]


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row. `target` is a ratio to Apache Kafka in the same run; None: informative."""

    key: str
    title: str
    better: Better = Better.LOWER
    target: float | None = None

    def met(self, ratio: float) -> bool | None:
        if self.target is None:
            return None
        return ratio >= self.target if self.better is Better.HIGHER else ratio <= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    side: str
    round: int
    values: Values
    load: float = 0.0  # load average of the machine just before
    other_cores: float = 0.0  # cores kept busy meanwhile by processes that are no part of the measurement
    at: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    median: float
    least: float
    most: float
    count: int

    @property
    def spread(self) -> float:
        """Half of the range as a share of the median: 0.1 reads as ± 10 %."""
        return (self.most - self.least) / 2 / self.median if self.median else 0.0


@dataclass(slots=True)
class RowResult:
    """All samples of one row, and why a side has none."""

    samples: list[Sample] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def of(self, side: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.side == side]

    def sides(self) -> list[str]:
        return list(dict.fromkeys(sample.side for sample in self.samples))

    def summary(self, side: str, key: str) -> Summary | None:
        return summarize([sample.values[key] for sample in self.of(side) if key in sample.values])

    def ratio(self, key: str, ours: str, theirs: str) -> float | None:
        """Of the medians; None where one side lacks the figure."""
        a, b = self.summary(ours, key), self.summary(theirs, key)
        return a.median / b.median if a and b and b.median else None


def summarize(values: Sequence[float]) -> Summary | None:
    if not values:
        return None
    return Summary(median(values), min(values), max(values), len(values))


def missing_turns(result: RowResult, sides: Sequence[str], rounds: int) -> list[tuple[int, str]]:
    """The turns still to be taken, round by round and side after side, so that a stopped run goes on where it was."""
    had = {(sample.round, sample.side) for sample in result.samples}
    open_sides = [side for side in sides if side not in result.absent]
    return [(number, side) for number in range(rounds) for side in open_sides if (number, side) not in had]
