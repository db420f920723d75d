"""IncrementalAlterConfigs: what a resource's overrides become after set, delete, append and subtract."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.config import ConfigType, Setting
from tidelog.errors import InvalidConfig, InvalidRequest


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    key: str
    operation: int
    value: str | None


def altered(
    present: Mapping[str, str],
    changes: Iterable[Change],
    settings: Mapping[str, Setting],
    inherited: Callable[[str], str | None],
) -> dict[str, str]:
    """`inherited(key)` is the value without an override: what a first append adds to."""
    wanted = dict(present)
    seen: set[str] = set()
    for key, operation, value in changes:
        if key in seen:
            raise InvalidRequest(f"config {key!r} is altered more than once in one request")
        seen.add(key)
        if operation == Operation.DELETE:
            wanted.pop(key, None)
        elif value is None:
            raise InvalidRequest(f"config {key!r} has no value")
        elif operation == Operation.SET:
            wanted[key] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            setting = settings.get(key)
            if setting is not None and setting.type is not ConfigType.LIST:
                raise InvalidConfig(f"config {key!r} is not a list: it can be set, not appended to or subtracted from")
            before = wanted.get(key) or (inherited(key) if setting is not None else None)
            wanted[key] = _combined(_items(before), _items(value), append=operation == Operation.APPEND)
        else:
            raise InvalidRequest(f"unknown config operation {operation}")
    return wanted


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _combined(before: list[str], items: list[str], *, append: bool) -> str:
    if append:
        return ",".join([*before, *(item for item in items if item not in before)])
    return ",".join(item for item in before if item not in items)
