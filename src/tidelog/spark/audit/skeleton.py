"""Checks on the skeleton of a log, its batches: is every offset accounted for, is every batch whole, did a producer's
retry become a second copy?

Between batches and inside them offsets are missing for one of a few reasons, and the log itself tells which. A hole
inside a batch is the cleaner's work: nobody else rewrites batches. So is one between batches where cleanup.policy says
compact. A marker that ends a transaction takes an offset without being a record. What retention took is in front of
where the log begins. Anything else that is missing is lost.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidelog.spark.audit.batch_rows import ABORT, FORMAT, BatchRows
from tidelog.spark.audit.result import EXAMPLES, Check, Verdict, many, times
from tidelog.spark.audit.scope import Scope

_WRAP: Final = 1 << 31  # sequence numbers go on at 0 behind the highest i32


@dataclass(slots=True)
class Found:
    """Sums over all partitions, and places."""

    totals: dict[str, int] = field(default_factory=dict)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)  # partition, first, last: without a good reason
    explained: bool = False  # gaps that only an earlier compaction explains
    repeats: list[str] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)


def look(spark: SparkSession, scope: Scope) -> Found:
    """Fills the numbers of `scope.partitions` in."""
    spark.dataSource.register(BatchRows)
    rows = _marked(spark.read.format(FORMAT).options(**scope.options()).load())
    per_partition = {row["partition"]: row.asDict() for row in _sums(rows).collect()}
    found = Found()
    empty = {"least": None, "most": None}
    for each in scope.partitions:
        sums = per_partition.get(each.partition, empty)
        for name in ("batches", "bytes", "records", "aborted", "undecided", "markers"):
            setattr(each, name, sums.get(name) or 0)
        if each.end > each.start:
            _account(scope, found, each, sums)
        for name, value in sums.items():
            if isinstance(value, int) and name not in ("partition", "least", "most"):
                found.totals[name] = found.totals.get(name, 0) + value
    _name(scope, rows, found)
    return found


def _marked(rows: DataFrame) -> DataFrame:
    """Every batch beside the one before it: in its partition, of its producer, of its producer's epoch."""
    log = Window.partitionBy("partition").orderBy("first")
    producer = Window.partitionBy("partition", "producerId").orderBy("first")
    epoch = Window.partitionBy("partition", "producerId", "producerEpoch", "numbered").orderBy("first")
    following = producer.rowsBetween(0, Window.unboundedFollowing)
    rows = rows.withColumn("numbered", (F.col("sequence") >= 0) & (F.col("producerId") >= 0) & ~F.col("control"))
    ahead = F.pmod(F.col("sequence") - F.col("_expected"), F.lit(_WRAP))
    held = F.least(F.col("records").cast("bigint"), F.col("last") - F.col("first") + 1)
    return (
        rows.withColumn("_before", F.lag("last").over(log))
        .withColumn("_epoch", F.lag("epoch").over(log))
        .withColumn("gap", F.greatest(F.lit(0), F.coalesce(F.col("first") - F.col("_before") - 1, F.lit(0))))
        .withColumn("backward", F.coalesce((F.col("epoch") < F.col("_epoch")) & (F.col("epoch") >= 0), F.lit(False)))
        .withColumn("end", F.first("marker", ignorenulls=True).over(following))
        .withColumn("data", F.when(F.col("control"), F.lit(0)).otherwise(held))
        .withColumn("holes", F.when(F.col("span") > F.col("records"), _length() - held).otherwise(F.lit(0)))
        .withColumn("_expected", F.lag(F.col("sequence") + F.col("span")).over(epoch))
        .withColumn("_ahead", F.when(F.col("numbered"), ahead))
        .withColumn("jump", F.when(F.col("_ahead") >= _WRAP // 2, F.col("_ahead") - _WRAP).otherwise(F.col("_ahead")))
    )


def _length() -> Column:
    return F.col("last") - F.col("first") + 1


def _repeated() -> Column:
    """Records of this batch whose numbers its producer has used before."""
    return F.when(F.col("jump") < 0, F.least(-F.col("jump"), F.col("data"))).otherwise(F.lit(0))


def _sums(rows: DataFrame) -> DataFrame:
    in_transaction = F.col("transactional") & ~F.col("control")

    def total(value: Column, where: Column | None = None) -> Column:
        return F.sum(value if where is None else F.when(where, value).otherwise(F.lit(0))).cast("bigint")

    committed = ~in_transaction | F.coalesce(F.col("end") != ABORT, F.lit(False))
    return rows.groupBy("partition").agg(
        F.min("first").alias("least"),
        F.max("last").alias("most"),
        F.count("*").alias("batches"),
        total(F.col("bytes")).alias("bytes"),
        total(F.col("data"), committed).alias("records"),
        total(F.col("data"), in_transaction & (F.col("end") == ABORT)).alias("aborted"),
        total(F.col("data"), in_transaction & F.col("end").isNull()).alias("undecided"),
        total(F.lit(1), F.col("control") & (F.col("records") > 0)).alias("markers"),
        total(F.lit(1), F.col("marker") == ABORT).alias("abort_markers"),
        total(F.col("holes")).alias("holes"),
        total(F.lit(1), (F.col("holes") > 0) | F.col("horizon")).alias("cleaned"),
        total(F.col("gap")).alias("missing"),
        total(F.lit(1), F.col("gap") > 0).alias("gaps"),
        total(_repeated()).alias("repeated"),
        total(F.lit(1), F.col("jump") > 0).alias("jumps"),
        total(F.lit(1), F.col("numbered")).alias("numbered"),
        total(F.lit(1), ~F.col("intact")).alias("corrupt"),
        total(F.lit(1), F.col("backward")).alias("backward"),
    )


def _account(scope: Scope, found: Found, each: Any, sums: dict[str, Any]) -> None:
    """Divides what is missing in a partition into what is compacted and what is lost."""
    least, most = sums["least"], sums["most"]
    edges = [(each.start, each.end - 1)] if least is None else [(each.start, least - 1), (most + 1, each.end - 1)]
    edges = [(first, last) for first, last in edges if first <= last]
    between = (sums.get("missing") or 0) + sum(last - first + 1 for first, last in edges)
    was_cleaned = bool(sums.get("cleaned"))
    each.compacted = sums.get("holes") or 0
    if scope.is_compacted or was_cleaned:
        each.compacted += between
        found.explained |= between > 0 and not scope.is_compacted
    else:
        each.lost = between
        found.gaps += [(each.partition, first, last) for first, last in edges]


def _name(scope: Scope, rows: DataFrame, found: Found) -> None:
    """Places for what was counted; asked for only where there is something to show."""
    totals = found.totals
    losing = [each.partition for each in scope.partitions if each.lost]
    if losing and totals.get("gaps"):
        wanted = rows.where(F.col("partition").isin(losing) & (F.col("gap") > 0))
        for row in (
            wanted.orderBy("partition", "first").select("partition", "_before", "first").limit(EXAMPLES).collect()
        ):
            found.gaps.append((row["partition"], row["_before"] + 1, row["first"] - 1))
        found.gaps.sort()
    if totals.get("repeated"):
        found.repeats = _producers(scope, rows.where("jump < 0"), "again")
    if totals.get("jumps"):
        found.jumps = _producers(scope, rows.where("jump > 0"), "after a jump")
    for name, condition, places in (
        ("corrupt", "not intact", found.corrupt),
        ("backward", "backward", found.backward),
    ):
        if totals.get(name):
            shown = rows.where(condition).orderBy("partition", "first").limit(EXAMPLES).collect()
            places += [scope.at(row["partition"], row["first"]) for row in shown]


def _producers(scope: Scope, rows: DataFrame, how: str) -> list[str]:
    shown = rows.orderBy("partition", "first").limit(EXAMPLES).collect()
    return [
        f"{scope.at(row['partition'], row['first'])}  producer {row['producerId']} epoch {row['producerEpoch']}: "
        f"sequence {row['sequence']} {how}, {row['_expected'] % _WRAP} was next"
        for row in shown
    ]


def checks(scope: Scope, found: Found) -> list[Check]:
    return [_offsets(scope, found), _whole(scope, found), _sequences(scope, found)]


def _offsets(scope: Scope, found: Found) -> Check:
    parts = scope.partitions
    names = ("records", "aborted", "undecided", "markers", "compacted", "lost")
    numbers = {name: sum(getattr(each, name) for each in parts) for name in names}
    numbers["retention"] = sum(each.log_start for each in parts)
    numbers["open"] = sum(
        scope.open_from[each.partition] - each.end for each in parts if each.partition in scope.open_from
    )
    total = sum(each.end - each.start for each in parts)
    told = {
        "aborted": "of aborted transactions",
        "undecided": "of transactions that end outside of what was read",
        "markers": "transaction markers",
        "compacted": "compacted away",
    }
    reasons = [f"{numbers[name]:,} {words}" for name, words in told.items() if numbers[name]]
    if numbers["retention"]:
        reasons.append(f"{numbers['retention']:,} before them taken by retention or deleted")
    if numbers["open"]:
        reasons.append(f"{numbers['open']:,} behind them in open transactions, not looked at")
    account = f"{total:,} offsets, {numbers['records']:,} records" + "".join(f", {reason}" for reason in reasons)
    if numbers["lost"]:
        examples = [
            f"{scope.at(partition, first)}  {_range(first, last)}, without compaction or a transaction to explain it"
            for partition, first, last in found.gaps[:EXAMPLES]
        ]
        return Check("offsets", Verdict.VIOLATION, f"{numbers['lost']:,} lost; {account}", examples, numbers)
    if found.explained:
        says = (
            f"{account}; cleanup.policy is {scope.cleanup_policy} now, but the log shows that it was compacted before"
        )
        return Check("offsets", Verdict.WARNING, says, [], numbers)
    return Check("offsets", Verdict.OK, f"every offset accounted for: {account}", [], numbers)


def _range(first: int, last: int) -> str:
    return f"offset {first} is missing" if first == last else f"offsets {first} to {last} are missing"


def _whole(scope: Scope, found: Found) -> Check:
    totals = found.totals
    numbers = {"corrupt": totals.get("corrupt", 0), "backward": totals.get("backward", 0)}
    batches = totals.get("batches", 0)
    if numbers["corrupt"]:
        says = f"{numbers['corrupt']:,} of {batches:,} batches do not match their checksum"
        return Check("integrity", Verdict.VIOLATION, says, found.corrupt, numbers)
    if numbers["backward"]:
        says = f"leader epochs go back {times(numbers['backward'])}: parts of the log are of a leader that was replaced"
        return Check("integrity", Verdict.VIOLATION, says, found.backward, numbers)
    return Check(
        "integrity",
        Verdict.OK,
        f"every batch matches its checksum ({batches:,} in all), leader epochs rise",
        [],
        numbers,
    )


def _sequences(scope: Scope, found: Found) -> Check:
    totals = found.totals
    repeated, jumps, numbered = (totals.get(name, 0) for name in ("repeated", "jumps", "numbered"))
    numbers = {"repeated": repeated, "jumps": jumps, "numbered_batches": numbered}
    if repeated:
        says = f"{many(repeated, 'record')} written a second time by a producer's retry"
        return Check("retries", Verdict.VIOLATION, says, found.repeats, numbers)
    if not numbered:
        return Check("retries", Verdict.SKIPPED, "no producer was idempotent: its batches have no numbers", [], numbers)
    if jumps and not scope.is_compacted:
        says = f"no batch twice, but {jumps:,} jumps in producers' sequences: what is between them is not here"
        return Check("retries", Verdict.WARNING, says, found.jumps, numbers)
    return Check("retries", Verdict.OK, f"no batch written twice, {numbered:,} numbered ones looked at", [], numbers)
