"""Tables of committed offsets: a group's positions, read, written and deleted."""

from typing import Annotated

from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.primitives import i16, i32, i64
from tidelog.wire.schema import IGNORABLE, NEVER, Message, Nullable, Versions, answers, api


class OffsetCommitRequestPartition(Message, kw_only=True):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Versions(6), IGNORABLE] = -1
    committed_metadata: str | None


class OffsetCommitRequestTopic(Message, kw_only=True):
    name: Annotated[str, Versions(2, 9), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[OffsetCommitRequestPartition, ...]


@api(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest(Message, kw_only=True):
    group_id: str
    generation_id_or_member_epoch: i32 = -1
    member_id: str
    group_instance_id: Annotated[str | None, Versions(7)] = None
    retention_time_ms: Annotated[i64, Versions(2, 4), IGNORABLE] = -1
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0


class OffsetCommitResponseTopic(Message, kw_only=True):
    name: Annotated[str, Versions(2, 9), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[OffsetCommitResponsePartition, ...]


@answers(OffsetCommitRequest)
class OffsetCommitResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(3), IGNORABLE] = 0
    topics: tuple[OffsetCommitResponseTopic, ...]


class OffsetFetchRequestTopic(Message, kw_only=True):
    name: str
    partition_indexes: tuple[i32, ...]


class OffsetFetchRequestTopics(Message, kw_only=True):
    name: Annotated[str, Versions(8, 9), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    partition_indexes: tuple[i32, ...]


class OffsetFetchRequestGroup(Message, kw_only=True):
    group_id: str
    member_id: Annotated[str | None, Versions(9), IGNORABLE] = None
    member_epoch: Annotated[i32, Versions(9), IGNORABLE] = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


@api(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest(Message, kw_only=True):
    group_id: Annotated[str, Versions(1, 7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, Versions(1, 7), Nullable(2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Versions(8)] = ()
    require_stable: Annotated[bool, Versions(7)] = False


class OffsetFetchResponsePartition(Message, kw_only=True):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: Annotated[i32, Versions(5), IGNORABLE] = -1
    metadata: str | None
    error_code: i16 = 0


class OffsetFetchResponseTopic(Message, kw_only=True):
    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponsePartitions(Message, kw_only=True):
    partition_index: i32
    committed_offset: i64
    committed_leader_epoch: i32 = -1
    metadata: str | None
    error_code: i16 = 0


class OffsetFetchResponseTopics(Message, kw_only=True):
    name: Annotated[str, Versions(8, 9), IGNORABLE] = ""
    topic_id: Annotated[TopicId, Versions(10), IGNORABLE] = NO_TOPIC_ID
    partitions: tuple[OffsetFetchResponsePartitions, ...]


class OffsetFetchResponseGroup(Message, kw_only=True):
    group_id: str
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: i16 = 0


@answers(OffsetFetchRequest)
class OffsetFetchResponse(Message, kw_only=True):
    throttle_time_ms: Annotated[i32, Versions(3), IGNORABLE] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Versions(1, 7)] = ()
    error_code: Annotated[i16, Versions(2, 7), IGNORABLE] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Versions(8)] = ()


class OffsetDeleteRequestPartition(Message, kw_only=True):
    partition_index: i32


class OffsetDeleteRequestTopic(Message, kw_only=True):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


@api(key=47, versions=(0, 0), flexible=NEVER)
class OffsetDeleteRequest(Message, kw_only=True):
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0


class OffsetDeleteResponseTopic(Message, kw_only=True):
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@answers(OffsetDeleteRequest)
class OffsetDeleteResponse(Message, kw_only=True):
    error_code: i16 = 0
    throttle_time_ms: i32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...]
