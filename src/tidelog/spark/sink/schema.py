"""What a frame must look like to be written, told while the query is planned.

The columns are those of Spark's Kafka sink: `value` (required), `key`, `headers`, `topic`, `partition`; and one more,
`timestamp`, for records that keep the time they had elsewhere.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.bounds import InvalidOption

_BYTES: Final = (StringType, BinaryType)
_KINDS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "key": (_BYTES, "a string or binary"),
    "value": (_BYTES, "a string or binary"),
    "topic": ((StringType,), "a string"),
    "partition": ((IntegerType,), "an integer"),
    "timestamp": ((TimestampType, TimestampNTZType), "a timestamp"),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuses, while the query is planned, a frame that cannot be written; in the words of Spark's Kafka sink."""
    fields = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in fields:
        raise InvalidOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in fields:
        raise InvalidOption(f"Required attribute 'value' not found. The columns are {', '.join(fields) or 'none'}.")
    for name, kind in fields.items():
        if name == "headers":
            if not _is_headers(kind):
                raise InvalidOption(
                    f"headers attribute type must be array<struct<key:string,value:binary>>, not {kind.simpleString()}"
                )
            continue
        if name not in _KINDS:
            raise InvalidOption(f"the tidelog sink has no column {name}; drop it, or make it part of value")
        kinds, said = _KINDS[name]
        if not isinstance(kind, kinds):
            raise InvalidOption(f"{name} attribute type must be {said}, not {kind.simpleString()}")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(part.name, type(part.dataType)) for part in kind.elementType.fields]
    return parts == [("key", StringType), ("value", BinaryType)]
