"""Tables for who is in the cluster and which topics exist: ApiVersions, Metadata, topic creation and deletion."""

from typing import Annotated

from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.primitives import i8, i16, i32, i64
from tidelog.wire.schema import IGNORABLE, Message, Nullable, Tag, Versions, answers, api


@api(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Message, kw_only=True):
    client_software_name: Annotated[str, Versions(3), IGNORABLE] = ""
    client_software_version: Annotated[str, Versions(3), IGNORABLE] = ""


class ApiVersion(Message, kw_only=True):
    api_key: i16
    min_version: i16
    max_version: i16


class SupportedFeatureKey(Message, kw_only=True):
    name: str
    min_version: i16
    max_version: i16


class FinalizedFeatureKey(Message, kw_only=True):
    name: str
    max_version_level: i16
    min_version_level: i16


@answers(ApiVersionsRequest)
class ApiVersionsResponse(Message, kw_only=True):
    error_code: i16 = 0
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Versions(3), Tag(0), IGNORABLE] = ()
    finalized_features_epoch: Annotated[i64, Versions(3), Tag(1), IGNORABLE] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Versions(3), Tag(2), IGNORABLE] = ()
    zk_migration_ready: Annotated[bool, Versions(3), Tag(3), IGNORABLE] = False


class MetadataRequestTopic(Message, kw_only=True):
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    name: Annotated[str | None, Nullable(10)]


@api(key=3, versions=(0, 13), flexible=9)
class MetadataRequest(Message, kw_only=True):
    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, Nullable(1)]
    allow_auto_topic_creation: Annotated[bool, Versions(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[bool, Versions(8)] = False


class MetadataResponseBroker(Message, kw_only=True):
    node_id: i32
    host: str
    port: i32
    rack: Annotated[str | None, Versions(1), IGNORABLE] = None


class MetadataResponsePartition(Message, kw_only=True):
    error_code: i16 = 0
    partition_index: i32
    leader_id: i32
    leader_epoch: Annotated[i32, Versions(7), IGNORABLE] = -1
    replica_nodes: tuple[i32, ...]
    isr_nodes: tuple[i32, ...]
    offline_replicas: Annotated[tuple[i32, ...], Versions(5), IGNORABLE] = ()


class MetadataResponseTopic(Message, kw_only=True):
    error_code: i16 = 0
    name: Annotated[str | None, Nullable(12)]
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    is_internal: Annotated[bool, Versions(1), IGNORABLE] = False
    partitions: tuple[MetadataResponsePartition, ...]
    topic_authorized_operations: Annotated[i32, Versions(8)] = -(2**31)


@answers(MetadataRequest)
class MetadataResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(3), IGNORABLE] = 0
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: Annotated[str | None, Versions(2), IGNORABLE] = None
    controller_id: Annotated[i32, Versions(1), IGNORABLE] = -1
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: Annotated[i32, Versions(8, 10)] = -(2**31)
    error_code: Annotated[i16, Versions(13), IGNORABLE] = 0


class CreatableReplicaAssignment(Message, kw_only=True):
    partition_index: i32
    broker_ids: tuple[i32, ...]


class CreatableTopicConfig(Message, kw_only=True):
    name: str
    value: str | None


class CreatableTopic(Message, kw_only=True):
    name: str
    num_partitions: i32
    replication_factor: i16
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@api(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Message, kw_only=True):
    topics: tuple[CreatableTopic, ...]
    timeout_ms: i32 = 60000
    validate_only: bool = False


class CreatableTopicConfigs(Message, kw_only=True):
    name: str
    value: str | None
    read_only: bool
    config_source: i8 = -1
    is_sensitive: bool


class CreatableTopicResult(Message, kw_only=True):
    name: str
    topic_id: Annotated[TopicId, Versions(7), IGNORABLE] = NO_TOPIC_ID
    error_code: i16 = 0
    error_message: str | None = None
    topic_config_error_code: Annotated[i16, Versions(5), Tag(0), IGNORABLE] = 0
    num_partitions: Annotated[i32, Versions(5), IGNORABLE] = -1
    replication_factor: Annotated[i16, Versions(5), IGNORABLE] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Versions(5), IGNORABLE] = ()


@answers(CreateTopicsRequest)
class CreateTopicsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[CreatableTopicResult, ...]


class DeleteTopicState(Message, kw_only=True):
    name: str | None = None
    topic_id: TopicId


@api(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Message, kw_only=True):
    topics: Annotated[tuple[DeleteTopicState, ...], Versions(6)] = ()
    topic_names: Annotated[tuple[str, ...], Versions(1, 5), IGNORABLE] = ()
    timeout_ms: i32


class DeletableTopicResult(Message, kw_only=True):
    name: Annotated[str | None, Nullable(6)]
    topic_id: Annotated[TopicId, Versions(6), IGNORABLE] = NO_TOPIC_ID
    error_code: i16 = 0
    error_message: Annotated[str | None, Versions(5), IGNORABLE] = None


@answers(DeleteTopicsRequest)
class DeleteTopicsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    responses: tuple[DeletableTopicResult, ...]


class CreatePartitionsAssignment(Message, kw_only=True):
    broker_ids: tuple[i32, ...]


class CreatePartitionsTopic(Message, kw_only=True):
    name: str
    count: i32
    assignments: tuple[CreatePartitionsAssignment, ...] | None


@api(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message, kw_only=True):
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: i32
    validate_only: bool


class CreatePartitionsTopicResult(Message, kw_only=True):
    name: str
    error_code: i16 = 0
    error_message: str | None = None


@answers(CreatePartitionsRequest)
class CreatePartitionsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    results: tuple[CreatePartitionsTopicResult, ...]


@api(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Message, kw_only=True):
    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[i8, Versions(1)] = 1
    include_fenced_brokers: Annotated[bool, Versions(2)] = False


class DescribeClusterBroker(Message, kw_only=True):
    broker_id: i32
    host: str
    port: i32
    rack: str | None = None
    is_fenced: Annotated[bool, Versions(2)] = False


@answers(DescribeClusterRequest)
class DescribeClusterResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[i8, Versions(1)] = 1
    cluster_id: str
    controller_id: i32 = -1
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: i32 = -(2**31)


class DescribeTopicPartitionsRequestTopic(Message, kw_only=True):
    name: str


class Cursor(Message, kw_only=True):
    topic_name: str
    partition_index: i32


@api(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Message, kw_only=True):
    topics: tuple[DescribeTopicPartitionsRequestTopic, ...]
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message, kw_only=True):
    error_code: i16 = 0
    partition_index: i32
    leader_id: i32
    leader_epoch: i32 = -1
    replica_nodes: tuple[i32, ...]
    isr_nodes: tuple[i32, ...]
    eligible_leader_replicas: tuple[i32, ...] | None = None
    last_known_elr: tuple[i32, ...] | None = None
    offline_replicas: tuple[i32, ...]


class DescribeTopicPartitionsResponseTopic(Message, kw_only=True):
    error_code: i16 = 0
    name: str | None
    topic_id: TopicId
    is_internal: bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...]
    topic_authorized_operations: i32 = -(2**31)


@answers(DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...]
    next_cursor: Cursor | None = None
