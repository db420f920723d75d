"""Records whose values are JSON, opened for pipelines that need something of them.

To the columns of the log come `_fields`, what the value says; `_time`, the time of the event; and `_rejected`: why the
record is of no use, null if it is.
"""

import difflib
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.values import UNPARSED

FIELDS, TIME, REJECTED = "_fields", "_time", "_rejected"
KEY: Final = "key"
"""Names the record's key among fields."""
DEAD_LETTERS: Final = "dead_letters"
"""What a query counts of rejected records, as Spark's progress calls it."""
OBSERVED: Final = "tidelog"
_SECONDS_MAX: Final = 100_000_000_000
_MILLISECONDS_MAX: Final = 10_000_000_000_000_000


def opened(
    rows: DataFrame,
    schema: StructType | None,
    *,
    event_time: str | None = None,
    needed: Sequence[str] = (),
    tombstones: bool = False,
) -> DataFrame:
    """`needed` names what may not be null. Without a schema, values stay closed and only the key can be needed."""
    reasons: list[tuple[Column, str]] = []
    frame = rows
    if schema is not None:
        frame = frame.withColumn(FIELDS, _parsed(schema))
        if not tombstones:
            reasons.append((F.col("value").isNull(), "the value is null"))
        reasons.append((is_unparsed(), "the value is not JSON of the schema"))
    known = schema or StructType()
    if event_time is None:
        frame = frame.withColumn(TIME, F.col("timestamp"))
    else:
        frame = frame.withColumn(TIME, time_of(known, event_time))
        reasons.append((F.col(TIME).isNull(), f"{event_time} is missing or no time"))
    reasons += [(field(known, name, "--on")[0].isNull(), f"{name} is missing") for name in needed]
    return frame.withColumn(REJECTED, _first(reasons))


def useful(frame: DataFrame, name: str = OBSERVED) -> DataFrame:
    """The records that are not rejected; the others are counted in the query's progress, under `name`."""
    counted = frame.observe(name, F.count(REJECTED).alias(DEAD_LETTERS))
    return counted.where(F.col(REJECTED).isNull()).drop(REJECTED)


def field(schema: StructType, name: str, option: str) -> tuple[Column, DataType]:
    """A field of the value by its path (`customer.id`), or the record's key."""
    kind = kind_of(schema, name, option)
    if name == KEY:
        return F.col(KEY).cast("string"), kind
    return F.col(".".join(f"`{part}`" for part in (FIELDS, *name.split(".")))), kind


def kind_of(schema: StructType, name: str, option: str) -> DataType:
    if name == KEY:
        return StringType()
    found: DataType = schema
    for part in name.split("."):
        inner = found.fieldNames() if isinstance(found, StructType) else []
        if part not in inner:
            raise InvalidOption(f"{option} {name}: no such field; {_instead(part, inner)}")
        assert isinstance(found, StructType)
        found = found[part].dataType
    return found


def time_of(schema: StructType, name: str) -> Column:
    """Text and timestamps as they say; numbers are seconds or milliseconds since 1970, as their size tells."""
    of, kind = field(schema, name, "--event-time")
    return as_time(of, kind, name)


def as_time(of: Column, kind: DataType, name: str) -> Column:
    if isinstance(kind, StringType):
        return of.try_cast("timestamp")
    if isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
        return of.cast("timestamp")
    if isinstance(kind, NumericType):
        size = F.abs(of)
        return (
            F.when(size < _SECONDS_MAX, F.timestamp_seconds(of))
            .when(size < _MILLISECONDS_MAX, F.timestamp_millis(of.cast("bigint")))
            .otherwise(F.lit(None))
        )
    raise InvalidOption(f"--event-time {name} is of type {kind.simpleString()}, which is no time")


def is_comparable(kind: DataType) -> bool:
    """Whether records can be told apart, grouped or joined by it."""
    return isinstance(kind, (StringType, NumericType, BinaryType, DateType, TimestampType, TimestampNTZType)) or (
        kind.simpleString() == "boolean"
    )


def comparable(schema: StructType, name: str, option: str) -> tuple[Column, DataType]:
    kind = kind_of(schema, name, option)
    if not is_comparable(kind):
        raise InvalidOption(f"{option} {name} is of type {kind.simpleString()}; name a field within it")
    return field(schema, name, option)


def _parsed(schema: StructType) -> Column:
    whole = StructType([*schema.fields, StructField(UNPARSED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNPARSED}
    return F.from_json(F.col("value").cast("string"), whole, options)


def is_unparsed() -> Column:
    """An empty text parses to nothing, without a word."""
    return F.col("value").isNotNull() & (F.col(FIELDS).isNull() | F.col(f"{FIELDS}.{UNPARSED}").isNotNull())


def _first(reasons: Sequence[tuple[Column, str]]) -> Column:
    chosen: Column | None = None
    for holds, reason in reasons:
        chosen = F.when(holds, reason) if chosen is None else chosen.when(holds, reason)
    return (F.lit(None) if chosen is None else chosen).cast("string")


def _instead(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(known)}" if known else "the value has none"
