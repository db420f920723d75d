"""The broker's log lines: key=value, to stderr, without touching anybody else's logging.

A broker may live inside a user's test process, so nothing global is configured. Until `show` is called only warnings
and worse are printed. Tracebacks are plain: one with local variables would print record bodies and, one day, secrets.
"""

import logging
import sys
from typing import Any

_LEVELS = logging.getLevelNamesMapping()
_threshold = logging.WARNING


def show(level: int) -> None:
    global _threshold  # noqa: PLW0603 - a process has one stderr
    _threshold = level


class LazyLogger:
    """structlog is loaded for the first line that is written: a broker that starts well writes none."""

    def __init__(self, room: str) -> None:
        self._room = room

    def __getattr__(self, method: str) -> Any:
        if _LEVELS.get("ERROR" if method == "exception" else method.upper(), logging.INFO) < _threshold:
            return _silence
        logger = _make(self._room)
        self.__dict__[method] = emit = getattr(logger, method)
        return emit


def get_logger(room: str) -> LazyLogger:
    return LazyLogger(room)


def _silence(*event: Any, **facts: Any) -> None:
    """A line below the threshold."""


def _make(room: str) -> Any:
    import structlog

    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        cache_logger_on_first_use=True,
        room=room,
    )
