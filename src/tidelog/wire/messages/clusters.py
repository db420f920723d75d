"""Tables of what an administrator asks a cluster: elections, reassignments, the quorum, brokers that leave for good."""

from typing import Annotated
from uuid import UUID

from tidelog.wire.primitives import NO_UUID, i8, i16, i32, i64, u16
from tidelog.wire.schema import IGNORABLE, Message, Versions, answers, api


class ElectLeadersTopicPartitions(Message, kw_only=True):
    topic: str
    partitions: tuple[i32, ...]


@api(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message, kw_only=True):
    election_type: Annotated[i8, Versions(1)] = 0
    topic_partitions: tuple[ElectLeadersTopicPartitions, ...] | None
    """None is every partition."""
    timeout_ms: i32 = 60_000


class ElectLeadersPartitionResult(Message, kw_only=True):
    partition_id: i32
    error_code: i16 = 0
    error_message: str | None = None


class ReplicaElectionResult(Message, kw_only=True):
    topic: str
    partition_result: tuple[ElectLeadersPartitionResult, ...]


@answers(ElectLeadersRequest)
class ElectLeadersResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, Versions(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...]


class ReassignablePartition(Message, kw_only=True):
    partition_index: i32
    replicas: tuple[i32, ...] | None = None
    """None takes a reassignment back."""


class ReassignableTopic(Message, kw_only=True):
    name: str
    partitions: tuple[ReassignablePartition, ...]


@api(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message, kw_only=True):
    timeout_ms: i32 = 60_000
    allow_replication_factor_change: Annotated[bool, Versions(1)] = True
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0
    error_message: str | None = None


class ReassignableTopicResponse(Message, kw_only=True):
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


@answers(AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    allow_replication_factor_change: Annotated[bool, Versions(1), IGNORABLE] = True
    error_code: i16 = 0
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...]


class ListPartitionReassignmentsTopics(Message, kw_only=True):
    name: str
    partition_indexes: tuple[i32, ...]


@api(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Message, kw_only=True):
    timeout_ms: i32 = 60_000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


class OngoingPartitionReassignment(Message, kw_only=True):
    partition_index: i32
    replicas: tuple[i32, ...]
    adding_replicas: tuple[i32, ...]
    removing_replicas: tuple[i32, ...]


class OngoingTopicReassignment(Message, kw_only=True):
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


@answers(ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    topics: tuple[OngoingTopicReassignment, ...]


class DescribeQuorumPartition(Message, kw_only=True):
    partition_index: i32


class DescribeQuorumTopic(Message, kw_only=True):
    topic_name: str
    partitions: tuple[DescribeQuorumPartition, ...]


@api(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Message, kw_only=True):
    topics: tuple[DescribeQuorumTopic, ...]


class QuorumReplicaState(Message, kw_only=True):
    replica_id: i32
    replica_directory_id: Annotated[UUID, Versions(2)] = NO_UUID
    log_end_offset: i64
    last_fetch_timestamp: Annotated[i64, Versions(1), IGNORABLE] = -1
    last_caught_up_timestamp: Annotated[i64, Versions(1), IGNORABLE] = -1


class QuorumPartitionData(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0
    error_message: Annotated[str | None, Versions(2), IGNORABLE] = None
    leader_id: i32
    leader_epoch: i32
    high_watermark: i64
    current_voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]


class QuorumTopicData(Message, kw_only=True):
    topic_name: str
    partitions: tuple[QuorumPartitionData, ...]


class QuorumListener(Message, kw_only=True):
    name: str
    host: str
    port: u16


class QuorumNode(Message, kw_only=True):
    node_id: i32
    listeners: tuple[QuorumListener, ...]


@answers(DescribeQuorumRequest)
class DescribeQuorumResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: Annotated[str | None, Versions(2), IGNORABLE] = None
    topics: tuple[QuorumTopicData, ...]
    nodes: Annotated[tuple[QuorumNode, ...], Versions(2), IGNORABLE] = ()


class RaftVoterListener(Message, kw_only=True):
    name: str
    host: str
    port: u16


@api(key=80, versions=(0, 0), flexible=0)
class AddRaftVoterRequest(Message, kw_only=True):
    cluster_id: str | None = None
    timeout_ms: i32 = 30_000
    voter_id: i32
    voter_directory_id: UUID
    listeners: tuple[RaftVoterListener, ...] = ()


@answers(AddRaftVoterRequest)
class AddRaftVoterResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None


@api(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Message, kw_only=True):
    cluster_id: str | None = None
    voter_id: i32
    voter_directory_id: UUID


@answers(RemoveRaftVoterRequest)
class RemoveRaftVoterResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None


@api(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Message, kw_only=True):
    broker_id: i32


@answers(UnregisterBrokerRequest)
class UnregisterBrokerResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
