"""One audit from beginning to end."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from tidelog.spark.audit import keys, records, skeleton
from tidelog.spark.audit.fields import check_field
from tidelog.spark.audit.result import Check, Report, Verdict
from tidelog.spark.audit.scope import Scope, Wanted, find_scope, log_starts

KEPT_MAX: Final = 50_000_000
"""Of so many records Spark keeps what the checks need, a few dozen bytes each, in memory and on its disks; of more,
each check reads the topic again."""
_OF_RECORDS = ("delivery", "duplicates", "order", "placement", "load", "lateness")


def audit(spark: SparkSession, wanted: Wanted, on_step: Callable[[str], None] = lambda _: None) -> Report:
    """Reads the topic's batches and its records once, those of a huge topic a few times; changes nothing."""
    for option, name in (
        ("--event-time", wanted.event_time),
        ("--sequence", wanted.sequence),
        ("--event-id", wanted.event_id),
    ):
        check_field(option, name)
    began = time.monotonic()
    scope = find_scope(wanted)
    report = Report(
        topic=wanted.topic,
        cleanup_policy=scope.cleanup_policy,
        partitions=scope.partitions,
        checks=[],
        event_time=wanted.event_time or "timestamp",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    on_step("batches …")
    found = skeleton.look(spark, scope)
    report.checks += skeleton.checks(scope, found)
    if found.totals.get("corrupt"):
        why = "not looked at: records of a corrupt batch cannot be read"
        report.checks += [Check(name, Verdict.SKIPPED, why) for name in _OF_RECORDS]
    else:
        _records(spark, scope, report, on_step)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _records(spark: SparkSession, scope: Scope, report: Report, on_step: Callable[[str], None]) -> None:
    rows = records.read(spark, scope)
    if report.records > KEPT_MAX:
        _check_records(rows, scope, report, on_step)
        return
    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        _check_records(rows, scope, report, on_step)
    finally:
        rows.unpersist()


def _check_records(rows: DataFrame, scope: Scope, report: Report, on_step: Callable[[str], None]) -> None:
    on_step("lateness …")
    late = records.lateness(rows, scope.wanted.late_ms)
    report.lateness = late.buckets()
    report.checks.append(_delivery(scope, late))
    on_step("duplicates …")
    report.checks.append(records.id_check(scope, rows))
    on_step("keys …")
    stepped = records.stepped(rows)
    found = keys.look(scope, keys.group(stepped))
    report.checks.append(records.order_check(scope, stepped, found.totals))
    report.checks.append(keys.placement_check(scope, found))
    report.checks.append(keys.load_check(scope, found))
    report.checks.append(records.late_check(scope, late))
    total = report.records
    report.hot_keys = [
        {"key": records.shown(key), "partition": partition, "records": count, "share": round(count / total, 5)}
        for key, count, partition in found.hot
        if total
    ]


def _delivery(scope: Scope, late: records.Lateness) -> Check:
    """What a consumer got, against what the batches said there is."""
    parts = scope.partitions
    expected = sum(each.records for each in parts)
    delivered = sum(late.per_partition.values())
    numbers = {"expected": expected, "delivered": delivered}
    says = f"a reader with read_committed gets {delivered:,} records"
    differ = [each for each in parts if late.per_partition.get(each.partition, 0) != each.records]
    if not differ:
        return Check("delivery", Verdict.OK, f"{says}, exactly those that the batches hold", [], numbers)
    got = late.per_partition
    examples = [
        f"{scope.at(each.partition, each.start)}  {got.get(each.partition, 0):,} of {each.records:,} records"
        for each in differ
    ]
    now = log_starts(scope)
    if any(now.get(each.partition, 0) > each.start for each in parts):
        return Check(
            "delivery", Verdict.WARNING, f"{says}: retention took some of the rest meanwhile", examples, numbers
        )
    if scope.is_compacted or any(each.compacted for each in parts):
        return Check("delivery", Verdict.OK, f"{says}; compaction goes on meanwhile", [], numbers)
    if any(each.undecided for each in differ):
        return Check("delivery", Verdict.OK, f"{says}; some transactions end outside of what was read", [], numbers)
    return Check("delivery", Verdict.VIOLATION, f"{says}, the batches hold {expected:,}", examples, numbers)
