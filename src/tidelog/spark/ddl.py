"""Spark's DDL for schemas, read without Spark's JVM: workers have none.

`id BIGINT, item STRING, lines ARRAY<STRUCT<price: DOUBLE, count: INT>>`, with backticks around unusual names.
"""

import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_.]+)|([<>(),:]))")
_DEPTH_MAX: Final = 50
_SIMPLE: Final[dict[str, DataType]] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "binary": BinaryType(),
}


def parse_ddl(text: str) -> StructType:
    """Raises ValueError that says where the text stops making sense."""
    reader = _Reader(text)
    fields = reader.fields(0, end=None)
    return StructType(fields)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"{text[position:].strip()[:20]!r} is not understood")
            self._tokens.append(match[0].strip())
            position = match.end()
        self._at = 0

    def _next(self, expected: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise ValueError(f"{self._text!r} ends too early")
        token = self._tokens[self._at]
        if expected is not None and token != expected:
            raise ValueError(f"{expected!r} is expected where {token!r} stands")
        self._at += 1
        return token

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def fields(self, depth: int, end: str | None) -> list[StructField]:
        found: list[StructField] = []
        while True:
            name = self._next()
            if name in "<>(),:":
                raise ValueError(f"a column's name is expected where {name!r} stands")
            if self._peek() == ":":
                self._next()
            found.append(StructField(name.strip("`").replace("``", "`"), self.kind(depth + 1)))
            following = self._peek()
            if following == end:
                return found
            self._next(",")

    def kind(self, depth: int) -> DataType:
        if depth > _DEPTH_MAX:
            raise ValueError("types are nested too deeply")
        name = self._next().lower()
        if name == "array":
            self._next("<")
            element = self.kind(depth + 1)
            self._next(">")
            return ArrayType(element)
        if name == "map":
            self._next("<")
            key = self.kind(depth + 1)
            self._next(",")
            value = self.kind(depth + 1)
            self._next(">")
            return MapType(key, value)
        if name == "struct":
            self._next("<")
            fields = self.fields(depth + 1, end=">")
            self._next(">")
            return StructType(fields)
        if name in ("decimal", "numeric"):
            return self._decimal()
        if name not in _SIMPLE:
            raise ValueError(f"there is no type {name}")
        return _SIMPLE[name]

    def _decimal(self) -> DataType:
        if self._peek() != "(":
            return DecimalType(10, 0)
        self._next("(")
        precision = int(self._next())
        self._next(",")
        scale = int(self._next())
        self._next(")")
        return DecimalType(precision, scale)
