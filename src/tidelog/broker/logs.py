"""The broker's log lines: key=value, to stderr, without touching anybody else's logging.

A broker may live inside a user's test process, so nothing global is configured. Until `show` is called only warnings
and worse are printed. Tracebacks are plain: one with local variables would print record bodies and, one day, secrets.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

_LEVELS = logging.getLevelNamesMapping()
_threshold = logging.WARNING


def show(level: int) -> None:
    global _threshold  # noqa: PLW0603 - a process has one stderr
    _threshold = level


def _drop_below_threshold(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if _LEVELS.get("ERROR" if method == "exception" else method.upper(), logging.INFO) < _threshold:
        raise structlog.DropEvent
    return event


def get_logger(room: str) -> Any:
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            _drop_below_threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=True,
        room=room,
    )
