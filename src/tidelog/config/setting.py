"""One row of a settings table: a name, its type, what is valid, its default and its doc.

A row is written as a dataclass field (see `broker.py` and `topic.py`), so the table, the typed attribute that code
reads and the reference page cannot disagree. Kafka's name of a setting is its attribute with dots for underscores.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, Final, TypeAlias

import msgspec

from tidelog.errors import InvalidConfig

Value: TypeAlias = int | float | bool | str | tuple[str, ...] | frozenset[str] | None

LONG_MAX: Final = 9_223_372_036_854_775_807
INT_MAX: Final = 2_147_483_647


class ConfigType(IntEnum):
    """Kafka's numbers for a setting's type, as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Valid(msgspec.Struct, frozen=True):
    """A condition on a parsed value and the words that say it."""

    words: str
    holds: Callable[[Any], bool]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""  # filled in by `table`, from the attribute
    type: ConfigType
    default: Value
    doc: str
    valid: Valid | None = None
    inherits: tuple[str, ...] = ()  # topic settings: the broker settings that decide when the topic says nothing
    dynamic: bool = False  # may be changed while the broker runs
    sensitive: bool = False

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def environment(self) -> str:
        return f"TIDELOG_{self.attribute.upper()}"

    @property
    def valid_words(self) -> str:
        """What a person may write: the type, narrowed by the condition."""
        kind = _KINDS[self.type]
        return f"{kind} {self.valid.words}" if self.valid else kind

    def parse(self, text: str) -> Value:
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self._refusal(text) from None
        if self.valid is not None and not self.valid.holds(value):
            raise self._refusal(text)
        return frozenset(value) if isinstance(self.default, frozenset) and isinstance(value, tuple) else value

    def _refusal(self, text: str) -> InvalidConfig:
        shown = "(hidden)" if self.sensitive else repr(text)
        return InvalidConfig(f"{self.name}={shown} is not valid: expected {self.valid_words}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _bounded(limit: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if "_" in text or not -limit - 1 <= value <= limit:  # int() reads 1_000; Kafka does not
            raise ValueError(text)
        return value

    return parse


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: Final[Mapping[ConfigType, Callable[[str], Value]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _bounded(INT_MAX),
    ConfigType.LONG: _bounded(LONG_MAX),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _list,
}


_KINDS: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a comma-separated list",
}


def render(value: Value) -> str | None:
    """The text Kafka's tools print for a value; what `Setting.parse` reads back."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case frozenset():
            return ",".join(sorted(value))
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


# Conditions ------------------------------------------------------------------------------------------------------


def at_least(low: float) -> Valid:
    return Valid(f"at least {low}", lambda value: bool(value >= low))


def between(low: float, high: float) -> Valid:
    return Valid(f"between {low} and {high}", lambda value: bool(low <= value <= high))


def one_of(*words: str) -> Valid:
    return Valid("one of " + ", ".join(words), lambda value: value in words)


def some_of(*words: str) -> Valid:
    return Valid("of " + ", ".join(words), lambda value: bool(value) and set(value) <= set(words))


def partitions_of_brokers() -> Valid:
    shape = re.compile(r"\d+:\d+|\*")
    return Valid("of partition:broker, or *", lambda value: all(shape.fullmatch(each) for each in value))


def gzip_level() -> Valid:
    return Valid("between 1 and 9, or -1 for the codec's default", lambda value: value == -1 or 1 <= value <= 9)


# Rows: each returns a dataclass field, typed Any so that the attribute's own annotation rules ---------------------


def _row(type_: ConfigType, default: Value, doc: str, valid: Valid | None, **more: Any) -> Any:
    setting = Setting(type=type_, default=default, doc=" ".join(doc.split()), valid=valid, **more)
    return field(default=default, metadata={"setting": setting})


def boolean(default: bool, doc: str, **more: Any) -> Any:
    return _row(ConfigType.BOOLEAN, default, doc, None, **more)


def string(default: str | None, doc: str, valid: Valid | None = None, **more: Any) -> Any:
    return _row(ConfigType.STRING, default, doc, valid, **more)


def integer(default: int | None, doc: str, valid: Valid | None = None, **more: Any) -> Any:
    return _row(ConfigType.INT, default, doc, valid, **more)


def long(default: int | None, doc: str, valid: Valid | None = None, **more: Any) -> Any:
    return _row(ConfigType.LONG, default, doc, valid, **more)


def double(default: float, doc: str, valid: Valid | None = None, **more: Any) -> Any:
    return _row(ConfigType.DOUBLE, default, doc, valid, **more)


def list_of(default: tuple[str, ...] | frozenset[str] | None, doc: str, valid: Valid | None = None, **more: Any) -> Any:
    return _row(ConfigType.LIST, default, doc, valid, **more)


# Tables ----------------------------------------------------------------------------------------------------------


def table(config: type) -> dict[str, Setting]:
    """The settings of a config class by Kafka's name, in alphabetical order."""
    rows = [
        msgspec.structs.replace(row.metadata["setting"], name=row.name.replace("_", "."))
        for row in fields(config)
        if "setting" in row.metadata
    ]
    return {row.name: row for row in sorted(rows, key=lambda row: row.name)}


def unknown(name: str, known: Mapping[str, Setting], what: str) -> InvalidConfig:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "`tidelog config list` shows all of them"
    return InvalidConfig(f"unknown {what} setting {name}: {hint}")
