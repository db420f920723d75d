"""`archive`: a topic kept as Parquet files or a Delta table, divided by the day of the event, each record once.

The directory holds everything: the files, the checkpoint and what the archive was told (`_tidelog/archive.json`), so it
can be moved, and a later run goes on where the last one was.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.commits import STATE
from tidelog.spark.pipelines.dead_letters import dead_letters
from tidelog.spark.pipelines.fields import DEAD_LETTERS, OBSERVED, as_time, opened
from tidelog.spark.pipelines.files import DAY, FORMATS
from tidelog.spark.pipelines.reading import read, sample_options
from tidelog.spark.pipelines.settling import settle
from tidelog.spark.pipelines.targets import to_lake
from tidelog.spark.pipelines.values import UNPARSED, Values, columns, infer_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    topic: str
    to: Path
    bootstrap_servers: str
    format: str = "parquet"
    value: str = "string"
    schema: str | None = None
    event_time: str | None = None
    starting: str = "earliest"
    starting_timestamp: int | None = None
    isolation: str = "read_committed"
    target_file_mb: float = 128.0
    compression: str = "zstd"
    offsets_per_trigger: int = 5_000_000
    group: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.to / STATE / "checkpoint"


def archive(spark: SparkSession, wanted: Archive) -> DataStreamWriter:
    """The query, ready to be given a trigger and started."""
    if wanted.format not in FORMATS:
        raise InvalidOption(f"format is {wanted.format!r}; it may be {' or '.join(FORMATS)}")
    values = _settle(spark, wanted)
    frame = _with_day(columns(read(spark, wanted, wanted.topic), values), wanted, values)
    if values.kind == "json":
        frame = frame.observe(OBSERVED, F.count(UNPARSED).alias(DEAD_LETTERS))
    return to_lake(
        frame,
        wanted.to,
        format=wanted.format,
        checkpoint=wanted.checkpoint,
        name=f"archive {wanted.topic}",
        target_file_mb=wanted.target_file_mb,
        compression=wanted.compression,
    )


def archive_dead_letters(spark: SparkSession, wanted: Archive, topic: str) -> DataStreamWriter:
    """A query beside the archive's: values that do not parse, in a topic. In the archive they are in `_unparsed`."""
    values = _settle(spark, wanted)
    if values.schema is None:
        raise InvalidOption(f"--dead-letter is for --value json: as {values.kind}, every value is one")
    frame = opened(read(spark, replace(wanted, group=None), wanted.topic), values.schema, tombstones=True)
    return dead_letters(
        frame,
        topic,
        source=wanted.topic,
        bootstrap_servers=wanted.bootstrap_servers,
        checkpoint=wanted.to / STATE / "dead-letters" / wanted.topic,
    )


def _with_day(frame: DataFrame, wanted: Archive, values: Values) -> DataFrame:
    if wanted.event_time is None:
        time = "_timestamp" if values.kind == "json" else "timestamp"
        return frame.withColumn(DAY, F.to_date(F.col(time)))
    if values.schema is None or wanted.event_time not in values.schema.fieldNames():
        raise InvalidOption(f"--event-time {wanted.event_time}: no such field; it names one of the JSON schema")
    # A time that is missing or none puts the record under the day the log received it: it must lie somewhere.
    name = wanted.event_time
    time_of = as_time(F.col(f"`{name}`"), values.schema[name].dataType, name)
    return frame.withColumn(DAY, F.coalesce(F.to_date(time_of), F.to_date(F.col("_timestamp"))))


def _settle(spark: SparkSession, wanted: Archive) -> Values:
    said = {
        "topic": wanted.topic,
        "format": wanted.format,
        "value": wanted.value,
        "event_time": wanted.event_time,
    }
    infer = (lambda: infer_schema(spark, sample_options(wanted, wanted.topic))) if wanted.value == "json" else None
    path = wanted.to / STATE / "archive.json"
    return Values(wanted.value, settle(path, str(wanted.to), said, schema=wanted.schema, infer=infer))
