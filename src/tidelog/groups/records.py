"""What is written to `__consumer_offsets`: Kafka's own records, byte for byte.

A key is a record type (i16) and the fields that identify something; a value is a version (i16) and its fields; a
missing value deletes. Values are written in the version that Kafka 4.x writes and read in every version it ever wrote.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.primitives import Bytes, i8, i32, i64
from tidelog.wire.schema import IGNORABLE, NEVER, Message, Nullable, Tag, Versions, decode, encode, stored

__all__ = [
    "COMMIT_VERSION",
    "NO_TAGS",
    "TOPIC_ID_TAG",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "CurrentTopicPartitions",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "GroupRecord",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TargetTopicPartitions",
    "commit_key_start",
    "decode_record",
    "encode_record",
]

# Keys -----------------------------------------------------------------------------------------------------------------


@stored(versions=(0, 0), flexible=NEVER)
class OffsetCommitKey(Message, kw_only=True):
    group: str
    topic: str
    partition: i32


@stored(versions=(0, 0), flexible=NEVER)
class GroupMetadataKey(Message, kw_only=True):
    group: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupMetadataKey(Message, kw_only=True):
    group_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupPartitionMetadataKey(Message, kw_only=True):
    """No longer written since Kafka 4.1, which keeps a hash in the group's metadata instead."""

    group_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupMemberMetadataKey(Message, kw_only=True):
    group_id: str
    member_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupTargetAssignmentMetadataKey(Message, kw_only=True):
    group_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupTargetAssignmentMemberKey(Message, kw_only=True):
    group_id: str
    member_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupCurrentMemberAssignmentKey(Message, kw_only=True):
    group_id: str
    member_id: str


@stored(versions=(0, 0), flexible=NEVER)
class ConsumerGroupRegularExpressionKey(Message, kw_only=True):
    group_id: str
    regular_expression: str


# Values ---------------------------------------------------------------------------------------------------------------


@stored(versions=(0, 4), flexible=4)
class OffsetCommitValue(Message, kw_only=True):
    offset: i64
    leader_epoch: Annotated[i32, Versions(3), IGNORABLE] = -1
    metadata: str
    commit_timestamp: i64
    expire_timestamp: Annotated[i64, Versions(1, 1), IGNORABLE] = -1
    topic_id: Annotated[TopicId, Versions(4), Tag(0), IGNORABLE] = NO_TOPIC_ID


class MemberMetadata(Message, kw_only=True):
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3), Nullable(3), IGNORABLE] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[i32, Versions(1), IGNORABLE] = -1
    session_timeout: i32
    subscription: Bytes
    assignment: Bytes


@stored(versions=(0, 4), flexible=4)
class GroupMetadataValue(Message, kw_only=True):
    protocol_type: str
    generation: i32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[i64, Versions(2), IGNORABLE] = -1
    members: tuple[MemberMetadata, ...]


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message, kw_only=True):
    epoch: i32
    metadata_hash: Annotated[i64, Tag(0)] = 0


class PartitionRacks(Message, kw_only=True):
    partition: i32
    racks: tuple[str, ...]


class TopicMetadata(Message, kw_only=True):
    topic_id: TopicId
    topic_name: str
    num_partitions: i32
    partition_metadata: tuple[PartitionRacks, ...] = ()


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message, kw_only=True):
    topics: tuple[TopicMetadata, ...]


class ClassicProtocol(Message, kw_only=True):
    name: str
    metadata: Bytes


class ClassicMemberMetadata(Message, kw_only=True):
    """What a member of the classic protocol brought along when its group was upgraded."""

    session_timeout_ms: i32 = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


# Kafka's table has an empty struct as the default here, so that a null is written out.
_NOT_WRITTEN: Final = ClassicMemberMetadata()


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message, kw_only=True):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: i32 = -1
    server_assignor: str | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0)] = _NOT_WRITTEN
    """None for a member of the consumer protocol. Must be given."""


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message, kw_only=True):
    assignment_epoch: i32
    assignment_timestamp: Annotated[i64, Tag(0)] = 0


