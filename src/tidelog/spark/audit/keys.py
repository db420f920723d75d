"""Checks on keys: does each live in one partition, in the one that its producer's partitioner chooses, and is the load
shared?

Java's partitioner hashes with murmur2, librdkafka's default with CRC-32. Where a topic has both kinds of producers, a
key has two homes, and what is written to it has no order.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.spark.audit.records import shown
from tidelog.spark.audit.result import EXAMPLES, Check, Verdict
from tidelog.spark.audit.scope import Scope

HOT_KEYS: Final = 10
SKEW_MAX: Final = 2.0
"""The fullest partition may have so many times the mean before it is worth a word."""
HOT_SHARE: Final = 0.5
"""A key with more than this share of what one partition should carry is hot: no partitioner can spread it."""
RECORDS_MIN: Final = 1000
"""Of fewer records no share means anything."""


@dataclass(slots=True)
class Keys:
    """Sums over all keys; `hot` are the biggest, as (key, records, partition)."""

    totals: dict[str, int] = field(default_factory=dict)
    placed: dict[str, int] = field(default_factory=dict)
    hot: list[tuple[bytes, int, int]] = field(default_factory=list)
    divided: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)


def group(stepped: DataFrame) -> DataFrame:
    """A row for every key of every partition."""
    return stepped.groupBy("partition", "key").agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first"),
        F.sum((F.col("step") < 0).cast("bigint")).alias("backs"),
        F.sum((F.col("step") == 0).cast("bigint")).alias("same"),
        F.sum(F.col("measure").isNull().cast("bigint")).alias("unknown"),
    )


def look(scope: Scope, keys: DataFrame) -> Keys:
    partitions = len(scope.partitions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Spark's word on pandas, which no Arrow function needs
        homes = keys.mapInArrow(_homes_of(partitions), f"{_ddl(keys)}, murmur2 int")
    homes = homes.withColumn("crc32", F.pmod(F.crc32("key"), F.lit(partitions)).cast("int"))
    homes = homes.withColumn("_place", F.struct("partition", "first"))
    whole = homes.groupBy("key").agg(
        F.count("*").alias("parts"),
        F.sum("records").alias("records"),
        F.sum("backs").alias("backs"),
        F.sum("same").alias("same"),
        F.sum("unknown").alias("unknown"),
        F.min("_place").alias("one"),
        F.max("_place").alias("other"),
        F.max(F.when(F.col("partition") == F.col("murmur2"), F.col("_place"))).alias("home"),
        F.max(F.when(F.col("partition") != F.col("murmur2"), F.col("_place"))).alias("stray"),
        F.first("murmur2").alias("murmur2"),
        F.first("crc32").alias("crc32"),
    )
    home = F.col("one.partition")
    murmur2, crc32 = home == F.col("murmur2"), (home == F.col("crc32")) & (F.length("key") > 0)
    kind = (
        F.when(F.col("parts") > 1, "several")
        .when(murmur2 & crc32, "both")
        .when(murmur2, "murmur2")
        .when(crc32, "crc32")
        .otherwise("neither")
    )
    whole = whole.withColumn("kind", kind).persist()
    try:
        return _collect(scope, whole)
    finally:
        whole.unpersist()


def _collect(scope: Scope, whole: DataFrame) -> Keys:
    found = Keys()
    sums = ("records", "backs", "same", "unknown")
    for row in whole.groupBy("kind").agg(F.count("*").alias("keys"), *(F.sum(n).alias(n) for n in sums)).collect():
        found.placed[row["kind"]] = row["keys"]
        for name in ("keys", *sums):
            found.totals[name] = found.totals.get(name, 0) + (row[name] or 0)
    top = whole.orderBy(F.col("records").desc(), "key").limit(HOT_KEYS).select("key", "records", "one.partition")
    found.hot = [(bytes(row[0]), row[1], row[2]) for row in top.collect()]
    if found.placed.get("several"):
        rows = whole.where("kind = 'several'").orderBy("one").limit(EXAMPLES).collect()
        found.divided = [_divided(scope, row) for row in rows]
    if found.placed.get("neither"):
        rows = whole.where("kind = 'neither'").orderBy("one").limit(EXAMPLES).collect()
        found.strange = [
            f"{scope.at(*row['one'])}  key {shown(row['key'])}: murmur2 says partition {row['murmur2']}, "
            f"CRC-32 says {row['crc32']}"
            for row in rows
        ]
    return found


def _divided(scope: Scope, row: Any) -> str:
    """Names the place where the key should not be, if Java's partitioner wrote the others."""
    place, other = (row["stray"], row["home"]) if row["home"] else (row["other"], row["one"])
    return f"{scope.at(*place)}  key {shown(row['key'])} is also at {scope.at(*other)}"


