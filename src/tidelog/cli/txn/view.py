"""Transactions on a screen, and the report about one that is put together from its coordinator and its partitions."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.cli.output import count, print_table
from tidelog.cli.render import shown
from tidelog.cli.txn.cluster import Transaction, Transactions

if TYPE_CHECKING:
    from tidelog.cli.txn.hanging import Hanging

_STEPS: Final = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "m"), (60_000, "m", 1000, "s"))


class InPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    start_offset: int | None
    """None: nothing is written yet, or it has its marker already."""
    last_write_ms: int | None
    held_back: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    transaction: Transaction
    partitions: tuple[InPartition, ...]


def gather(transactions: Transactions, transactional_id: str) -> Report:
    from tidelog.cli.txn.abort import existing

    found = existing(transactions, transactional_id)
    if not found.partitions:
        return Report(transaction=found, partitions=())
    opened = {
        each.place: each for each in transactions.open_on(found.partitions) if each.producer_id == found.producer_id
    }
    held_back = transactions.held_back(found.partitions)
    rows = []
    for place in found.partitions:
        here = opened.get(place)
        rows.append(
            InPartition(
                topic=place.topic,
                partition=place.partition,
                start_offset=None if here is None else here.start_offset,
                last_write_ms=None if here is None else here.last_ms,
                held_back=held_back[place],
            )
        )
    return Report(transaction=found, partitions=tuple(rows))


def print_report(report: Report) -> None:
    one = report.transaction
    print(f"{shown(one.transactional_id)}: {_state(one)}")
    print(f"  producer id {one.producer_id}, epoch {one.producer_epoch}, coordinator is node {one.coordinator}")
    if one.is_running and one.start_ms is not None:
        print(f"  began {clock(one.start_ms)}, {age(one.duration_ms)} ago; {_ends(one)}")
    else:
        print(f"  timeout {age(one.timeout_ms)}")
    if not report.partitions:
        return
    print()
    columns = ("TOPIC", "PARTITION", "START OFFSET", "LAST WRITE", "HELD BACK")
    rows = [
        (
            shown(each.topic),
            each.partition,
            each.start_offset,
            None if each.last_write_ms is None else clock(each.last_write_ms),
            each.held_back,
        )
        for each in report.partitions
    ]
    print_table(columns, rows, right=frozenset({"PARTITION", "START OFFSET", "HELD BACK"}))


def _state(one: Transaction) -> str:
    if one.state == "Ongoing":
        return f"Ongoing, in {count(len(one.partitions), 'partition')}"
    if one.is_running:
        return f"{one.state}: decided, and {count(len(one.partitions), 'partition')} to be told"
    return f"{one.state}, no open transaction"


def _ends(one: Transaction) -> str:
    left_ms = one.timeout_ms - (one.duration_ms or 0)
    if left_ms > 0:
        return f"its coordinator aborts it in {age(left_ms)} (timeout {age(one.timeout_ms)})"
    return f"its timeout of {age(one.timeout_ms)} is over"


def print_transactions(found: Sequence[Transaction]) -> None:
    columns = ("ID", "STATE", "OPEN FOR", "TIMEOUT", "PARTITIONS", "PRODUCER ID", "EPOCH", "COORDINATOR")
    rows = [
        (
            shown(each.transactional_id),
            each.state,
            None if each.duration_ms is None else age(each.duration_ms),
            age(each.timeout_ms),
            len(each.partitions),
            each.producer_id,
            each.producer_epoch,
            each.coordinator,
        )
        for each in found
    ]
    print_table(columns, rows, right=frozenset(columns[2:]))


def print_hanging(found: Sequence["Hanging"]) -> None:
    columns = ("TOPIC", "PARTITION", "START OFFSET", "PRODUCER ID", "EPOCH", "IDLE", "HELD BACK", "ID", "WHY")
    rows = [
        (
            shown(each.topic),
            each.partition,
            each.start_offset,
            each.producer_id,
            each.producer_epoch,
            age(each.idle_ms),
            each.held_back,
            each.transactional_id and shown(each.transactional_id),
            each.reason,
        )
        for each in found
    ]
    print_table(columns, rows, right=frozenset(columns[1:7]))
    first = found[0]
    where = f"--topic {first.topic} --partition {first.partition} --start-offset {first.start_offset}"
    print(f"\nto end the first: tidelog txn abort {where}")


def age(duration_ms: int | None) -> str:
    """Two units at most: 4.2s, 3m 5s, 2h 10m."""
    if duration_ms is None:
        return "-"
    for unit_ms, unit, part_ms, part in _STEPS:
        if duration_ms >= unit_ms:
            whole, rest = divmod(duration_ms, unit_ms)
            return f"{whole}{unit} {rest // part_ms}{part}" if rest // part_ms else f"{whole}{unit}"
    return f"{duration_ms / 1000:.3g}s" if duration_ms >= 1000 else f"{duration_ms}ms"


def clock(at_ms: int) -> str:
    """This machine's time of the day, with the day if it is another one."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000)
    except (ValueError, OverflowError, OSError):  # a producer may have written any time into its records
        return str(at_ms)
    return at.strftime("%H:%M:%S" if at.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S")