class TargetTopicPartitions(Message, kw_only=True):
    topic_id: TopicId
    partitions: tuple[i32, ...]


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message, kw_only=True):
    topic_partitions: tuple[TargetTopicPartitions, ...]


class CurrentTopicPartitions(Message, kw_only=True):
    topic_id: TopicId
    partitions: tuple[i32, ...]
    assignment_epochs: Annotated[tuple[i32, ...] | None, Tag(0)] = ()


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message, kw_only=True):
    member_epoch: i32
    previous_member_epoch: i32
    state: i8
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@stored(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message, kw_only=True):
    topics: tuple[str, ...]
    version: i64
    timestamp: i64


# The table ------------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    number: int
    key: type[Message]
    value: type[Message]
    version: int
    """In which values are written."""


_KINDS: Final = (
    _Kind(0, OffsetCommitKey, OffsetCommitValue, 4),
    _Kind(1, OffsetCommitKey, OffsetCommitValue, 4),
    _Kind(2, GroupMetadataKey, GroupMetadataValue, 3),
    _Kind(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    _Kind(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    _Kind(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    _Kind(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    _Kind(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    _Kind(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    _Kind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
)
_BY_NUMBER: Final[Mapping[int, _Kind]] = MappingProxyType({kind.number: kind for kind in _KINDS})
_BY_KEY: Final[Mapping[type[Message], _Kind]] = MappingProxyType({kind.key: kind for kind in _KINDS})
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i").pack

_EXPIRING_COMMIT: Final = 1
"""The only version of a commit with an expiry of its own, which clients before 2.1 may ask for."""


class GroupRecord(NamedTuple):
    key: Message
    value: Message | None
    """None deletes whatever `key` names."""


_COMMIT_VALUE: Final = struct.Struct(">hqiBq").pack  # version, offset, leader epoch, empty metadata, commit timestamp
COMMIT_VERSION: Final = _BY_KEY[OffsetCommitKey].version
TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tag: number 0, 16 bytes
NO_TAGS: Final = b"\x00"


@lru_cache(maxsize=4096)
def commit_key_start(group: str, topic: str) -> bytes:
    """All of a commit's key but the partition: the same for every commit of a group to a topic."""
    kind = _BY_KEY[OffsetCommitKey]
    return (_I16.pack(kind.number) + encode(OffsetCommitKey(group=group, topic=topic, partition=0), 0))[:-4]


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """A commit, which is written more often than all others together, without the tables' detour; equal to them."""
    key, commit = record
    if type(key) is not OffsetCommitKey or type(commit) is not OffsetCommitValue:
        return encode_by_table(record)
    if not commit.metadata and commit.expire_timestamp == -1:
        value = _COMMIT_VALUE(COMMIT_VERSION, commit.offset, commit.leader_epoch, 1, commit.commit_timestamp)
        topic_id = commit.topic_id.int  # a number: a UUID's own comparison and bytes cost more than all the rest
        tags = TOPIC_ID_TAG + topic_id.to_bytes(16, "big") if topic_id else NO_TAGS
        return commit_key_start(key.group, key.topic) + _I32(key.partition), value + tags
    return encode_by_table(record)


def encode_by_table(record: GroupRecord) -> tuple[bytes, bytes | None]:
    kind = _BY_KEY[type(record.key)]
    key = _I16.pack(kind.number) + encode(record.key, 0)
    value = record.value
    if value is None:
        return key, None
    version = kind.version
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        version = _EXPIRING_COMMIT
    return key, _I16.pack(version) + encode(value, version)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a record of a type from the future, which is skipped, as Kafka does. Raises MalformedMessage."""
    if len(key) < _I16.size:
        raise MalformedMessage("a group record without a type")
    kind = _BY_NUMBER.get(_I16.unpack_from(key)[0])
    if kind is None:
        return None
    decoded_key = decode(kind.key, 0, key, _I16.size)
    if value is None:
        return GroupRecord(decoded_key, None)
    if len(value) < _I16.size:
        raise MalformedMessage(f"{kind.value.__name__} without a version")
    return GroupRecord(decoded_key, decode(kind.value, _I16.unpack_from(value)[0], value, _I16.size))
