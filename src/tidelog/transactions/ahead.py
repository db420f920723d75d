"""Going ahead: a producer begins its next transaction while the end of the last one is still on its way to the disk.

A transaction that follows another would wait for three syncs before its first record is written: of the last one's
markers, of the record that they are safe, and of the record that names the partitions of the new one. Where all logs
are one broker's alone, none of these has to be waited for:

* A log is written in order. What the next transaction writes behind a marker is on disk only if the marker is.
* The decision, which is on disk before anybody hears of it, says where each partition's log ended by then (`ends`). So
  whoever loads it knows what is whose: a transaction that began at or behind that end is the next one, whose
  partitions nobody had written down yet. It is open again, in all that it may have announced (`markers_written`). If
  none has begun, a write that was announced is taken all the same (`graced`).

Only a second restart before the first write of the next transaction forgets what was announced: the write is refused
then, as one that belongs to no transaction.

So the next transaction may begin in the partitions of the last one as soon as the markers are in their logs
(`Memory.placed`). Its own records follow later: when it ends, or after `SETTLE_MS`.

Not among several brokers: a partition's next leader might have the decision's partitions, and not the marker.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from tidelog.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.transactions.context import Memory, Verdict
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Identity, Transaction

SETTLE_MS: Final = 20
"""After which it is written down that the markers are safe, and which partitions the next transaction has. Earlier if
that ends, since one record then says it all."""


class EndsOf(Protocol):
    """Where these logs end now. Empty unless all of them, and the coordinator's own, are this broker's alone. With
    `ended_by` this is where that producer's transaction ends: a write of it that the coordinator has vouched for, and
    that is still under way to one of these logs, must be vouched for again."""

    def __call__(
        self, partitions: Collection[TopicPartition], *, ended_by: int | None = None
    ) -> Mapping[TopicPartition, int]: ...


def nowhere(partitions: Collection[TopicPartition], *, ended_by: int | None = None) -> Mapping[TopicPartition, int]:
    """An `EndsOf` of a broker among others."""
    return {}


def goes_ahead(
    transaction: Transaction,
    memory: Memory,
    asked: Identity,
    partitions: frozenset[TopicPartition],
    client_version: int,
    ends_of: EndsOf,
) -> bool:
    """Whether the next transaction of this producer may begin in these partitions although the last is not over."""
    if not (memory.placed and partitions and transaction.state.is_prepared and asked == transaction.identity):
        return False
    if transaction.next_producer_id != NO_PRODUCER_ID or client_version != transaction.client_version:
        return False
    if memory.parked:
        return False  # among them may be the end of a transaction that has gone ahead already
    return not made_anew(transaction, partitions, ends_of)


def made_anew(
    transaction: Transaction, partitions: Collection[TopicPartition], ends_of: EndsOf
) -> list[TopicPartition]:
    """Those that are not the logs that the transaction ended in: the topic is another one by now, and begins before the
    end that was written down."""
    now, before = ends_of(partitions), transaction.ends
    return [each for each in partitions if each not in before or before[each] > now.get(each, -1)]


def caught_up(transaction: Transaction, memory: Memory, now_ms: int) -> Verdict:
    """The markers are safe: the transaction is over, and the next one open if its producer has gone ahead."""
    complete = transaction.completed(now_ms)
    steps: tuple[Transaction, ...] = (complete,)
    if memory.ahead:
        steps = complete, complete.added(memory.ahead, transaction.client_version, now_ms)
    return Verdict(steps=steps, memory=replace(memory, placed=False, safe=None, ahead=frozenset()))


def is_graced(transaction: Transaction, memory: Memory, asked: Identity, partitions: frozenset[TopicPartition]) -> bool:
    """Whether a write to these partitions may have been announced to a shard that forgot it by being loaded again."""
    may_go_on = transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT, State.ONGOING)
    return may_go_on and asked == transaction.identity and bool(partitions) and partitions <= memory.graced
