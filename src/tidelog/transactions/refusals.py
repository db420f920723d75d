"""A request refused as a whole: the answer in that request's own form, with the error where its version has room.

For the shard, and for the broker when there is no shard to ask: not the coordinator, still loading, not authorised.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidelog.errors import ErrorCode
from tidelog.wire.messages import transactions
from tidelog.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.schema import Message

BATCHED_SINCE: Final = 4
"""The first AddPartitionsToTxn that is about several transactions. Only brokers send it."""

FENCED_SINCE: Final[Mapping[type[Message], int]] = MappingProxyType(
    {
        InitProducerIdRequest: 4,
        transactions.AddPartitionsToTxnRequest: 2,
        transactions.AddOffsetsToTxnRequest: 2,
        transactions.EndTxnRequest: 2,
    }
)
"""The first versions whose clients know PRODUCER_FENCED."""


def as_known(request: Message, code: ErrorCode, version: int) -> ErrorCode:
    """In a word that this version has."""
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE.get(type(request), 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def refuse(request: Message, code: ErrorCode, version: int) -> Message:
    return _REFUSALS[type(request)](request, as_known(request, code, version), version)


def _init(request: InitProducerIdRequest, code: ErrorCode, version: int) -> Message:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _add(request: transactions.AddPartitionsToTxnRequest, code: ErrorCode, version: int) -> Message:
    if version < BATCHED_SINCE:
        return transactions.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=topic_results(request.v3_and_below_topics, code)
        )
    return transactions.AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            transactions.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=topic_results(each.topics, code)
            )
            for each in request.transactions
        )
    )


def topic_results(
    topics: tuple[transactions.AddPartitionsToTxnTopic, ...], code: ErrorCode
) -> tuple[transactions.AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        transactions.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                transactions.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                for number in topic.partitions
            ),
        )
        for topic in topics
    )


def _add_offsets(request: transactions.AddOffsetsToTxnRequest, code: ErrorCode, version: int) -> Message:
    return transactions.AddOffsetsToTxnResponse(error_code=code)


def _end(request: transactions.EndTxnRequest, code: ErrorCode, version: int) -> Message:
    return transactions.EndTxnResponse(error_code=code)


def _describe(request: transactions.DescribeTransactionsRequest, code: ErrorCode, version: int) -> Message:
    return transactions.DescribeTransactionsResponse(
        transaction_states=tuple(not_described(each, code) for each in request.transactional_ids)
    )


def not_described(transactional_id: str, code: ErrorCode) -> transactions.DescribedTransactionState:
    return transactions.DescribedTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def _list(request: transactions.ListTransactionsRequest, code: ErrorCode, version: int) -> Message:
    return transactions.ListTransactionsResponse(error_code=code, unknown_state_filters=(), transaction_states=())


_REFUSALS: Final[Mapping[type[Message], Callable[[Any, ErrorCode, int], Message]]] = MappingProxyType(
    {
        InitProducerIdRequest: _init,
        transactions.AddPartitionsToTxnRequest: _add,
        transactions.AddOffsetsToTxnRequest: _add_offsets,
        transactions.EndTxnRequest: _end,
        transactions.DescribeTransactionsRequest: _describe,
        transactions.ListTransactionsRequest: _list,
    }
)
