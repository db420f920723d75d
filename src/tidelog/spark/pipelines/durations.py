"""Lengths of time as people write them: `10 minutes`, `1 hour 30 minutes`, `90s`."""

import re
from typing import Final

from tidelog.spark.bounds import InvalidOption

_MS: Final = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_MS_PER: Final = {
    **_MS, **{f"{unit}s": length for unit, length in _MS.items()},
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
    "week": 7 * 86_400_000, "weeks": 7 * 86_400_000,
}  # fmt: skip
_PART: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")


def milliseconds(text: str, option: str, *, least: int = 1) -> int:
    """Months and years are refused, as Spark does: they have no length."""
    total = at = 0
    lowered = text.lower()
    while at < len(lowered):
        part = _PART.match(lowered, at)
        if part is None or part[2] not in _MS_PER:
            raise InvalidOption(f"{option} {text!r} is no length of time; write for example '10 minutes' or '30s'")
        total += int(part[1]) * _MS_PER[part[2]]
        at = part.end()
    if total < least:
        raise InvalidOption(f"{option} {text!r} is too short")
    return total


def interval(length_ms: int) -> str:
    """As Spark wants it."""
    return f"{length_ms} milliseconds"
