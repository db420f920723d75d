"""InitProducerId (0-5) with a transactional id: a producer takes it over, or its owner wants a new epoch (KIP-360)."""

from msgspec.structs import replace

from tidelog.errors import ErrorCode
from tidelog.transactions.context import Memory, NewProducerId, TransactionSettings, Verdict, refused
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Identity, Transaction
from tidelog.wire.messages.data import InitProducerIdRequest

NOBODY_YET = Identity(-1, -1)


def initialise(
    transaction: Transaction | None,
    memory: Memory,
    request: InitProducerIdRequest,
    settings: TransactionSettings,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> Verdict:
    if not request.transactional_id:
        return refused(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
        return refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    expected: Identity | None = Identity(request.producer_id, request.producer_epoch)
    if expected == NOBODY_YET:
        expected = None
    elif request.producer_id < 0 or request.producer_epoch < 0:
        return refused(ErrorCode.INVALID_REQUEST)

    if transaction is None:
        return _first(request, request.transactional_id, new_producer_id(), now_ms)
    if transaction.state.is_prepared:
        if expected in (None, transaction.next_identity, memory.replaced):
            return Verdict(waits=True)
        return refused(ErrorCode.PRODUCER_FENCED)
    if transaction.state is State.ONGOING:
        return _take_over_from_open(transaction, memory, expected, now_ms)
    return _next_identity(transaction, memory, expected, request.transaction_timeout_ms, new_producer_id, now_ms)


def _first(request: InitProducerIdRequest, transactional_id: str, producer_id: int, now_ms: int) -> Verdict:
    created = Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=producer_id,
        timeout_ms=request.transaction_timeout_ms,
        update_ms=now_ms,
    )
    return Verdict(identity=created.identity, steps=(created,))


def _take_over_from_open(transaction: Transaction, memory: Memory, expected: Identity | None, now_ms: int) -> Verdict:
    """Its transaction is aborted first, with an epoch that nobody is told, so that nobody adds to it any more."""
    if expected is not None and expected != transaction.identity:
        return refused(ErrorCode.PRODUCER_FENCED)
    aborted = transaction.fenced(now_ms, may_go_on=False)
    return Verdict(steps=(aborted,), memory=_of_new_identity(memory, expected), waits=True)


def _next_identity(
    transaction: Transaction,
    memory: Memory,
    expected: Identity | None,
    timeout_ms: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> Verdict:
    if expected is not None and expected != transaction.identity:
        if expected != memory.replaced:
            return refused(ErrorCode.PRODUCER_FENCED)
        if not transaction.identity.is_exhausted:
            return Verdict(identity=transaction.identity)  # it asks again because it never heard the answer
    identity = Identity(transaction.producer_id, transaction.producer_epoch + 1)
    if transaction.identity.is_exhausted:
        identity = Identity(new_producer_id(), 0)
    step = transaction.initialised(identity, timeout_ms, now_ms)
    return Verdict(identity=identity, steps=(step,), memory=_of_new_identity(memory, expected))


def _of_new_identity(memory: Memory, expected: Identity | None) -> Memory:
    """Its owner may have connected long before the one it replaces, whose connections say nothing about it."""
    return replace(memory, replaced=expected, connection=0, graced=frozenset())
