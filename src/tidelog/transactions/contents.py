"""What belongs to a transaction: AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, and whether a write belongs to one."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context, Memory, Verdict, is_delayed, not_the_owner, refused
from tidelog.transactions.state import State
from tidelog.transactions.transaction import FIRST_PROTOCOL, Identity, Transaction

ABORTABLE_SINCE: Final = 5
"""The first AddPartitionsToTxn whose sender knows that an abort is all that is needed."""


def add(
    transaction: Transaction | None,
    memory: Memory,
    asked: Identity,
    partitions: frozenset[TopicPartition],
    client_version: int,
    context: Context,
    now_ms: int,
    *,
    goes_ahead: bool = False,
) -> Verdict:
    """Opens a transaction if there is none: the protocol has no other beginning."""
    if transaction is None:
        return refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.state.is_prepared and asked == transaction.next_identity and not goes_ahead:
        return Verdict(waits=True)
    if asked != transaction.identity or (transaction.state.is_prepared and not goes_ahead):
        return not_the_owner(transaction, asked)
    connection = 0
    if client_version == FIRST_PROTOCOL:
        if is_delayed(memory, context):
            return refused(ErrorCode.INVALID_TXN_STATE)
        connection = context.connection
    # It knows its current identity, so it will never ask again for what it was given in exchange for the old one.
    memory = replace(
        memory, replaced=None, connection=max(memory.connection, connection), graced=memory.graced - partitions
    )
    if goes_ahead:
        return Verdict(memory=replace(memory, ahead=memory.ahead | partitions))
    if not partitions or (transaction.state is State.ONGOING and partitions <= transaction.partitions):
        return Verdict(memory=memory)
    return Verdict(steps=(transaction.added(partitions, client_version, now_ms),), memory=memory)


def verify(
    transaction: Transaction | None,
    ahead: frozenset[TopicPartition],
    asked: Identity,
    partitions: Iterable[TopicPartition],
    version: int,
) -> dict[TopicPartition, ErrorCode]:
    """May this producer write to these partitions now? Asked by the log before it opens a transaction there, so that a
    write that comes late is not taken for part of a later transaction (KIP-890)."""
    if transaction is None or transaction.producer_id != asked.producer_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.identity != asked:
        return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        return {each: ErrorCode.NONE if each in ahead else concurrent for each in partitions}
    missing = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_SINCE else ErrorCode.INVALID_TXN_STATE
    return {each: ErrorCode.NONE if each in transaction.partitions else missing for each in partitions}
