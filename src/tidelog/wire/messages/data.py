"""Tables of the data path: Produce, Fetch, and the questions about offsets, epochs and producers around them."""

from typing import Annotated
from uuid import UUID

from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.primitives import NO_UUID, Records, i8, i16, i32, i64
from tidelog.wire.schema import IGNORABLE, Message, Tag, Versions, answers, api


class PartitionProduceData(Message, kw_only=True):
    index: i32
    records: Records | None


class TopicProduceData(Message, kw_only=True):
    name: Annotated[str, Versions(3, 12), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
    partition_data: tuple[PartitionProduceData, ...]


@api(key=0, versions=(3, 13), flexible=9)
class ProduceRequest(Message, kw_only=True):
    transactional_id: str | None = None
    acks: i16
    timeout_ms: i32
    topic_data: tuple[TopicProduceData, ...]


class BatchIndexAndErrorMessage(Message, kw_only=True):
    batch_index: i32
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Message, kw_only=True):
    leader_id: i32 = -1
    leader_epoch: i32 = -1


class PartitionProduceResponse(Message, kw_only=True):
    index: i32
    error_code: i16 = 0
    base_offset: i64
    log_append_time_ms: i64 = -1
    log_start_offset: Annotated[i64, Versions(5), IGNORABLE] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], Versions(8), IGNORABLE] = ()
    error_message: Annotated[str | None, Versions(8), IGNORABLE] = None
    current_leader: Annotated[LeaderIdAndEpoch, Versions(10), Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Message, kw_only=True):
    name: Annotated[str, Versions(3, 12), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
    partition_responses: tuple[PartitionProduceResponse, ...]


class NodeEndpoint(Message, kw_only=True):
    node_id: i32
    host: str
    port: i32
    rack: str | None = None


@answers(ProduceRequest)
class ProduceResponse(Message, kw_only=True):
    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: i32 = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Versions(10), Tag(0)] = ()


class ReplicaState(Message, kw_only=True):
    replica_id: i32 = -1
    replica_epoch: i64 = -1


class FetchPartition(Message, kw_only=True):
    partition: i32
    current_leader_epoch: Annotated[i32, Versions(9), IGNORABLE] = -1
    fetch_offset: i64
    last_fetched_epoch: Annotated[i32, Versions(12)] = -1
    log_start_offset: Annotated[i64, Versions(5), IGNORABLE] = -1
    partition_max_bytes: i32
    replica_directory_id: Annotated[UUID, Versions(17), Tag(0), IGNORABLE] = NO_UUID
    high_watermark: Annotated[i64, Versions(18), Tag(1), IGNORABLE] = 0x7FFF_FFFF_FFFF_FFFF


class FetchTopic(Message, kw_only=True):
    topic: Annotated[str, Versions(4, 12), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[FetchPartition, ...]


class ForgottenTopic(Message, kw_only=True):
    topic: Annotated[str, Versions(7, 12), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[i32, ...]


@api(key=1, versions=(4, 18), flexible=12)
class FetchRequest(Message, kw_only=True):
    cluster_id: Annotated[str | None, Versions(12), Tag(0), IGNORABLE] = None
    replica_id: Annotated[i32, Versions(4, 14)] = -1
    replica_state: Annotated[ReplicaState, Versions(15), Tag(1)] = ReplicaState()
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = 0x7FFFFFFF
    isolation_level: i8 = 0
    session_id: Annotated[i32, Versions(7), IGNORABLE] = 0
    session_epoch: Annotated[i32, Versions(7), IGNORABLE] = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Versions(7)] = ()
    rack_id: Annotated[str, Versions(11), IGNORABLE] = ""


class EpochEndOffset(Message, kw_only=True):
    epoch: i32 = -1
    end_offset: i64 = -1


class SnapshotId(Message, kw_only=True):
    end_offset: i64 = -1
    epoch: i32 = -1


class AbortedTransaction(Message, kw_only=True):
    producer_id: i64
    first_offset: i64


class PartitionData(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0
    high_watermark: i64
    last_stable_offset: i64 = -1
    log_start_offset: Annotated[i64, Versions(5), IGNORABLE] = -1
    diverging_epoch: Annotated[EpochEndOffset, Versions(12), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Versions(12), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Versions(12), Tag(2)] = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    preferred_read_replica: Annotated[i32, Versions(11)] = -1
    records: Records | None


class FetchableTopicResponse(Message, kw_only=True):
    topic: Annotated[str, Versions(4, 12), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[PartitionData, ...]


@answers(FetchRequest)
class FetchResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, Versions(7), IGNORABLE] = 0
    session_id: Annotated[i32, Versions(7)] = 0
    responses: tuple[FetchableTopicResponse, ...]
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Versions(16), Tag(0)] = ()


class ListOffsetsPartition(Message, kw_only=True):
    partition_index: i32
    current_leader_epoch: Annotated[i32, Versions(4), IGNORABLE] = -1
    timestamp: i64


class ListOffsetsTopic(Message, kw_only=True):
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@api(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Message, kw_only=True):
    replica_id: i32
    isolation_level: Annotated[i8, Versions(2)] = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: Annotated[i32, Versions(10), IGNORABLE] = 0


class ListOffsetsPartitionResponse(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0
    timestamp: i64 = -1
    offset: i64 = -1
    leader_epoch: Annotated[i32, Versions(4)] = -1


class ListOffsetsTopicResponse(Message, kw_only=True):
    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@answers(ListOffsetsRequest)
class ListOffsetsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(2), IGNORABLE] = 0
    topics: tuple[ListOffsetsTopicResponse, ...]


class OffsetForLeaderPartition(Message, kw_only=True):
    partition: i32
    current_leader_epoch: i32 = -1
    leader_epoch: i32


class OffsetForLeaderTopic(Message, kw_only=True):
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


@api(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message, kw_only=True):
    replica_id: Annotated[i32, Versions(3), IGNORABLE] = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class OffsetForLeaderEpochEndOffset(Message, kw_only=True):
    error_code: i16 = 0
    partition: i32
    leader_epoch: i32 = -1
    end_offset: i64 = -1


class OffsetForLeaderTopicResult(Message, kw_only=True):
    topic: str
    partitions: tuple[OffsetForLeaderEpochEndOffset, ...]


@answers(OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...]


class DeleteRecordsPartition(Message, kw_only=True):
    partition_index: i32
    offset: i64


class DeleteRecordsTopic(Message, kw_only=True):
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@api(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message, kw_only=True):
    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: i32


class DeleteRecordsPartitionResult(Message, kw_only=True):
    partition_index: i32
    low_watermark: i64
    error_code: i16 = 0


class DeleteRecordsTopicResult(Message, kw_only=True):
    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@answers(DeleteRecordsRequest)
class DeleteRecordsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...]


@api(key=22, versions=(0, 5), flexible=2)
class InitProducerIdRequest(Message, kw_only=True):
    transactional_id: str | None
    transaction_timeout_ms: i32
    producer_id: Annotated[i64, Versions(3)] = -1
    producer_epoch: Annotated[i16, Versions(3)] = -1


@answers(InitProducerIdRequest)
class InitProducerIdResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    producer_id: i64 = -1
    producer_epoch: i16
