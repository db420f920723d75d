"""Short ways for producers that go ahead, one transaction after another, all day. They end where the long ways of
`TransactionShard` end, which tests compare; whatever is not the usual case is left to those.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode
from tidelog.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.transactions.ahead import EndsOf, goes_ahead
from tidelog.transactions.context import Context, Memory, is_delayed
from tidelog.transactions.draft import Remember, TransactionOutcome, markers_of
from tidelog.transactions.records import TransactionRecord
from tidelog.transactions.refusals import BATCHED_SINCE, refuse
from tidelog.transactions.state import Event
from tidelog.transactions.transaction import (
    FIRST_PROTOCOL,
    SECOND_PROTOCOL,
    SECOND_PROTOCOL_SINCE,
    Identity,
    Transaction,
)
from tidelog.wire.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, EndTxnResponse
from tidelog.wire.schema import Message


class ShortWays:
    """Looks at a shard's transactions and memories, and changes neither."""

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        memories: Mapping[str, Memory],
        ends_of: EndsOf,
        coordinator_epoch: int,
    ) -> None:
        self._transactions = transactions
        self._memories = memories
        self._ends_of = ends_of
        self._coordinator_epoch = coordinator_epoch
        self._ways: Mapping[type[Message], Callable[[Any, Context, int], TransactionOutcome | None]] = {
            AddPartitionsToTxnRequest: lambda request, context, now_ms: self.add(request, context),
            EndTxnRequest: self._end,
        }
        self._latest: tuple[TransactionRecord, Transaction] | None = None

    def decide(self, request: Message, context: Context, now_ms: int) -> TransactionOutcome | None:
        """None: take the long way."""
        way = self._ways.get(type(request))
        return None if way is None else way(request, context, now_ms)

    def meaning_of(self, record: TransactionRecord) -> Transaction | None:
        """What a record says that was made here just now, which need not be read again."""
        latest = self._latest
        return latest[1] if latest is not None and latest[0] is record else None

    def add(self, request: AddPartitionsToTxnRequest, context: Context) -> TransactionOutcome | None:
        """The next transaction begins in partitions of the last one. Nothing is written."""
        name = request.v3_and_below_transactional_id
        memory = self._memories.get(name)
        if memory is None or not memory.placed or context.version >= BATCHED_SINCE:
            return None
        transaction = self._transactions[name]
        asked = Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        partitions = frozenset(
            [TopicPartition(topic.name, each) for topic in request.v3_and_below_topics for each in topic.partitions]
        )
        if not goes_ahead(transaction, memory, asked, partitions, FIRST_PROTOCOL, self._ends_of):
            return None
        if is_delayed(memory, context):
            return None
        response = refuse(request, ErrorCode.NONE, context.version)
        return Outcome(response, memory=(Remember(name, _ahead(memory, partitions, context.connection)),))

    def go_ahead(self, name: str, asked: Identity, partitions: frozenset[TopicPartition]) -> Memory | None:
        """The same for a producer of the second protocol, which says so by writing there: what to remember then."""
        memory = self._memories.get(name)
        if memory is None or not memory.placed:
            return None
        transaction = self._transactions[name]
        if not goes_ahead(transaction, memory, asked, partitions, SECOND_PROTOCOL, self._ends_of):
            return None
        return _ahead(memory, partitions, 0)

    def _end(self, request: EndTxnRequest, context: Context, now_ms: int) -> TransactionOutcome | None:
        """A transaction that went ahead ends: one record says that the last one is over, and what this one is."""
        name = request.transactional_id
        memory = self._memories.get(name)
        if memory is None or not (memory.safe and memory.ahead):
            return None
        transaction = self._transactions[name]
        identity = transaction.identity
        second = transaction.client_version >= SECOND_PROTOCOL
        if (
            identity != (request.producer_id, request.producer_epoch)
            or transaction.next_producer_id != NO_PRODUCER_ID
            or second != (context.version >= SECOND_PROTOCOL_SINCE)
            or (identity.is_exhausted if second else is_delayed(memory, context))
        ):
            return None
        event = Event.COMMITTED if request.committed else Event.ABORTED
        ends = self._ends_of(memory.ahead, ended_by=transaction.producer_id)
        decided = transaction.followed(event, memory.ahead, now_ms, ends)
        remembered = Memory(
            replaced=identity if second else None,
            connection=memory.connection if second else max(memory.connection, context.connection),
            parked=memory.parked,
        )
        record = decided.record()
        self._latest = record, decided
        return Outcome(
            EndTxnResponse(producer_id=decided.producer_id, producer_epoch=decided.producer_epoch),
            records=(record,),
            memory=(Remember(name, remembered),),
            effects=(markers_of(decided, self._coordinator_epoch),),
        )


def _ahead(memory: Memory, partitions: frozenset[TopicPartition], connection: int) -> Memory:
    """As `contents.add` would have it."""
    return Memory(
        connection=max(memory.connection, connection),
        parked=memory.parked,
        placed=True,
        safe=memory.safe,
        ahead=memory.ahead | partitions,
        graced=memory.graced - partitions,
    )
