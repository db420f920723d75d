"""`dedup`: of records that are the same in a field or by their key, the first; the others are left out.

Sameness is remembered for as long as the watermark says: a duplicate that comes later than that passes. What passes
to a topic is in the order that the log had it, key by key.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelog.spark.pipelines.fields import FIELDS, KEY, TIME, comparable, opened, useful
from tidelog.spark.pipelines.files import DAY
from tidelog.spark.pipelines.ordering import in_order
from tidelog.spark.pipelines.reading import read
from tidelog.spark.pipelines.running import Queries
from tidelog.spark.pipelines.targets import LAKE
from tidelog.spark.pipelines.values import UNPARSED, Values, columns
from tidelog.spark.pipelines.work import Work, beside, marked, settled, write


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup(Work):
    """`on` names fields of the JSON value, or `key`."""

    on: tuple[str, ...] = (KEY,)

    @property
    def typed(self) -> bool:
        """Whether values must be opened at all."""
        return self.on != (KEY,) or self.event_time is not None or self.schema is not None


def dedup(spark: SparkSession, wanted: Dedup) -> Queries:
    wanted.check()
    said = wanted.told(on=list(wanted.on))
    schema = settled(spark, wanted, said, schema=wanted.schema, typed=wanted.typed)
    needed = tuple(dict.fromkeys(wanted.on))

    def open_rows(rows: DataFrame) -> DataFrame:
        return opened(rows, schema, event_time=wanted.event_time, needed=needed, tombstones=needed == (KEY,))

    frame = open_rows(read(spark, wanted, wanted.topic, in_order=True))
    same = {}
    for number, name in enumerate(needed):
        same[f"_on_{number}"] = comparable(schema or StructType(), name, "--on")[0]
    first = marked(useful(frame).withColumns(same), wanted).dropDuplicatesWithinWatermark(list(same)).drop(*same)
    name = f"dedup {wanted.topic}"
    if wanted.to.kind == LAKE:
        values = Values("json", schema) if schema is not None else Values("string")
        out = columns(first.drop(FIELDS, TIME), values).drop(UNPARSED)
        out = out.withColumn(DAY, F.to_date("_timestamp" if schema is not None else "timestamp"))
    else:
        # Records of a key differ in what they are compared by, which has scattered them.
        out = in_order(first.select("key", "value", "headers", "timestamp", "partition", "offset"))
    return Queries(write(out, wanted, name), beside(spark, wanted, {wanted.topic: open_rows}))
