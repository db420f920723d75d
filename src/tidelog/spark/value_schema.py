"""The Spark type of a decoded `value` column, from `value.schema`: DDL for JSON, an Avro schema for Avro."""

import json
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.ddl import parse_ddl

_JSON_TYPES: Final = (
    StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DateType, TimestampType,
)  # fmt: skip
_AVRO_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_AVRO_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}


def value_type(value_format: str, schema: str | None) -> DataType | None:
    """None where bytes stay bytes."""
    if value_format == "raw":
        if schema is not None:
            raise InvalidOption("value.schema is given, but value.format is raw: set value.format to json or avro")
        return None
    if value_format == "string":
        return StringType()
    if not schema:
        shape = "DDL like 'id BIGINT, item STRING'" if value_format == "json" else "an Avro schema in JSON"
        raise InvalidOption(f"value.format={value_format} needs value.schema: {shape}")
    return _from_ddl(schema) if value_format == "json" else from_avro(schema)


def _from_ddl(text: str) -> DataType:
    try:
        found = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else parse_ddl(text)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(f"value.schema {text!r} cannot be read: {error}") from None
    _check_json(found, "value")
    return found


def _check_json(kind: DataType, path: str) -> None:
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_json(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        _check_json(kind.elementType, f"{path}[]")
    elif not isinstance(kind, _JSON_TYPES):
        raise InvalidOption(
            f"value.schema: {path} is of type {kind.simpleString()}, which value.format=json cannot give; make it a "
            "string here, or leave value.format away and use from_json"
        )


def from_avro(text: str) -> DataType:
    try:
        return _avro(json.loads(text), {})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(f"value.schema is no Avro schema that can be read: {error}") from None


def _avro(schema: Any, named: dict[str, DataType]) -> DataType:
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        return _AVRO_TYPES[schema]
    if isinstance(schema, list):
        options = [branch for branch in schema if branch != "null"]
        if len(options) != 1:
            raise ValueError(f"a union of {len(options)} types has no column type")
        return _avro(options[0], named)
    if schema.get("logicalType") in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[schema["logicalType"]]
    kind = schema["type"]
    if kind == "record":
        return StructType([StructField(field["name"], _avro(field["type"], named)) for field in schema["fields"]])
    if kind == "array":
        return ArrayType(_avro(schema["items"], named))
    if kind == "map":
        return MapType(StringType(), _avro(schema["values"], named))
    found = _avro(kind, named) if not isinstance(kind, str) else _AVRO_TYPES[kind]
    if "name" in schema:
        named[schema["name"]] = found
    return found
