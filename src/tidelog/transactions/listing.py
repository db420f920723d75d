"""DescribeTransactions 0 and ListTransactions 0-2: transactions as administrators see them."""

from collections.abc import Iterable

from tidelog.errors import ErrorCode
from tidelog.transactions.context import Select
from tidelog.transactions.refusals import not_described
from tidelog.transactions.state import BY_LABEL
from tidelog.transactions.transaction import Transaction, by_topic
from tidelog.wire.messages.transactions import (
    DescribedTransactionState,
    DescribedTransactionTopic,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def describe(transactional_id: str, transaction: Transaction | None) -> DescribedTransactionState:
    if not transactional_id:
        return not_described(transactional_id, ErrorCode.INVALID_REQUEST)
    if transaction is None:
        return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return DescribedTransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            DescribedTransactionTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(transaction.partitions)
        ),
    )


def list_transactions(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, select: Select, now_ms: int
) -> ListTransactionsResponse:
    """Raises KafkaError for a pattern that cannot be read."""
    states = {BY_LABEL[label] for label in request.state_filters if label in BY_LABEL}
    producer_ids = set(request.producer_id_filters)
    longer_than_ms = request.duration_filter
    found = [
        each
        for each in transactions
        if (not request.state_filters or each.state in states)
        and (not producer_ids or each.producer_id in producer_ids)
        # A transaction that is over does not run for long, whenever it began.
        and (longer_than_ms < 0 or (each.state.is_running and now_ms - each.start_ms > longer_than_ms))
    ]
    if request.transactional_id_pattern:
        names = set(select(request.transactional_id_pattern, [each.transactional_id for each in found]))
        found = [each for each in found if each.transactional_id in names]
    return ListTransactionsResponse(
        unknown_state_filters=tuple(label for label in request.state_filters if label not in BY_LABEL),
        transaction_states=tuple(
            ListedTransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in found
        ),
    )
