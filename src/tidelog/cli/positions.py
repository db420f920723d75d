"""Where to start reading, as people say it: the beginning, an offset, the last few, a time."""

import re
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

import typer

_AGO: Final = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)(?: ago)?$")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Start(NamedTuple):
    kind: Literal["beginning", "end", "offset", "tail", "time"]
    number: int = 0  # the offset, how many from the end, or milliseconds since 1970


def parse_start(*, from_beginning: bool, offset: str | None, from_time: str | None, now: datetime) -> Start:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise typer.BadParameter("give only one of --from-beginning, --offset and --from-time")
    if from_beginning:
        return Start("beginning")
    if offset is not None:
        return _offset(offset)
    if from_time is not None:
        return Start("time", parse_time(from_time, now))
    return Start("end")


def _offset(text: str) -> Start:
    if text in ("beginning", "earliest"):
        return Start("beginning")
    if text in ("end", "latest"):
        return Start("end")
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise typer.BadParameter(f"--offset {text}: expected a number, -N for the last N, beginning or end")
    number = int(text)
    return Start("tail", -number) if text.startswith("-") else Start("offset", number)


def parse_time(text: str, now: datetime, option: str = "--from-time") -> int:
    """Milliseconds since 1970. A time without a zone is this machine's local time, as a person would mean it."""
    ago = _AGO.match(text)
    try:
        if ago:
            return int((now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])).timestamp() * 1000)
        if re.fullmatch(r"\d{9,18}", text):
            return int(text)
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{option} {text}: expected 2026-01-31T12:00, milliseconds since 1970, or an age such as 10m or 2h"
        ) from None
