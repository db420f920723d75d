"""The columns of Spark's Kafka source, by the same names and types.

One thing is said that Spark's own does not say: which columns are never null. Spark then asks no row for that, and the
asking was a third of what a row cost it.
"""

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
from tidelog.spark.options import SourceOptions
from tidelog.spark.value_schema import value_type

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
NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def full_schema(include_headers: bool = False, decoded: DataType | None = None) -> StructType:
    """All columns in the order of Spark's Kafka source; `decoded` is the type of `value` if it is not left as bytes."""
    columns = _columns(include_headers, decoded)
    return StructType([StructField(name, kind, name not in NEVER_NULL) for name, kind in columns.items()])


def _columns(include_headers: bool, decoded: DataType | None) -> dict[str, DataType]:
    found = COLUMNS | ({"headers": HEADERS} if include_headers else {})
    return found if decoded is None else found | {"value": decoded, "_error": StringType(), "_raw": BinaryType()}


def check_schema(schema: StructType, options: SourceOptions) -> dict[str, bool]:
    """The columns a user's own schema asks for, and whether it takes nulls in them. Fewer columns are decoded and sent,
    which is much faster."""
    known = _columns(True, value_type(options.value_format, options.value_schema))
    for field in schema.fields:
        if field.name not in known:
            raise InvalidOption(f"the tidelog source has no column {field.name}; it has {', '.join(known)}")
        if field.dataType != known[field.name]:
            expected, given = known[field.name].simpleString(), field.dataType.simpleString()
            raise InvalidOption(f"column {field.name} is of type {expected}, not {given}; cast it after loading")
        if not field.nullable and field.name not in NEVER_NULL:
            raise InvalidOption(f"column {field.name} must be nullable in the schema")
    return {field.name: field.nullable for field in schema.fields}
