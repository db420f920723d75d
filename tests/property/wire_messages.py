"""Messages made up from their own tables, and their translation to the oracle's classes.

A source of choices is anything with `integer(low, high)`: seeded dice for sweeps over every version, hypothesis for
shrinking.
"""

import dataclasses
import datetime
import importlib
import io
import random
import re
import struct
from typing import Any, Protocol
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from tidelog.wire.layout import Field, Message, fields_of
from tidelog.wire.messages import API
from tidelog.wire.messages.insight import FIRST_OWN_KEY
from tidelog.wire.schema import spec_of

EVERY_MESSAGE = [
    (message, version)
    for spec in API.values()
    if spec.key < FIRST_OWN_KEY
    for message in (spec.request, spec.response)
    for version in range(spec.min, spec.max + 1)
]
TEXTS = ("", "a", "orders", "naïve-übung", "x" * 126, "y" * 127, "z" * 200, "日本", "\0", "🦭")
BLOBS = (b"", b"\0", bytes(range(256)), b"v" * 130)
INT_RANGES = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "q": (-(2**63), 2**63 - 1),
}
KNOWN_ERRORS = [code.value for code in KioErrorCode]
INSTANTS = ("log_append_time_ms", "transaction_start_time_ms")  # datetimes to the oracle, which cannot hold every i64


class Choices(Protocol):
    def integer(self, low: int, high: int) -> int: ...


class Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        # Edges are where encodings break.
        roll = self._random.random()
        if roll < 0.1:
            return low
        if roll < 0.2:
            return high
        return self._random.randint(low, high)


class Drawn:
    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


def make(message: type[Message], version: int, choices: Choices) -> Any:
    values = {field.name: _value(field, version, choices) for field in fields_of(message) if field.present(version)}
    return message(**values)


def _value(field: Field, version: int, choices: Choices) -> Any:
    if field.tag is not None and choices.integer(0, 1):
        return field.default
    if field.nullable(version) and choices.integer(0, 3) == 0:
        return None
    if field.is_array:
        return tuple(_element(field, version, choices) for _ in range(choices.integer(0, 3)))
    return _element(field, version, choices)


def _element(field: Field, version: int, choices: Choices) -> Any:
    if field.struct is not None:
        return make(field.struct, version, choices)
    if field.is_string:
        return TEXTS[choices.integer(0, len(TEXTS) - 1)]
    if field.is_opaque:
        return BLOBS[choices.integer(0, len(BLOBS) - 1)]
    if field.is_uuid:
        return UUID(int=choices.integer(0, 2**128 - 1))
    if field.format == "?":
        return bool(choices.integer(0, 1))
    if field.name.endswith("error_code"):
        return KNOWN_ERRORS[choices.integer(0, len(KNOWN_ERRORS) - 1)]
    if field.name in INSTANTS:
        return choices.integer(-1, 2**41)
    if field.name == "retention_time_ms":
        return choices.integer(-1, 2**45)
    return choices.integer(*INT_RANGES[field.format or ""])


def oracle_class(message: type[Message], version: int) -> Any:
    spec = spec_of(message)
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", spec.name).lower()
    kind = "request" if message is spec.request else "response"
    return getattr(importlib.import_module(f"kio.schema.{package}.v{version}.{kind}"), message.__name__)


def to_oracle(message: Message, version: int, into: Any) -> Any:
    """The same message in kio's classes. Fields are paired by position: the order on the wire is what is compared."""
    ours = [field for field in fields_of(type(message)) if field.present(version)]
    theirs = dataclasses.fields(into)
    assert [field.name.removesuffix("_ms") for field in ours] == [field.name.removesuffix("_ms") for field in theirs]
    values = {}
    for field, other in zip(ours, theirs, strict=True):
        value = getattr(message, field.name)
        if field.struct is not None and value is not None:
            struct_class = _entity_within(other.type)
            if field.is_array:
                value = tuple(to_oracle(item, version, struct_class) for item in value)
            else:
                value = to_oracle(value, version, struct_class)
        else:
            value = _primitive(value, other.metadata.get("kafka_type"))
        values[other.name] = value
    return into(**values)


def _primitive(value: Any, kafka_type: str | None) -> Any:
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    if kafka_type == "uuid":
        return value if value.int else None
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def _entity_within(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next(filter(None, (_entity_within(arm) for arm in getattr(annotation, "__args__", ()))), None)


def oracle_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def oracle_decode(kind: Any, encoded: bytes) -> Any:
    entity, size = entity_reader(kind)(encoded, 0)
    if size != len(encoded):
        raise struct.error(f"oracle read {size} of {len(encoded)} bytes")
    return entity
