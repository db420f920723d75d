"""The columns of Spark's Kafka source, by the same names and types."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.spark.bounds import InvalidOption

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}


def full_schema(include_headers: bool) -> StructType:
    fields = [StructField(name, kind) for name, kind in COLUMNS.items()]
    return StructType([*fields, StructField("headers", HEADERS)] if include_headers else fields)


def check_schema(schema: StructType) -> list[str]:
    """The columns a user's own schema asks for; fewer columns are decoded and sent, which is much faster."""
    known = COLUMNS | {"headers": HEADERS}
    for field in schema.fields:
        if field.name not in known:
            raise InvalidOption(f"the tidelog source has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            expected, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise InvalidOption(f"column {field.name} is of type {expected}, not {given}; cast it after loading")
        if not field.nullable:
            raise InvalidOption(f"column {field.name} must be nullable in the schema")
    return [field.name for field in schema.fields]
