"""Pipelines from topic to topic, exactly once: `replay` copies a stretch of history, `route` divides a topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.dead_letters import provenance, with_headers
from tidelog.spark.pipelines.reading import read, sample_options
from tidelog.spark.pipelines.targets import to_topic
from tidelog.spark.pipelines.values import UNPARSED, Values, columns, infer_schema, schema_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is common to all of them. `bootstrap_servers_to` is another cluster to write to, if it is another."""

    topic: str
    bootstrap_servers: str
    checkpoint: Path
    bootstrap_servers_to: str | None = None
    starting: str = "earliest"
    starting_timestamp: int | None = None
    isolation: str = "read_committed"
    offsets_per_trigger: int = 1_000_000
    compression: str = "none"
    group: str | None = None


def replay(
    spark: SparkSession, wanted: Route, to: str, *, until_timestamp: int | None = None, keep_time: bool = True
) -> DataStreamWriter:
    """Records as they were, with headers that say where they come from; none of `until_timestamp` or younger."""
    if to == wanted.topic and wanted.bootstrap_servers_to is None:
        raise InvalidOption(f"{to} would be replayed into itself, without end")
    rows = read(spark, wanted, wanted.topic, in_order=True)
    if until_timestamp is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(until_timestamp)))
    chosen = [F.col("key"), F.col("value"), with_headers(*provenance()).alias("headers")]
    if keep_time:
        chosen.append(F.col("timestamp"))
    return _write(rows.select(*chosen), wanted, f"replay {wanted.topic}", to)


def route(
    spark: SparkSession,
    wanted: Route,
    rules: Mapping[str, str],
    *,
    otherwise: str | None = None,
    value: str = "string",
    schema: str | None = None,
) -> DataStreamWriter:
    """Every record to the topic of the first rule that holds for it; without one, to `otherwise` or nowhere.

    A rule is a condition in SQL over key, value, headers, partition, offset, timestamp and, for JSON, the fields.
    """
    if not rules:
        raise InvalidOption("no rule is given")
    if wanted.topic in (*rules, otherwise) and wanted.bootstrap_servers_to is None:
        raise InvalidOption(f"{wanted.topic} cannot be routed into itself")
    rows = read(spark, wanted, wanted.topic, in_order=True)
    seen = _fields(spark, rows, wanted, value, schema)
    target: Column | None = None
    for topic, condition in rules.items():
        holds = F.coalesce(F.expr(condition), F.lit(False))
        target = F.when(holds, F.lit(topic)) if target is None else target.when(holds, F.lit(topic))
    assert target is not None
    chosen = seen.withColumn("topic", target.otherwise(F.lit(otherwise))).where(F.col("topic").isNotNull())
    kept = chosen.select(
        *(F.col(f"_record.{name}").alias(name) for name in ("key", "value", "headers", "timestamp")), "topic"
    )
    return _write(kept, wanted, f"route {wanted.topic}", None)


def _fields(spark: SparkSession, rows: DataFrame, wanted: Route, value: str, schema: str | None) -> DataFrame:
    """The rows with everything a rule may name, and the record itself as `_record`."""
    record = F.struct("key", "value", "headers", "timestamp").alias("_record")
    if value != "json":
        return rows.select(record, *(F.col(name).cast("string").alias(name) for name in ("key", "value")), *_log(rows))
    source = sample_options(wanted, wanted.topic)
    given = schema_from(schema) if schema is not None else infer_schema(spark, source)
    with_record = rows.withColumn("_record", F.struct("key", "value", "headers", "timestamp"))
    parsed = columns(with_record, Values("json", given)).withColumnRenamed("__record", "_record")
    names = {f"_{name}": name for name in ("key", "partition", "offset", "timestamp", "headers")}
    taken = set(given.fieldNames())
    for long, short in names.items():
        parsed = parsed.withColumn(short, F.col(long)) if short not in taken else parsed
    return parsed.drop(UNPARSED) if UNPARSED not in taken else parsed


def _log(rows: DataFrame) -> list[Column]:
    return [F.col(name) for name in rows.columns if name not in ("key", "value", "topic")]


def _write(frame: DataFrame, wanted: Route, name: str, to: str | None) -> DataStreamWriter:
    return to_topic(
        frame,
        to,
        bootstrap_servers=wanted.bootstrap_servers_to or wanted.bootstrap_servers,
        checkpoint=wanted.checkpoint,
        name=name,
        compression=wanted.compression,
    )
