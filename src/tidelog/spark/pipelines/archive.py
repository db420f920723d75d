"""`archive`: a topic kept as Parquet files or a Delta table, divided by the day of the event, each record once.

The directory holds everything: the files, the checkpoint and what the archive was told (`_tidelog/archive.json`), so it
can be moved, and a later run goes on where the last one was.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.archive_sink import FORMATS, NAME, ArchiveDataSource
from tidelog.spark.pipelines.commits import STATE
from tidelog.spark.pipelines.files import DAY
from tidelog.spark.pipelines.values import Values, columns, infer_schema, schema_from


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
    spark.dataSource.register(ArchiveDataSource)
    values = _settle(spark, wanted)
    rows = spark.readStream.format("tidelog").options(**_source(wanted, streaming=True)).load()
    frame = _with_day(rows, columns(rows, values), wanted, values)
    # As many files as there are cores, not as many as there are slices of the log.
    frame = frame.coalesce(max(1, spark.sparkContext.defaultParallelism))
    writer = frame.writeStream.format(NAME).queryName(f"archive {wanted.topic}")
    return (
        writer.option("path", str(wanted.to.absolute()))
        .option("archive.format", wanted.format)
        .option("target.file.mb", str(wanted.target_file_mb))
        .option("compression", wanted.compression)
        .option("checkpointLocation", str(wanted.checkpoint.absolute()))
    )


def _source(wanted: Archive, *, streaming: bool) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": wanted.bootstrap_servers,
        "subscribe": wanted.topic,
        "kafka.isolation.level": wanted.isolation,
    }
    if not streaming:
        return options
    options |= {"includeHeaders": "true", "maxOffsetsPerTrigger": str(wanted.offsets_per_trigger)}
    if wanted.starting_timestamp is not None:
        options["startingTimestamp"] = str(wanted.starting_timestamp)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = wanted.starting
    if wanted.group:
        options["kafka.group.id"] = wanted.group
    return options


def _with_day(rows: DataFrame, frame: DataFrame, wanted: Archive, values: Values) -> DataFrame:
    if wanted.event_time is None:
        time = "_timestamp" if values.kind == "json" else "timestamp"
        return frame.withColumn(DAY, F.to_date(F.col(time)))
    if values.kind != "json" or wanted.event_time not in frame.columns:
        raise InvalidOption(f"--event-time {wanted.event_time}: no such field; it names one of the JSON schema")
    # A time that is missing or none puts the record under the day the log received it: it must lie somewhere.
    return frame.withColumn(
        DAY,
        F.coalesce(F.to_date(F.expr(f"try_cast(`{wanted.event_time}` as timestamp)")), F.to_date(F.col("_timestamp"))),
    )


def _settle(spark: SparkSession, wanted: Archive) -> Values:
    """What values are taken for: as the archive was told when it was begun, which a later run must not contradict.
    Files with other columns, or days by another clock, do not mix."""
    path = wanted.to / STATE / "archive.json"
    said: dict[str, Any] = {
        "topic": wanted.topic,
        "format": wanted.format,
        "value": wanted.value,
        "event_time": wanted.event_time,
    }
    given = schema_from(wanted.schema) if wanted.schema is not None else None
    if path.exists():
        known = json.loads(path.read_text())
        for name, value in said.items():
            if known[name] != value:
                raise InvalidOption(
                    f"{wanted.to} was begun with {name} {known[name]}, not {value}; use another directory for that"
                )
        schema = StructType.fromJson(known["schema"]) if known["schema"] is not None else None
        if given is not None and given != schema:
            raise InvalidOption(f"{wanted.to} was begun with another schema; use another directory for this one")
        return Values(wanted.value, schema)
    schema = given
    if wanted.value == "json" and schema is None:
        schema = infer_schema(spark, _source(wanted, streaming=False))
    values = Values(wanted.value, schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({**said, "schema": None if schema is None else schema.jsonValue()}))
    draft.rename(path)
    return values
