"""Tables of transactions: a producer's side, the markers between brokers, and inspection."""

from typing import Annotated

from tidelog.wire.primitives import i8, i16, i32, i64
from tidelog.wire.schema import IGNORABLE, Message, Versions, answers, api


class AddPartitionsToTxnTopic(Message, kw_only=True):
    name: str
    partitions: tuple[i32, ...]


class AddPartitionsToTxnTransaction(Message, kw_only=True):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    verify_only: bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...]


@api(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message, kw_only=True):
    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], Versions(4)] = ()
    v3_and_below_transactional_id: Annotated[str, Versions(0, 3)] = ""
    v3_and_below_producer_id: Annotated[i64, Versions(0, 3)] = 0
    v3_and_below_producer_epoch: Annotated[i16, Versions(0, 3)] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], Versions(0, 3)] = ()


class AddPartitionsToTxnPartitionResult(Message, kw_only=True):
    partition_index: i32
    partition_error_code: i16 = 0


class AddPartitionsToTxnTopicResult(Message, kw_only=True):
    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


class AddPartitionsToTxnResult(Message, kw_only=True):
    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


@answers(AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, Versions(4), IGNORABLE] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], Versions(4)] = ()
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], Versions(0, 3)] = ()


@api(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Message, kw_only=True):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    group_id: str


@answers(AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0


@api(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Message, kw_only=True):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    committed: bool


@answers(EndTxnRequest)
class EndTxnResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: Annotated[i64, Versions(5), IGNORABLE] = -1
    producer_epoch: Annotated[i16, Versions(5), IGNORABLE] = -1


class TxnOffsetCommitRequestPartition(Message, kw_only=True):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Versions(2), IGNORABLE] = -1
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(Message, kw_only=True):
    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@api(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest(Message, kw_only=True):
    transactional_id: str
    group_id: str
    producer_id: i64
    producer_epoch: i16
    generation_id: Annotated[i32, Versions(3)] = -1
    member_id: Annotated[str, Versions(3)] = ""
    group_instance_id: Annotated[str | None, Versions(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


class TxnOffsetCommitResponsePartition(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0


class TxnOffsetCommitResponseTopic(Message, kw_only=True):
    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@answers(TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...]


class WritableTxnMarkerTopic(Message, kw_only=True):
    name: str
    partition_indexes: tuple[i32, ...]


class WritableTxnMarker(Message, kw_only=True):
    producer_id: i64
    producer_epoch: i16
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: i32
    transaction_version: Annotated[i8, Versions(2), IGNORABLE] = 0


@api(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Message, kw_only=True):
    markers: tuple[WritableTxnMarker, ...]


class WritableTxnMarkerPartitionResult(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0


class WritableTxnMarkerTopicResult(Message, kw_only=True):
    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


class WritableTxnMarkerResult(Message, kw_only=True):
    producer_id: i64
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@answers(WriteTxnMarkersRequest)
class WriteTxnMarkersResponse(Message, kw_only=True):
    markers: tuple[WritableTxnMarkerResult, ...]


@api(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Message, kw_only=True):
    transactional_ids: tuple[str, ...]


class DescribedTransactionTopic(Message, kw_only=True):
    topic: str
    partitions: tuple[i32, ...]


class DescribedTransactionState(Message, kw_only=True):
    error_code: i16 = 0
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: i32
    transaction_start_time_ms: i64
    producer_id: i64
    producer_epoch: i16
    topics: tuple[DescribedTransactionTopic, ...]


@answers(DescribeTransactionsRequest)
class DescribeTransactionsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    transaction_states: tuple[DescribedTransactionState, ...]


@api(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Message, kw_only=True):
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[i64, ...]
    duration_filter: Annotated[i64, Versions(1)] = -1
    transactional_id_pattern: Annotated[str | None, Versions(2)] = None


class ListedTransactionState(Message, kw_only=True):
    transactional_id: str
    producer_id: i64
    transaction_state: str


@answers(ListTransactionsRequest)
class ListTransactionsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    unknown_state_filters: tuple[str, ...]
    transaction_states: tuple[ListedTransactionState, ...]
