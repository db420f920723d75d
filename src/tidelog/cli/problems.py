"""Errors for people: one line that says what is wrong and one that says what to do next. Never a traceback."""

import sys
from typing import Any, Final

from tidelog.errors import InvalidConfig
from tidelog.errors import KafkaError as TidelogError


class Problem(Exception):
    """Something the person at the terminal can do something about."""

    def __init__(self, what: str, next_step: str | None = None) -> None:
        super().__init__(what)
        self.next_step = next_step


_REACHABLE: Final = "is this the address of a Kafka broker, and can it be reached from here?"
_NEXT_STEPS: Final = {
    "UNKNOWN_TOPIC_OR_PART": "`tidelog topic list` shows the topics there are",
    "_UNKNOWN_TOPIC": "`tidelog topic list` shows the topics there are",
    "_UNKNOWN_PARTITION": "`tidelog topic describe TOPIC` shows its partitions",
    "TOPIC_ALREADY_EXISTS": "`tidelog topic describe TOPIC` shows it; --if-not-exists accepts it",
    "INVALID_CONFIG": "`tidelog config list` shows every setting and what is valid",
    "INVALID_REPLICATION_FACTOR": "a topic cannot have more replicas than there are brokers",
    "TOPIC_EXCEPTION": "names are 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    "TOPIC_DELETION_DISABLED": "start the broker with --set delete.topic.enable=true",
    "_TIMED_OUT": _REACHABLE,
    "_TRANSPORT": _REACHABLE,
    "_ALL_BROKERS_DOWN": _REACHABLE,
    "_INVALID_ARG": "client settings are listed in librdkafka's CONFIGURATION.md",
}


def explain(error: Exception) -> list[str]:
    """The lines to print for an error that ended a command."""
    if isinstance(error, Problem):
        return _lines(str(error), error.next_step)
    if isinstance(error, InvalidConfig):
        return _lines(str(error), "`tidelog config list` shows every setting and what is valid")
    if isinstance(error, TidelogError):
        return _lines(str(error), None)
    told = _kafka_error(error)
    if told is not None:
        return _lines(*told)
    if isinstance(error, TimeoutError):
        return _lines(str(error) or "no answer in time", _REACHABLE)
    if isinstance(error, UnicodeDecodeError):
        return _lines(f"the file is not text: {error.reason} at byte {error.start:,}", "is it the right file?")
    if isinstance(error, UnicodeEncodeError):
        return _lines(f"{error.object!r} is not UTF-8", "names and values are text, and Kafka's text is UTF-8")
    if isinstance(error, OSError):
        return _lines(f"{error.filename}: {error.strerror}" if error.filename else str(error), None)
    return _lines(
        f"unexpected {type(error).__name__}: {error}",
        "this is a bug in tidelog; TIDELOG_DEBUG=1 shows where it happened",
    )


def _lines(what: str, next_step: str | None) -> list[str]:
    lines = [f"error: {line}" for line in what.splitlines() or ["(no message)"]]
    return [*lines, f"  next: {next_step}"] if next_step else lines


def _kafka_error(error: Exception) -> tuple[str, str | None] | None:
    # If confluent_kafka was never imported, the error cannot be one of its own, and importing it would be slow.
    confluent_kafka: Any = sys.modules.get("confluent_kafka")
    if confluent_kafka is None or not isinstance(error, confluent_kafka.KafkaException):
        return None
    told = error.args[0] if error.args else error
    if not isinstance(told, confluent_kafka.KafkaError):
        return str(told), None
    return told.str() or told.name(), next_step(told)


def next_step(error: Any) -> str | None:
    """What to do about an error of confluent-kafka."""
    return _NEXT_STEPS.get(error.name())
