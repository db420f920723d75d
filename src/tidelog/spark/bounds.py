"""Where reading begins and ends, as the options say it: a word, offsets or timestamps per partition, one timestamp."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidelog.ids import TopicPartition

Kind = Literal["earliest", "latest", "offsets", "timestamps", "timestamp"]
LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2


class InvalidOption(ValueError):
    """An option that cannot be meant: says which, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`option` is the name under which the user gave it, for messages."""

    kind: Kind
    option: str = ""
    per_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int = -1

    def __str__(self) -> str:
        if self.kind == "timestamp":
            return f"timestamp {self.timestamp}"
        return self.kind if not self.per_partition else f"{self.kind} {dict(self.per_partition)}"


def parse_offsets(option: str, text: str) -> Bound:
    """`earliest`, `latest`, or `{"topic": {"0": 23, "1": -1}}`."""
    word = text.strip().lower()
    if word == "earliest":
        return Bound("earliest", option)
    if word == "latest":
        return Bound("latest", option)
    numbers = _per_partition(option, text, '"earliest", "latest" or JSON like {"orders": {"0": 23, "1": -1}}')
    wrong = [partition for partition, offset in numbers.items() if offset < EARLIEST_OFFSET]
    if wrong:
        raise InvalidOption(f"{option}: {wrong[0]} has offset {numbers[wrong[0]]}; offsets are ≥ 0, -1 or -2")
    return Bound("offsets", option, numbers)


def parse_timestamps(option: str, text: str) -> Bound:
    """`{"topic": {"0": 1700000000000}}`."""
    numbers = _per_partition(option, text, 'JSON like {"orders": {"0": 1700000000000}}')
    wrong = [partition for partition, timestamp in numbers.items() if timestamp < 0]
    if wrong:
        raise InvalidOption(f"{option}: {wrong[0]} has the negative timestamp {numbers[wrong[0]]}")
    return Bound("timestamps", option, numbers)


def parse_timestamp(option: str, text: str) -> Bound:
    try:
        timestamp = int(text)
    except ValueError:
        timestamp = -1
    if timestamp < 0:
        raise InvalidOption(f"{option}: expected milliseconds since 1970, not {text!r}")
    return Bound("timestamp", option, timestamp=timestamp)


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1], "refunds": [0]}`."""
    shape = 'assign: expected JSON like {"orders": [0, 1]}'
    found = []
    for topic, numbers in _json_object("assign", text, shape).items():
        if not isinstance(numbers, list) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise InvalidOption(f"{shape}, not {text!r}")
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise InvalidOption("assign: no partition is named")
    return tuple(sorted(set(found)))


def _per_partition(option: str, text: str, shape: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(option, text, f"{option}: expected {shape}").items():
        if not isinstance(partitions, dict):
            raise InvalidOption(f"{option}: expected {shape}, not {text!r}")
        for number, value in partitions.items():
            if not number.isdigit() or not isinstance(value, int) or isinstance(value, bool):
                raise InvalidOption(f"{option}: expected {shape}, not {text!r}")
            found[TopicPartition(topic, int(number))] = value
    return found


def _json_object(option: str, text: str, complaint: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        raise InvalidOption(f"{complaint}, not {text!r}") from None
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{complaint}, not {text!r}")
    return parsed
