"""`join`: events of two topics that belong together, by a field, within a time of each other.

Both sides are remembered for as long as a partner may still come. With `how=left` an event of the left topic that found
none is told with null, when the watermark says that none can come any more.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.durations import milliseconds
from tidelog.spark.pipelines.fields import FIELDS, OBSERVED, TIME, comparable, opened, useful
from tidelog.spark.pipelines.files import DAY
from tidelog.spark.pipelines.reading import read
from tidelog.spark.pipelines.running import Queries
from tidelog.spark.pipelines.targets import LAKE
from tidelog.spark.pipelines.work import Work, beside, marked, settled, write

HOW = ("inner", "left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Work):
    """`topic`, `schema`, `on` and `event_time` are of the left side. Without others, the right has the same names."""

    right: str
    on: str
    on_right: str | None = None
    within: str = "10 minutes"
    how: str = "inner"
    schema_right: str | None = None
    event_time_right: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return self.topic, self.right

    def check(self) -> None:
        Work.check(self)
        milliseconds(self.within, "--within", least=0)
        if self.topic == self.right:
            raise InvalidOption(f"{self.topic} cannot be joined with itself; two topics are needed")
        if self.how not in HOW:
            raise InvalidOption(f"--how is {self.how!r}; it may be {' or '.join(HOW)}")


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    topic: str
    on: str
    event_time: str | None
    schema: StructType

    def opened(self, rows: DataFrame) -> DataFrame:
        return opened(rows, self.schema, event_time=self.event_time, needed=(self.on,))

    def rows(self, spark: SparkSession, wanted: Join) -> tuple[DataFrame, DataType]:
        """`left` or `right`: the event; and its time and partner's field, named after the side."""
        of, kind = comparable(self.schema, self.on, "--on")
        event = F.struct(*(F.col(f"{FIELDS}.`{each}`").alias(each) for each in self.schema.fieldNames()))
        frame = self.opened(read(spark, wanted, self.topic))
        marks = marked(useful(frame, f"{OBSERVED}_{self.name}"), wanted)
        return marks.select(
            of.alias(f"{self.name}_on"), F.col(TIME).alias(f"{self.name}_time"), event.alias(self.name)
        ), kind


def join(spark: SparkSession, wanted: Join) -> Queries:
    wanted.check()
    left = _side(spark, wanted, "left", wanted.topic, wanted.on, wanted.event_time, wanted.schema)
    right = _side(
        spark,
        wanted,
        "right",
        wanted.right,
        wanted.on_right or wanted.on,
        wanted.event_time_right or wanted.event_time,
        wanted.schema_right,
    )
    pairs = _paired(spark, left, right, wanted)
    if wanted.to.kind == LAKE:
        out = pairs.select(F.col("left_on").alias("on"), "left", "right", F.to_date("left_time").alias(DAY))
    else:
        pair = F.to_json(F.struct("left", "right"), {"ignoreNullFields": "false"})
        out = pairs.select(F.col("left_on").cast("string").alias("key"), pair.alias("value"))
    rejected = beside(spark, wanted, {each.topic: each.opened for each in (left, right)})
    return Queries(write(out, wanted, f"join {wanted.topic} {wanted.right}"), rejected)


def _side(
    spark: SparkSession, wanted: Join, name: str, topic: str, on: str, event_time: str | None, schema: str | None
) -> _Side:
    said = wanted.told(right=wanted.right, on=on, how=wanted.how, within=wanted.within)
    known = settled(spark, wanted, said | {"event_time": event_time}, topic=topic, schema=schema, file=f"{name}.json")
    return _Side(name, topic, on, event_time, known or StructType())


def _paired(spark: SparkSession, left: _Side, right: _Side, wanted: Join) -> DataFrame:
    (lefts, left_kind), (rights, right_kind) = left.rows(spark, wanted), right.rows(spark, wanted)
    length = F.expr(f"interval '{milliseconds(wanted.within, '--within', least=0) / 1000}' second")
    near = F.col("right_time").between(F.col("left_time") - length, F.col("left_time") + length)
    how = "left_outer" if wanted.how == "left" else "inner"
    return lefts.join(rights, _same(left_kind, right_kind) & near, how)


def _same(left: DataType, right: DataType) -> Column:
    """Numbers compare as numbers; a number and a text as texts: 7 is "7"."""
    sides = F.col("left_on"), F.col("right_on")
    if left == right or (isinstance(left, NumericType) and isinstance(right, NumericType)):
        return sides[0] == sides[1]
    return sides[0].cast("string") == sides[1].cast("string")
