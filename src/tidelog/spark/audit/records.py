"""Checks that look at records: does the order of the log agree with the order of events, does an event stand there
twice, how late do events come?

Everything is sorted and grouped by Spark's own operators; what runs in Python sees columns.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidelog.spark.audit.fields import columns_for, millis_of, number_of, text_of
from tidelog.spark.audit.result import EXAMPLES, Check, Verdict, many, times
from tidelog.spark.audit.scope import Scope, Wanted

_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
_S, _MIN, _H, _DAY = 1000, 60_000, 3_600_000, 86_400_000
EDGES_MS: Final = (
    1, 10, 100, _S, 2 * _S, 5 * _S, 10 * _S, 30 * _S, _MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, 30 * _MIN,
    _H, 3 * _H, 6 * _H, 12 * _H, _DAY, 3 * _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip
"""Of the histogram of lateness: bucket n is less than the n-th edge late, the last one is later than all."""


def read(spark: SparkSession, scope: Scope) -> DataFrame:
    """The records that a consumer with read_committed gets, with `measure`, `event_ms` and `event_id`; no more columns
    of the log than are needed are decoded."""
    wanted = scope.wanted
    names = ["key", "partition", "offset", "timestamp"]
    names += columns_for(wanted.event_time, wanted.sequence, wanted.event_id)
    schema = ", ".join(f"{name} {_TYPES[name]}" for name in names)
    options = {**scope.options(), "kafka.isolation.level": "read_committed"}
    rows = spark.read.format("tidelog").options(**options).schema(schema).load()
    if wanted.event_time:
        found = rows.withColumn("_time", text_of(wanted.event_time)).withColumn("event_ms", millis_of(F.col("_time")))
    else:
        found = rows.withColumn("event_ms", F.unix_millis("timestamp"))
    measure = number_of(wanted.sequence) if wanted.sequence else F.col("event_ms")
    found = found.withColumn("measure", measure)
    if wanted.event_id is not None:
        found = found.withColumn("event_id", text_of(wanted.event_id))
    return found.drop("value", "headers", "timestamp", "_time")


def stepped(rows: DataFrame) -> DataFrame:
    """Every record with a key beside the last one of that key in its partition."""
    before = Window.partitionBy("partition", "key").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    known = F.when(F.col("measure").isNotNull(), F.struct("measure", "offset"))
    return (
        rows.where(F.col("key").isNotNull())
        .withColumn("_last", F.last(known, ignorenulls=True).over(before))
        .withColumn("step", F.col("measure") - F.col("_last.measure"))
    )


def measure_name(wanted: Wanted) -> str:
    return wanted.sequence or wanted.event_time or "the record's timestamp"


def order_check(scope: Scope, rows: DataFrame, totals: dict[str, Any]) -> Check:
    """`totals` are sums over all keys: backs, same, unknown, records, keys."""
    wanted = scope.wanted
    name = measure_name(wanted)
    backs, same, unknown = (totals.get(each) or 0 for each in ("backs", "same", "unknown"))
    keyed, keys = totals.get("records") or 0, totals.get("keys") or 0
    numbers = {"backs": backs, "same": same, "unknown": unknown, "records": keyed, "keys": keys, "by": name}
    if not keys:
        return Check("order", Verdict.SKIPPED, "no record has a key: nothing is ordered but partitions", [], numbers)
    if unknown == keyed:
        return Check("order", Verdict.WARNING, f"no record has a {name} that can be read", [], numbers)
    rest = f"; {unknown:,} records have no {name} that can be read" if unknown else ""
    if backs:
        told = wanted.sequence is not None or wanted.event_time is not None
        says = f"{name} goes back {times(backs)} within a key{rest}"
        hint = "" if told else "; clients' clocks make it, so this proves nothing: give --event-time or --sequence"
        verdict = Verdict.VIOLATION if told else Verdict.WARNING
        return Check("order", verdict, says + hint, _steps_back(scope, rows), numbers)
    if same and wanted.sequence is not None:
        says = f"{name} never goes back, but stands still {times(same)} within a key: the same event again?{rest}"
        return Check("order", Verdict.WARNING, says, _steps_back(scope, rows, "step = 0"), numbers)
    says = f"{name} never goes back within a key: {many(keyed, 'record')} of {many(keys, 'key')}{rest}"
    return Check("order", Verdict.WARNING if unknown else Verdict.OK, says, [], numbers)


def _steps_back(scope: Scope, rows: DataFrame, condition: str = "step < 0") -> list[str]:
    found = rows.where(condition).orderBy("partition", "offset").limit(EXAMPLES).collect()
    return [
        f"{scope.at(row['partition'], row['offset'])}  key {shown(row['key'])}: {row['measure']} after "
        f"{row['_last']['measure']} at offset {row['_last']['offset']}"
        for row in found
    ]


@dataclass(slots=True)
class Lateness:
    """Records by how late they came: `counts[n]` are those of bucket n, the first are in order."""

    counts: dict[int, int] = field(default_factory=dict)
    per_partition: dict[int, int] = field(default_factory=dict)
    late: int = 0
    unknown: int = 0
    examples: list[tuple[int, int, int]] = field(default_factory=list)  # ms late, partition, offset: the worst

    @property
    def known(self) -> int:
        return sum(self.counts.values())

    def within(self, share: float) -> int | None:
        """The edge in ms that so big a share of the records stays below; None if it is beyond all edges."""
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= share * self.known:
                return EDGES_MS[bucket] if bucket < len(EDGES_MS) else None
        return None

    def buckets(self) -> list[dict[str, int | None]]:
        """From the first to the last that is not empty, and always the one of records in order."""
        last = max(self.counts, default=-1)
        edges = (*EDGES_MS, None)
        return [{"below_ms": edges[n], "records": self.counts.get(n, 0)} for n in range(last + 1)]


def lateness(rows: DataFrame, late_ms: int) -> Lateness:
    """Against the youngest event that stood before a record in its partition."""
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    behind = F.greatest(F.lit(0).cast("bigint"), F.col("_youngest") - F.col("event_ms"))
    late = F.when(F.col("event_ms").isNotNull(), F.coalesce(behind, F.lit(0).cast("bigint")))
    bucket = sum(((F.col("late") >= edge).cast("int") for edge in EDGES_MS), F.lit(0))
    grouped = (
        rows.select("partition", "offset", "event_ms")
        .withColumn("_youngest", F.max("event_ms").over(before))
        .withColumn("late", late)
        .withColumn("bucket", bucket)
        .groupBy("partition", "bucket")
        .agg(
            F.count("*").alias("records"),
            F.sum((F.col("late") > late_ms).cast("bigint")).alias("late"),
            F.max_by(F.struct("late", "offset"), "late").alias("worst"),
        )
        .collect()
    )
    found = Lateness()
    for row in grouped:
        number, count = row["partition"], row["records"]
        found.per_partition[number] = found.per_partition.get(number, 0) + count
        if row["bucket"] is None:
            found.unknown += count
            continue
        found.counts[row["bucket"]] = found.counts.get(row["bucket"], 0) + count
        found.late += row["late"] or 0
        if row["late"]:
            found.examples.append((row["worst"]["late"], number, row["worst"]["offset"]))
    found.examples = sorted(found.examples, reverse=True)[:EXAMPLES]
    return found


def late_check(scope: Scope, found: Lateness) -> Check:
    wanted = scope.wanted
    name = wanted.event_time or "the record's timestamp"
    numbers: dict[str, Any] = {
        "late": found.late,
        "late_ms": wanted.late_ms,
        "unknown": found.unknown,
        "p50_ms": found.within(0.5),
        "p99_ms": found.within(0.99),
        "p999_ms": found.within(0.999),
        "by": name,
    }
    if not found.known:
        none = f"no record has a {name} that can be read" if found.unknown else "there are no records"
        return Check("lateness", Verdict.WARNING if found.unknown else Verdict.SKIPPED, none, [], numbers)
    rest = f"; {found.unknown:,} have no {name} that can be read" if found.unknown else ""
    holds = "99.9 % are " + _within(numbers["p999_ms"])
    if found.late:
        examples = [f"{scope.at(number, offset)}  {duration(late)} late" for late, number, offset in found.examples]
        says = (
            f"{found.late:,} of {found.known:,} records come more than {duration(wanted.late_ms)} late; {holds}{rest}"
        )
        return Check("lateness", Verdict.WARNING, says, examples, numbers)
    says = f"no record comes more than {duration(wanted.late_ms)} late by {name}; {holds}{rest}"
    return Check("lateness", Verdict.OK if not found.unknown else Verdict.WARNING, says, [], numbers)


def _within(edge_ms: int | None) -> str:
    if edge_ms is None:
        return f"not within {duration(EDGES_MS[-1])}"
    return "in order" if edge_ms == EDGES_MS[0] else f"less than {duration(edge_ms)} late"


def id_check(scope: Scope, rows: DataFrame) -> Check:
    name = scope.wanted.event_id
    if name is None:
        return Check(
            "duplicates", Verdict.SKIPPED, "give --event-id FIELD, header:NAME or key to find events that stand twice"
        )
    places = F.struct("partition", "offset")
    groups = rows.groupBy("event_id").agg(
        F.count("*").alias("copies"), F.min(places).alias("one"), F.max(places).alias("other")
    )
    sums = groups.agg(
        F.sum(F.when(F.col("event_id").isNull(), F.col("copies"))).alias("unknown"),
        F.sum(F.when(F.col("event_id").isNotNull() & (F.col("copies") > 1), F.col("copies") - 1)).alias("extra"),
        F.count_if(F.col("event_id").isNotNull()).alias("ids"),
    ).collect()[0]
    unknown, extra, ids = sums["unknown"] or 0, sums["extra"] or 0, sums["ids"] or 0
    numbers = {"extra": extra, "ids": ids, "unknown": unknown, "by": name}
    rest = f"; {unknown:,} records have no {name}" if unknown else ""
    if not extra:
        verdict = Verdict.WARNING if unknown else Verdict.OK
        return Check("duplicates", verdict, f"{many(ids, 'event')} by {name}, none twice{rest}", [], numbers)
    found = groups.where("event_id is not null and copies > 1").orderBy("one").limit(EXAMPLES).collect()
    examples = [
        f"{scope.at(*row['other'])}  {name} {row['event_id'][:60]!r} {row['copies']} times, "
        f"first at {scope.at(*row['one'])}"
        for row in found
    ]
    says = f"{many(extra, 'record')} more than the {many(ids, 'event')} by {name}{rest}"
    return Check("duplicates", Verdict.VIOLATION, says, examples, numbers)


def duration(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms} ms"


def shown(key: Any) -> str:
    """A key in a sentence: quoted, cut, nothing in it that could steer a terminal."""
    return repr(bytes(key)[:60])[1:] if key is not None else "none"
