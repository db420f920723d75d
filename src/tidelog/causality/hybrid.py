"""Hybrid logical time: a clock's milliseconds, and a count where the clock does not tell two events apart.

One number of 64 bits: 48 of milliseconds since 1970, 16 of count. A step is an addition of one, so that a count that is
full carries into the milliseconds; comparing times is comparing numbers. Time never goes back, whatever the clock
does, and runs ahead of the fastest clock that it heard of only by the count.
"""

from dataclasses import dataclass
from typing import Final

COUNT_BITS: Final = 16
_COUNT: Final = (1 << COUNT_BITS) - 1
TICKS_MAX: Final = (1 << 63) - 1  # a Spark bigint holds it; reached in the year 6429


class ClockDrift(ValueError):
    """A stamp is so far ahead of this machine's clock that one of the two clocks is wrong."""


@dataclass(frozen=True, slots=True, order=True)
class HybridTime:
    ticks: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.ticks <= TICKS_MAX:
            raise ValueError(f"{self.ticks} is no hybrid time")

    @classmethod
    def at(cls, wall_ms: int, count: int = 0) -> "HybridTime":
        return cls((wall_ms << COUNT_BITS) + count)

    @property
    def wall_ms(self) -> int:
        return self.ticks >> COUNT_BITS

    @property
    def count(self) -> int:
        return self.ticks & _COUNT

    def next(self, now_ms: int) -> "HybridTime":
        """The time of an event after this one."""
        return HybridTime(max(self.ticks + 1, now_ms << COUNT_BITS))

    def joined(self, heard: "HybridTime", now_ms: int, drift_ms_max: int) -> "HybridTime":
        """What is known after a stamp was heard. A clock that is wrong by years must not become everybody's."""
        ahead_ms = heard.wall_ms - now_ms
        if ahead_ms > drift_ms_max:
            raise ClockDrift(f"a stamp is {ahead_ms} ms ahead of this clock; {drift_ms_max} ms are allowed")
        return max(self, heard)

    def __str__(self) -> str:
        return f"{self.wall_ms}+{self.count}"
