"""Which open transactions nobody will end: the partition waits for a marker that no coordinator is going to write."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.cli.txn.cluster import OpenOn, Transaction, Transactions, owners
from tidelog.ids import TopicPartition

CONFIRM_S: Final = 1.0
"""Between two looks. The coordinator and the partitions cannot be asked at one moment: what is just ending looks as if
nobody knew it, and has ended by the second look."""


class Hanging(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    """Of whoever has this producer id now."""
    idle_ms: int
    held_back: int
    reason: str


def find(transactions: Transactions, partitions: Iterable[TopicPartition], idle_ms: int) -> list[Hanging]:
    """Of those that wrote nothing for `idle_ms`, in these partitions."""
    first = dict(_orphans(transactions, partitions, idle_ms))
    if not first:
        return []
    time.sleep(CONFIRM_S)
    still = dict(_orphans(transactions, {each.place for each in first}, idle_ms))
    sure = [(each, reason) for each, reason in still.items() if each in first]
    now_ms = time.time_ns() // 1_000_000
    held_back = transactions.held_back({each.place for each, _ in sure}) if sure else {}
    known = owners(transactions.all({each.producer_id for each, _ in sure})) if sure else {}
    return [
        Hanging(
            topic=each.topic,
            partition=each.partition,
            start_offset=each.start_offset,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transactional_id=known[each.producer_id].transactional_id if each.producer_id in known else None,
            idle_ms=max(now_ms - each.last_ms, 0),
            held_back=held_back[each.place],
            reason=reason,
        )
        for each, reason in sure
    ]


def _orphans(
    transactions: Transactions, partitions: Iterable[TopicPartition], idle_ms: int
) -> list[tuple[OpenOn, str]]:
    now_ms = time.time_ns() // 1_000_000
    found = [each for each in transactions.open_on(partitions) if now_ms - each.last_ms >= idle_ms]
    known = owners(transactions.all({each.producer_id for each in found})) if found else {}
    judged = [(each, why_nobody_ends(each, known, now_ms)) for each in found]
    return [(each, reason) for each, reason in judged if reason is not None]


def why_nobody_ends(one: OpenOn, known: Mapping[int, Transaction], now_ms: int) -> str | None:
    """None if its coordinator will."""
    owner = known.get(one.producer_id)
    if owner is None:
        return f"no coordinator knows producer id {one.producer_id}"
    if not owner.is_running:
        return f"for its coordinator there is no open transaction: {owner.state}"
    if one.place not in owner.partitions:
        return "its coordinator does not count this partition to the open transaction"
    if owner.start_ms is not None and owner.state == "Ongoing" and now_ms - owner.start_ms > _overdue_ms(owner):
        return "its coordinator should have aborted it when its time was over"
    return None


def _overdue_ms(owner: Transaction) -> int:
    """Kafka looks for transactions that are too old every ten seconds; twice as long is long enough."""
    return owner.timeout_ms + 20_000
