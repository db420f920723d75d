"""Several topics as one history in which no effect stands before its cause.

Records that `tidelog.causality` stamped are put in the order of their hybrid times, equal times by node; a record
without a stamp is put by its timestamp. The order is a linear extension of what happened: it invents an order for
records that have none, so each says how many others it is concurrent with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.causality.hybrid import COUNT_BITS
from tidelog.causality.stamp import BYTES_MAX, HEADER, PATTERN
from tidelog.client.cluster import READ_COMMITTED
from tidelog.ids import TopicPartition
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import parse_options
from tidelog.spark.resolve import find_partitions, find_topics, open_cluster, resolve

CONCURRENT_HEADER: Final = "tidelog.causal.concurrent"
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_SCHEMA: Final = (
    f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {_HEADERS}"
)
ORDER: Final = ("ticks", "_node", "_count", "topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`start` and `end` are options of the source, such as {"startingTimestamp": "1700000000000"}."""

    topics: tuple[str, ...]
    bootstrap_servers: str
    start: Mapping[str, str] = field(default_factory=dict)
    end: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets that are read, settled once so that every pass reads the same."""

    options: Mapping[str, str]
    records: int
    is_whole: bool  # nothing that the topics ever had lies before it


def settle(wanted: Wanted) -> Stretch:
    base = {
        "kafka.bootstrap.servers": wanted.bootstrap_servers,
        "subscribe": ",".join(wanted.topics),
        "kafka.isolation.level": "read_committed",
        "kafka.default.api.timeout.ms": str(wanted.timeout_ms),
    }
    options = parse_options(base | dict(wanted.start) | dict(wanted.end), streaming=False)
    with open_cluster(options) as cluster:
        partitions = find_partitions(find_topics(cluster, options), options)
        starts = resolve(cluster, options, partitions, options.starting, is_start=True)
        ends = resolve(cluster, options, partitions, options.ending, is_start=False)
        first = cluster.offsets(dict.fromkeys(partitions, -2), READ_COMMITTED)
    begin = {at: max(starts[at].offset, first[at].offset) for at in partitions}
    until = {at: max(ends[at].offset, begin[at]) for at in partitions}
    fixed = {"startingOffsets": _as_json(begin), "endingOffsets": _as_json(until)}
    total = sum(until[at] - begin[at] for at in partitions)
    return Stretch(base | fixed, total, all(offset == 0 for offset in begin.values()))


def _as_json(places: Mapping[TopicPartition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for at, offset in places.items():
        found.setdefault(at.topic, {})[str(at.partition)] = offset
    return json.dumps(found)


def read(spark: SparkSession, stretch: Stretch) -> DataFrame:
    """Every record with what its stamp says: `ticks`, `node`, `count`, `vector`; those are null without a stamp.
    `stamped` is false for one without, null for one whose stamp cannot be read."""
    rows = spark.read.format("tidelog").options(**stretch.options).schema(_SCHEMA).load()
    named = F.filter(F.col("headers"), lambda header: (header["key"] == HEADER) & header["value"].isNotNull())
    last = F.get(named, F.size(named) - 1)["value"]
    text = F.when(F.length(last) <= BYTES_MAX, last.cast("string"))
    rows = rows.withColumn("_raw", last).withColumn("_text", F.when(text.rlike(f"^{PATTERN}$"), text))
    parts = F.split("_text", ";")
    entries = F.transform(F.split(parts[2], ","), _entry)
    own = F.filter(F.col("_vector"), lambda entry: entry["node"] == F.col("_name"))
    nodes = F.transform(F.col("_vector"), lambda entry: entry["node"])
    rows = rows.withColumn("_name", parts[1]).withColumn("_vector", F.when(F.col("_text").isNotNull(), entries))
    good = F.coalesce((F.size(own) == 1) & (F.size(F.array_distinct(nodes)) == F.size(nodes)), F.lit(False))
    rows = rows.withColumn("_good", good)
    return rows.select(
        *("key", "value", "topic", "partition", "offset", "timestamp", "headers"),
        F.when(F.col("_good"), True).when(F.col("_raw").isNull(), False).alias("stamped"),
        F.when(F.col("_good"), F.conv(parts[0], 16, 10).cast("bigint"))
        .otherwise(F.unix_millis("timestamp") * (1 << COUNT_BITS))
        .alias("ticks"),
        F.when(F.col("_good"), F.col("_name")).alias("node"),
        F.when(F.col("_good"), F.get(own, F.lit(0))["count"]).alias("count"),
        F.when(F.col("_good"), F.col("_vector")).alias("vector"),
    )


def _entry(entry: Column) -> Column:
    pair = F.split(entry, "=")
    return F.struct(pair[0].alias("node"), pair[1].cast("bigint").alias("count"))


def history(rows: DataFrame, concurrency: DataFrame) -> DataFrame:
    """The records with `time`, `event` (node:count) and `concurrent`: with how many others; not sorted yet."""
    joined = rows.join(concurrency, ["node", "count"], "left")
    wall = F.timestamp_millis(F.shiftright("ticks", COUNT_BITS))
    return joined.select(
        *("topic", "partition", "offset", "key", "value", "timestamp", "headers"),
        F.when(F.col("stamped"), wall).otherwise(F.col("timestamp")).alias("time"),
        F.when(F.col("stamped"), F.concat_ws(":", "node", "count")).alias("event"),
        *("node", "count", "vector", "ticks", "concurrent"),
        F.coalesce("node", F.lit("")).alias("_node"),
        F.coalesce("count", F.lit(0)).alias("_count"),
    )


def to_directory(merged: DataFrame, to: Path) -> None:
    """Parquet files whose rows, file after file, are in order; `position` rises with it."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InvalidOption(f"{to} exists already; a history is written once: give a new directory")
    ordered = merged.orderBy(*ORDER).withColumn("position", F.monotonically_increasing_id())
    ordered.drop("_node", "_count", "ticks").write.mode("append").parquet(str(to.absolute()))


def to_topic(merged: DataFrame, topic: str, bootstrap_servers: str) -> None:
    """Into partition 0 by one task, since only one partition is one order; all of it or nothing is seen by readers with
    read_committed."""
    headers = F.concat(F.coalesce("headers", F.array().cast(_HEADERS)), _provenance())
    rows = merged.repartition(1).sortWithinPartitions(*ORDER)
    chosen = rows.select(
        "key", "value", headers.alias("headers"), F.col("time").alias("timestamp"), F.lit(0).alias("partition")
    )
    writer = chosen.write.format("tidelog").mode("append").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.option("topic", topic).option("delivery", "exactly-once").save()


def _provenance() -> Column:
    def header(name: str, content: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), content.cast("string").cast("binary").alias("value"))

    places = [header(f"tidelog.source.{name}", F.col(name)) for name in ("topic", "partition", "offset")]
    concurrent = header(CONCURRENT_HEADER, F.coalesce(F.col("concurrent"), F.lit(0)))
    return F.array(*places, concurrent).cast(_HEADERS)
