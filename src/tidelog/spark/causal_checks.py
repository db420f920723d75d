"""What stamps tell about records: which are concurrent, and which contradict what they say they know.

All of it rests on one fact about clocks that count records: the k-th record of a node happened before another record
exactly if that one's clock counts at least k of the node. So every question is about pairs of a record and an entry of
its clock, and Spark answers it with sorts and sums over as many rows as there are entries.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidelog.spark.causal import Stretch, Wanted, history, read, settle

EXAMPLES: Final = 5
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(slots=True)
class Summary:
    """`missing`, `inverted` and `clock` are violations, each with examples that begin with topic-partition@offset."""

    topics: list[str]
    records: int = 0
    stamped: int = 0
    unstamped: int = 0
    unreadable: int = 0
    nodes: int = 0
    concurrent: int = 0  # records that are concurrent with another
    pairs: int = 0
    repeated: int = 0  # records whose stamp another one has
    older: int = 0  # causes that lie before what was read
    missing: int = 0  # causes that the log should have
    inverted: int = 0  # effects that stand before a cause in one partition
    clock: int = 0  # effects whose time is not after their cause's
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        return self.missing + self.inverted + self.clock


class Causal:
    """The stamps of a stretch of topics, read once and kept while questions are asked; a context manager."""

    def __init__(self, spark: SparkSession, wanted: Wanted) -> None:
        self.wanted = wanted
        self.stretch: Stretch = settle(wanted)
        self._rows = read(spark, self.stretch)
        stamps = self._rows.drop("key", "value", "headers", "timestamp")
        self._stamps = stamps.persist(StorageLevel.MEMORY_AND_DISK)
        places = F.struct(*_PLACE)
        # Of copies of a record the first counts: a retry is no second event.
        first = F.min(F.struct(places.alias("at"), F.col("ticks"), F.col("vector"))).alias("_first")
        events = self._stamps.where("stamped").groupBy("node", "count").agg(first, F.count("*").alias("copies"))
        self._events = events.select("node", "count", "copies", "_first.at", "_first.ticks", "_first.vector").persist(
            StorageLevel.MEMORY_AND_DISK
        )

        self._concurrent: DataFrame | None = None

    def __enter__(self) -> "Causal":
        return self

    def __exit__(self, *_: object) -> None:
        for kept in (self._concurrent, self._events, self._stamps):
            if kept is not None:
                kept.unpersist()

    def merged(self) -> DataFrame:
        return history(self._rows, self._concurrency())

    def summary(self) -> Summary:
        found = Summary(list(self.wanted.topics))
        for row in self._stamps.groupBy("stamped").count().collect():
            kind = {True: "stamped", False: "unstamped", None: "unreadable"}[row["stamped"]]
            setattr(found, kind, row["count"])
            found.records += row["count"]
        if found.stamped:
            self._count_concurrent(found)
            self._find_causes(found)
            self._find_inverted(found)
        if found.repeated:
            rows = self._events.where("copies > 1").orderBy("at").limit(EXAMPLES).collect()
            found.examples["repeated"] = [
                f"{_at(row['at'])}  {row['node']}:{row['count']} {row['copies']} times" for row in rows
            ]
        return found

    def _known(self) -> DataFrame:
        """A row for every entry of every clock: `other`'s first `known` records happened before (node, count)."""
        entry = F.explode("vector").alias("_entry")
        rows = self._events.select("node", "count", "at", "ticks", entry)
        return rows.select(
            "node", "count", "at", "ticks", F.col("_entry.node").alias("other"), F.col("_entry.count").alias("known")
        )

    def _causes(self) -> DataFrame:
        """The same without the record itself: of its own node, it knows those before it."""
        needed = F.when(F.col("other") == F.col("node"), F.col("known") - 1).otherwise(F.col("known"))
        return self._known().withColumn("known", needed).where("known > 0")

    def _concurrency(self) -> DataFrame:
        """For every stamped record, with how many others it is concurrent: with all that are neither before nor after.

        Before it are, per entry of its clock, the records of that node up to there; after it are the clocks that count
        it. Records and entries in one row, sorted by number, give both as running sums.
        """
        if self._concurrent is None:
            self._concurrent = self._count_others().persist(StorageLevel.MEMORY_AND_DISK)
        return self._concurrent

    def _count_others(self) -> DataFrame:
        null = F.lit(None)
        events = self._events.select(
            F.col("node").alias("other"), F.col("count").alias("at"), F.lit(0).alias("kind"), "node", "count"
        )
        entries = self._known().select("other", F.col("known").alias("at"), F.lit(1).alias("kind"), "node", "count")
        line = Window.partitionBy("other").orderBy("at", "kind").rowsBetween(Window.unboundedPreceding, 0)
        whole = Window.partitionBy("other")
        is_event = F.col("kind") == 0
        rows = (
            events.unionByName(entries)
            .withColumn("_events", F.sum(is_event.cast("bigint")).over(line))
            .withColumn("_entries", F.sum((~is_event).cast("bigint")).over(line))
            .withColumn("_all", F.sum((~is_event).cast("bigint")).over(whole))
        )
        sums = rows.groupBy("node", "count").agg(
            F.sum(F.when(is_event, null).otherwise(F.col("_events"))).alias("before"),
            F.sum(F.when(is_event, F.col("_all") - F.col("_entries"))).alias("after"),
        )
        total = self._events.count()
        # The record itself is in both sums.
        return sums.select("node", "count", (F.lit(total + 1) - F.col("before") - F.col("after")).alias("concurrent"))

    def _count_concurrent(self, found: Summary) -> None:
        sums = self._concurrency().agg(
            F.count_if(F.col("concurrent") > 0).alias("concurrent"), F.sum("concurrent").alias("both_ways")
        )
        row = sums.collect()[0]
        found.concurrent, found.pairs = row["concurrent"], (row["both_ways"] or 0) // 2

    def _find_causes(self, found: Summary) -> None:
        firsts = self._events.groupBy("node").agg(
            F.min("count").alias("least"), F.sum(F.col("copies") - 1).alias("more")
        )
        per_node = firsts.collect()
        found.nodes, found.repeated = len(per_node), sum(row["more"] for row in per_node)
        causes = self._events.select(
            F.col("node").alias("other"), F.col("count").alias("known"), F.col("ticks").alias("cause_ticks")
        )
        rows = self._causes().join(causes, ["other", "known"], "left")
        rows = rows.join(F.broadcast(firsts.select(F.col("node").alias("other"), "least")), ["other"], "left")
        is_missing = F.col("cause_ticks").isNull()
        before = is_missing & (F.col("least").isNull() | (F.col("known") < F.col("least")))
        is_older = before if not self.stretch.is_whole else F.lit(False)
        is_lost, is_late = is_missing & ~is_older, F.coalesce(F.col("cause_ticks") >= F.col("ticks"), F.lit(False))
        cause = F.struct("other", "known")

        def distinct(condition: Column) -> Column:
            return F.count_distinct(F.when(condition, cause))

        sums = rows.agg(
            distinct(is_lost).alias("missing"), distinct(is_older).alias("older"), F.count_if(is_late).alias("clock")
        ).collect()[0]
        found.missing, found.older, found.clock = sums["missing"], sums["older"], sums["clock"]
        if found.missing:
            shown = rows.where(is_lost).orderBy("ticks", "node").limit(EXAMPLES).collect()
            found.examples["missing"] = [f"{_effect(row)}, which is in none of these topics" for row in shown]
        if found.clock:
            shown = rows.where(is_late).orderBy("ticks", "node").limit(EXAMPLES).collect()
            found.examples["clock"] = [f"{_effect(row)}, whose time is not before its own" for row in shown]

    def _find_inverted(self, found: Summary) -> None:
        """Walks each partition from its end: a cause that was passed already stands behind its effect."""
        firsts = self._stamps.where("stamped").groupBy("topic", "partition", "node", "count")
        events = firsts.agg(F.min("offset").alias("offset")).select(
            "topic", "partition", "offset", F.col("node").alias("other"), F.struct("count", "offset").alias("_cause")
        )
        causes = self._causes().select("at.*", "other", "node", "count", "known")
        later = Window.partitionBy("topic", "partition", "other").orderBy(F.col("offset").desc())
        rows = causes.unionByName(events, allowMissingColumns=True).withColumn(
            "_least", F.min("_cause").over(later.rowsBetween(Window.unboundedPreceding, -1))
        )
        wrong = rows.where("known is not null and _least.count <= known")
        found.inverted = wrong.select("topic", "partition", "offset").distinct().count()
        if found.inverted:
            shown = wrong.orderBy(*_PLACE).limit(EXAMPLES).collect()
            found.examples["inverted"] = [
                f"{_at(row)}  {row['node']}:{row['count']} stands before its cause "
                f"{row['other']}:{row['_least']['count']} at offset {row['_least']['offset']}"
                for row in shown
            ]


def _at(row: Any) -> str:
    return f"{row['topic']}-{row['partition']}@{row['offset']}"


def _effect(row: Any) -> str:
    return f"{_at(row['at'])}  {row['node']}:{row['count']} knows {row['other']}:{row['known']}"