def _ddl(rows: DataFrame) -> str:
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in rows.schema.fields)


def _homes_of(partitions: int) -> Any:
    """Adds the column `murmur2`: where Java's partitioner puts each key."""

    def homes(batches: Iterator[Any]) -> Iterator[Any]:
        from tidelog.spark.audit.homes import with_homes

        for batch in batches:
            yield with_homes(batch, partitions)

    return homes


def placement_check(scope: Scope, keys: Keys) -> Check:
    total, placed = keys.totals.get("keys", 0), keys.placed
    numbers: dict[str, Any] = {kind: placed.get(kind, 0) for kind in ("murmur2", "crc32", "both", "neither", "several")}
    numbers["keys"] = total
    if not total:
        return Check("placement", Verdict.SKIPPED, "no record has a key", [], numbers)
    if len(scope.partitions) == 1:
        return Check("placement", Verdict.OK, f"{total:,} keys, one partition", [], numbers)
    fits = {
        "murmur2 (Java)": numbers["murmur2"] + numbers["both"],
        "CRC-32 (librdkafka)": numbers["crc32"] + numbers["both"],
        "neither": numbers["neither"],
    }
    shares = ", ".join(f"{name} {count / total:.1%}" for name, count in fits.items())
    if numbers["several"]:
        says = (
            f"{numbers['several']:,} of {total:,} keys lie in several partitions and have no order; {shares}. "
            "Was the topic grown, or do producers with different partitioners write it?"
        )
        return Check("placement", Verdict.VIOLATION, says, keys.divided, numbers)
    if numbers["murmur2"] and numbers["crc32"]:
        says = f"each of {total:,} keys lies in one partition, but two partitioners write this topic; {shares}"
        return Check("placement", Verdict.WARNING, says, keys.strange, numbers)
    if numbers["neither"]:
        says = (
            f"each of {total:,} keys lies in one partition, but not all where a known partitioner puts them; {shares}"
        )
        return Check("placement", Verdict.WARNING, says, keys.strange, numbers)
    return Check("placement", Verdict.OK, f"each of {total:,} keys lies in one partition; {shares}", [], numbers)


def load_check(scope: Scope, keys: Keys) -> Check:
    counts = [each.records for each in scope.partitions]
    total, mean = sum(counts), sum(counts) / len(counts)
    skew = max(counts) / mean if mean else 0.0
    fair = total / len(counts)
    hot = [(key, records, partition) for key, records, partition in keys.hot if records > HOT_SHARE * fair]
    numbers: dict[str, Any] = {
        "skew": round(skew, 3),
        "keyless": total - keys.totals.get("records", 0),
        "hot": len(hot),
    }
    if not total:
        return Check("load", Verdict.SKIPPED, "there are no records", [], numbers)
    says = f"the fullest of {len(counts)} partitions has {skew:.2g} times the mean"
    if keys.hot:
        says += f", the biggest key {keys.hot[0][1] / total:.1%} of all records"
    if total < RECORDS_MIN:
        return Check("load", Verdict.OK, f"{says} ({total:,} records are too few to judge)", [], numbers)
    if skew > SKEW_MAX or (hot and len(counts) > 1):
        fullest = max(scope.partitions, key=lambda each: each.records)
        examples = [f"{scope.wanted.topic}-{fullest.partition}  {fullest.records:,} records, the mean is {mean:,.0f}"]
        examples += [
            f"{scope.wanted.topic}-{partition}  key {shown(key)}: {records:,} records, {records / total:.1%}"
            for key, records, partition in hot[: EXAMPLES - 1]
        ]
        return Check("load", Verdict.WARNING, says, examples, numbers)
    return Check("load", Verdict.OK, says, [], numbers)
