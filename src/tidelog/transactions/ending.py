"""How a transaction ends: EndTxn (0-5), its retries, and the timeout."""

from collections.abc import Mapping

from msgspec.structs import replace

from tidelog.errors import ErrorCode
from tidelog.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.transactions.ahead import EndsOf
from tidelog.transactions.context import (
    Context,
    Memory,
    NewProducerId,
    Verdict,
    is_delayed,
    not_the_owner,
    refused,
)
from tidelog.transactions.state import Event, State
from tidelog.transactions.transaction import (
    FIRST_PROTOCOL,
    SECOND_PROTOCOL,
    SECOND_PROTOCOL_SINCE,
    Identity,
    Transaction,
)
from tidelog.wire.messages.transactions import EndTxnRequest


def end(
    transaction: Transaction | None,
    memory: Memory,
    request: EndTxnRequest,
    context: Context,
    new_producer_id: NewProducerId,
    ends_of: EndsOf,
    now_ms: int,
) -> Verdict:
    if transaction is None:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    asked = Identity(request.producer_id, request.producer_epoch)
    second = context.version >= SECOND_PROTOCOL_SINCE
    if asked == transaction.ended_identity and not (asked == transaction.identity and second):
        if memory.graced and not second and not transaction.state.is_prepared:
            # It may be the end of a transaction that was announced to a shard that forgot it. Nothing of that is there.
            return Verdict(identity=transaction.identity, memory=replace(memory, graced=frozenset()))
        return _again(transaction, request.committed, second)
    if transaction.state.is_prepared and asked == transaction.next_identity:
        return Verdict(waits=True)  # the next transaction, that nothing was added to
    if asked != transaction.identity:
        return not_the_owner(transaction, asked)
    if transaction.state is not State.ONGOING:
        if request.committed or not second:
            return refused(ErrorCode.INVALID_TXN_STATE)
        return _end_empty(transaction, memory, new_producer_id, now_ms)
    if not second and is_delayed(memory, context):
        return refused(ErrorCode.INVALID_TXN_STATE)
    event = Event.COMMITTED if request.committed else Event.ABORTED
    ends = ends_of(transaction.partitions, ended_by=transaction.producer_id)
    decided = _decided(transaction, event, second, new_producer_id, ends, now_ms)
    if not second:
        # What still comes by an older connection was sent before this, and must not open the next transaction.
        memory = replace(memory, connection=max(memory.connection, context.connection))
    return Verdict(identity=decided.next_identity, steps=(decided,), memory=_told(memory, transaction, second))


def time_out(transaction: Transaction, memory: Memory, now_ms: int) -> Verdict:
    """It was open too long. Whoever opened it may be dead, and readers wait for its end. If it is alive after all it
    may ask for a new epoch: nobody has taken over."""
    aborted = transaction.fenced(now_ms, may_go_on=True)
    return Verdict(steps=(aborted,), memory=replace(memory, replaced=transaction.identity, graced=frozenset()))


def _again(transaction: Transaction, committed: bool, second: bool) -> Verdict:
    """The end that was decided already is asked for, by the one who may."""
    if transaction.state.is_prepared and transaction.ends:
        return Verdict(waits=True)  # it may be the next one's end, if its producer has gone ahead
    if committed != transaction.state.is_committed:
        # It was aborted by the timeout. Who speaks the second protocol may abort it as well and go on.
        return refused(ErrorCode.TRANSACTION_ABORTABLE if committed and second else ErrorCode.INVALID_TXN_STATE)
    if transaction.state.is_prepared:
        return Verdict(waits=True)
    return Verdict(identity=transaction.identity)


def _end_empty(transaction: Transaction, memory: Memory, new_producer_id: NewProducerId, now_ms: int) -> Verdict:
    """Nothing was added, so there is nothing to mark. The epoch is new all the same: a write that is still under way
    must not open the transaction that its producer gave up."""
    decided = _decided(transaction, Event.ABORTED, True, new_producer_id, {}, now_ms)
    steps = (decided, decided.completed(now_ms))
    return Verdict(identity=decided.next_identity, steps=steps, memory=_told(memory, transaction, True))


def _decided(
    transaction: Transaction,
    event: Event,
    second: bool,
    new_producer_id: NewProducerId,
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> Transaction:
    if not second:
        return transaction.ended(event, FIRST_PROTOCOL, NO_PRODUCER_ID, now_ms, ends)
    next_producer_id = new_producer_id() if transaction.identity.is_exhausted else NO_PRODUCER_ID
    return transaction.ended(event, SECOND_PROTOCOL, next_producer_id, now_ms, ends)


def _told(memory: Memory, before: Transaction, second: bool) -> Memory:
    return replace(memory, replaced=before.identity if second else None, graced=frozenset())
