"""Tables of consumer groups: finding a coordinator, the classic protocol, KIP-848's, and describing both."""

from typing import Annotated

from tidelog.ids import TopicId
from tidelog.wire.primitives import Bytes, i8, i16, i32
from tidelog.wire.schema import IGNORABLE, Message, Nullable, Versions, answers, api


@api(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Message, kw_only=True):
    key: Annotated[str, Versions(0, 3)] = ""
    key_type: Annotated[i8, Versions(1)] = 0
    coordinator_keys: Annotated[tuple[str, ...], Versions(4)] = ()


class Coordinator(Message, kw_only=True):
    key: str
    node_id: i32
    host: str
    port: i32
    error_code: i16 = 0
    error_message: str | None = None


@answers(FindCoordinatorRequest)
class FindCoordinatorResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    error_code: Annotated[i16, Versions(0, 3)] = 0
    error_message: Annotated[str | None, Versions(1, 3), IGNORABLE] = None
    node_id: Annotated[i32, Versions(0, 3)] = 0
    host: Annotated[str, Versions(0, 3)] = ""
    port: Annotated[i32, Versions(0, 3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], Versions(4)] = ()


class JoinGroupRequestProtocol(Message, kw_only=True):
    name: str
    metadata: Bytes


@api(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Message, kw_only=True):
    group_id: str
    session_timeout_ms: i32
    rebalance_timeout_ms: Annotated[i32, Versions(1), IGNORABLE] = -1
    member_id: str
    group_instance_id: Annotated[str | None, Versions(5)] = None
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: Annotated[str | None, Versions(8), IGNORABLE] = None


class JoinGroupResponseMember(Message, kw_only=True):
    member_id: str
    group_instance_id: Annotated[str | None, Versions(5), IGNORABLE] = None
    metadata: Bytes


@answers(JoinGroupRequest)
class JoinGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(2), IGNORABLE] = 0
    error_code: i16 = 0
    generation_id: i32 = -1
    protocol_type: Annotated[str | None, Versions(7), IGNORABLE] = None
    protocol_name: Annotated[str | None, Nullable(7)]
    leader: str
    skip_assignment: Annotated[bool, Versions(9)] = False
    member_id: str
    members: tuple[JoinGroupResponseMember, ...]


class SyncGroupRequestAssignment(Message, kw_only=True):
    member_id: str
    assignment: Bytes


@api(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Message, kw_only=True):
    group_id: str
    generation_id: i32
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3)] = None
    protocol_type: Annotated[str | None, Versions(5), IGNORABLE] = None
    protocol_name: Annotated[str | None, Versions(5), IGNORABLE] = None
    assignments: tuple[SyncGroupRequestAssignment, ...]


@answers(SyncGroupRequest)
class SyncGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    error_code: i16 = 0
    protocol_type: Annotated[str | None, Versions(5), IGNORABLE] = None
    protocol_name: Annotated[str | None, Versions(5), IGNORABLE] = None
    assignment: Bytes


@api(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message, kw_only=True):
    group_id: str
    generation_id: i32
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3)] = None


@answers(HeartbeatRequest)
class HeartbeatResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    error_code: i16 = 0


class MemberIdentity(Message, kw_only=True):
    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, Versions(5), IGNORABLE] = None


@api(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message, kw_only=True):
    group_id: str
    member_id: Annotated[str, Versions(0, 2)] = ""
    members: Annotated[tuple[MemberIdentity, ...], Versions(3)] = ()


class MemberResponse(Message, kw_only=True):
    member_id: str
    group_instance_id: str | None
    error_code: i16 = 0


@answers(LeaveGroupRequest)
class LeaveGroupResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    error_code: i16 = 0
    members: Annotated[tuple[MemberResponse, ...], Versions(3)] = ()


class ConsumerGroupHeartbeatTopicPartitions(Message, kw_only=True):
    topic_id: TopicId
    partitions: tuple[i32, ...]


@api(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message, kw_only=True):
    group_id: str
    member_id: str
    member_epoch: i32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: i32 = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: Annotated[str | None, Versions(1)] = None
    server_assignor: str | None = None
    topic_partitions: tuple[ConsumerGroupHeartbeatTopicPartitions, ...] | None = None


class ConsumerGroupHeartbeatAssignment(Message, kw_only=True):
    topic_partitions: tuple[ConsumerGroupHeartbeatTopicPartitions, ...]


@answers(ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: i32
    heartbeat_interval_ms: i32
    assignment: ConsumerGroupHeartbeatAssignment | None = None


@api(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest(Message, kw_only=True):
    group_ids: tuple[str, ...]
    include_authorized_operations: bool


class ConsumerGroupDescribeTopicPartitions(Message, kw_only=True):
    topic_id: TopicId
    topic_name: str
    partitions: tuple[i32, ...]


class ConsumerGroupDescribeAssignment(Message, kw_only=True):
    topic_partitions: tuple[ConsumerGroupDescribeTopicPartitions, ...]


class ConsumerGroupDescribeMember(Message, kw_only=True):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: i32
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: Annotated[i8, Versions(1), IGNORABLE] = -1


class ConsumerGroupDescribedGroup(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: i32
    assignment_epoch: i32
    assignor_name: str
    members: tuple[ConsumerGroupDescribeMember, ...]
    authorized_operations: i32 = -(2**31)


@answers(ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    groups: tuple[ConsumerGroupDescribedGroup, ...]


@api(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Message, kw_only=True):
    groups: tuple[str, ...]
    include_authorized_operations: Annotated[bool, Versions(3)] = False


class DescribedGroupMember(Message, kw_only=True):
    member_id: str
    group_instance_id: Annotated[str | None, Versions(4), IGNORABLE] = None
    client_id: str
    client_host: str
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Message, kw_only=True):
    error_code: i16 = 0
    error_message: Annotated[str | None, Versions(6), IGNORABLE] = None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedGroupMember, ...]
    authorized_operations: Annotated[i32, Versions(3)] = -(2**31)


@answers(DescribeGroupsRequest)
class DescribeGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    groups: tuple[DescribedGroup, ...]


@api(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Message, kw_only=True):
    states_filter: Annotated[tuple[str, ...], Versions(4)] = ()
    types_filter: Annotated[tuple[str, ...], Versions(5)] = ()


class ListedGroup(Message, kw_only=True):
    group_id: str
    protocol_type: str
    group_state: Annotated[str, Versions(4), IGNORABLE] = ""
    group_type: Annotated[str, Versions(5), IGNORABLE] = ""


@answers(ListGroupsRequest)
class ListGroupsResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(1), IGNORABLE] = 0
    error_code: i16 = 0
    groups: tuple[ListedGroup, ...]


@api(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Message, kw_only=True):
    groups_names: tuple[str, ...]


class DeletableGroupResult(Message, kw_only=True):
    group_id: str
    error_code: i16 = 0


@answers(DeleteGroupsRequest)
class DeleteGroupsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    results: tuple[DeletableGroupResult, ...]
