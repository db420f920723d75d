"""`aggregate`: sums, counts and the like of a topic's JSON values, by window of event time and by fields.

In append mode a window is told once, when the watermark has passed its end; in update mode every time it changes. A
Python sink has no update mode, so that one goes batch by batch: a batch that is repeated after a crash tells the same
rows again, under the same keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.durations import interval, milliseconds
from tidelog.spark.pipelines.fields import TIME, comparable, opened, useful
from tidelog.spark.pipelines.files import DAY
from tidelog.spark.pipelines.measures import Measure, parse_measures
from tidelog.spark.pipelines.reading import read
from tidelog.spark.pipelines.running import Queries
from tidelog.spark.pipelines.targets import CONSOLE, LAKE
from tidelog.spark.pipelines.work import Work, beside, marked, settled, write

APPEND, UPDATE = "append", "update"
START, END, GROUP = "window_start", "window_end", "_group"
_JSON: Final = {"ignoreNullFields": "false"}
Show = Callable[[list[dict[str, Any]]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Work):
    """`by` names fields, or `key`; `measures` are written as in SQL; `slide` makes windows overlap."""

    by: tuple[str, ...] = ()
    window: str = "1 minute"
    slide: str | None = None
    measures: tuple[str, ...] = ("count(*)",)
    mode: str = APPEND

    def check(self) -> None:
        Work.check(self)
        length = milliseconds(self.window, "--window")
        if self.slide is not None and milliseconds(self.slide, "--slide") > length:
            raise InvalidOption(
                f"--slide {self.slide!r} is longer than --window {self.window!r}: events would fall out"
            )
        if self.mode not in (APPEND, UPDATE):
            raise InvalidOption(f"mode is {self.mode!r}; it may be {APPEND} or {UPDATE}")
        if self.mode == UPDATE and self.to.kind == LAKE and self.format != "delta":
            raise InvalidOption("--mode update needs --format delta: rows of Parquet files cannot change")
        taken = [START, END]
        for name in [*(column_name(each) for each in self.by), *(each.name for each in parse_measures(self.measures))]:
            if name in taken:
                raise InvalidOption(f"two columns would be called {name}; name a measure with 'sum(amount) as total'")
            taken.append(name)


def column_name(field: str) -> str:
    return field.replace(".", "_")


def aggregate(spark: SparkSession, wanted: Aggregate, show: Show | None = None) -> Queries:
    """`show` is given the rows that changed, when they go to the console."""
    wanted.check()
    said = wanted.told(
        by=list(wanted.by), window=wanted.window, slide=wanted.slide, measures=list(wanted.measures), mode=wanted.mode
    )
    schema = settled(spark, wanted, said, schema=wanted.schema) or StructType()

    def open_rows(rows: DataFrame) -> DataFrame:
        return opened(rows, schema, event_time=wanted.event_time)

    frame = useful(open_rows(read(spark, wanted, wanted.topic)))
    results = windows(marked(frame, wanted), schema, wanted, parse_measures(wanted.measures))
    rejected = beside(spark, wanted, {wanted.topic: open_rows})
    return Queries(_writer(results, wanted, show), rejected)


def windows(frame: DataFrame, schema: StructType, wanted: Aggregate, measures: tuple[Measure, ...]) -> DataFrame:
    """A row for every window and group: its times, the fields, the measures."""
    length = interval(milliseconds(wanted.window, "--window"))
    slide = interval(milliseconds(wanted.slide, "--slide")) if wanted.slide is not None else None
    groups = [comparable(schema, name, "--by")[0].alias(column_name(name)) for name in wanted.by]
    grouped = frame.groupBy(F.window(TIME, length, slide).alias("_window"), *groups)
    found = grouped.agg(*(measure.column(schema) for measure in measures))
    times = (F.col("_window.start").alias(START), F.col("_window.end").alias(END))
    return found.select(*times, *(name for name in found.columns if name != "_window"))


def _writer(results: DataFrame, wanted: Aggregate, show: Show | None) -> DataStreamWriter:
    name = f"aggregate {wanted.topic}"
    if wanted.to.kind == CONSOLE:
        if show is None:
            raise InvalidOption("the console shows nothing of this kind")
        return _batches(results, wanted, name, lambda batch, _: show([row.asDict() for row in batch.collect()]))
    if wanted.to.kind == LAKE:
        if wanted.mode == UPDATE:
            return _batches(results, wanted, name, _merger(wanted))
        return write(results.withColumn(DAY, F.to_date(START)), wanted, name)
    records = results.select(group(wanted).alias("key"), F.to_json(F.struct("*"), _JSON).alias("value"))
    if wanted.mode == UPDATE:
        return _batches(records, wanted, name, _teller(wanted))
    return write(records, wanted, name)


def group(wanted: Aggregate) -> Column:
    """Names a row: the fields it is of, and its window."""
    return F.to_json(F.struct(*(F.col(column_name(each)) for each in wanted.by), F.col(START)), _JSON)


def _batches(
    frame: DataFrame, wanted: Aggregate, name: str, work: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    writer = frame.writeStream.queryName(name).outputMode(UPDATE).foreachBatch(work)
    return writer.option("checkpointLocation", str(wanted.checkpoint.absolute()))


def _teller(wanted: Aggregate) -> Callable[[DataFrame, int], None]:
    def tell(batch: DataFrame, _: int) -> None:
        writer = batch.write.format("tidelog").mode("append").option("topic", wanted.to.name)
        # All rows of the batch appear together, or none.
        writer.option("kafka.bootstrap.servers", wanted.servers_to).option("delivery", "exactly-once").save()

    return tell


def _merger(wanted: Aggregate) -> Callable[[DataFrame, int], None]:
    from tidelog.spark.pipelines.view import DELETED, merge_once, name_of

    to = str(wanted.to.path.absolute())

    def merge(batch: DataFrame, number: int) -> None:
        changes = batch.withColumns({GROUP: group(wanted), DELETED: F.lit(False)})
        merge_once(to, name_of(batch), number, GROUP, changes.toArrow)

    return merge
