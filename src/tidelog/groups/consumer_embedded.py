"""What classic members put into JoinGroup and expect back from SyncGroup, read and written for a consumer group.

While a group is migrated, the coordinator itself plays the leader's part for its classic members, so it must understand
the bytes that it otherwise only passes on: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment 0-3.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Annotated, Final

from tidelog.errors import MalformedMessage
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import Slot
from tidelog.groups.consumer_topics import Topics
from tidelog.ids import TopicPartition
from tidelog.wire.primitives import Bytes, i32
from tidelog.wire.schema import IGNORABLE, NEVER, Message, Versions, decode, encode, stored

VERSION_MAX: Final = 3
_VERSION: Final = Struct(">h")


class EmbeddedPartitions(Message, kw_only=True):
    topic: str
    partitions: tuple[i32, ...]


@stored(versions=(0, VERSION_MAX), flexible=NEVER)
class Subscription(Message, kw_only=True):
    topics: tuple[str, ...]
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[EmbeddedPartitions, ...], Versions(1), IGNORABLE] = ()
    generation_id: Annotated[i32, Versions(2), IGNORABLE] = -1
    rack_id: Annotated[str | None, Versions(3), IGNORABLE] = None


@stored(versions=(0, VERSION_MAX), flexible=NEVER)
class EmbeddedAssignment(Message, kw_only=True):
    assigned_partitions: tuple[EmbeddedPartitions, ...]
    user_data: Bytes | None = None


def read_version(metadata: bytes) -> int:
    """Later versions begin as the last one we know. Raises MalformedMessage."""
    if len(metadata) < _VERSION.size:
        raise MalformedMessage("a consumer's metadata without a version")
    version: int = _VERSION.unpack_from(metadata)[0]
    if version < 0:
        raise MalformedMessage(f"a consumer's metadata of version {version}")
    return min(version, VERSION_MAX)


def read_subscription(metadata: bytes) -> Subscription:
    """Raises MalformedMessage."""
    return decode(Subscription, read_version(metadata), metadata, _VERSION.size)


def write_assignment(assignment: Assignment, topics: Topics, metadata: bytes) -> bytes:
    """In the version in which the member wrote its subscription `metadata`."""
    version = read_version(metadata)
    named = ((topics.name_of(topic_id), numbers) for topic_id, numbers in assignment.items())
    message = EmbeddedAssignment(
        assigned_partitions=tuple(
            EmbeddedPartitions(topic=name, partitions=tuple(sorted(numbers)))
            for name, numbers in sorted((name, numbers) for name, numbers in named if name is not None)
        )
    )
    return _VERSION.pack(version) + encode(message, version)


def owned_slots(subscription: Subscription, topics: Topics) -> frozenset[Slot]:
    """What the member says it keeps. An eager one, or one too old to say, has given up everything before it joins."""
    return slots_named(
        (TopicPartition(one.topic, number) for one in subscription.owned_partitions for number in one.partitions),
        topics,
    )


def slots_named(partitions: Iterable[TopicPartition], topics: Topics) -> frozenset[Slot]:
    """By topic id. Topics that no longer exist drop out."""
    found = ((topics.find(one.topic), one.partition) for one in partitions)
    return frozenset((topic.topic_id, number) for topic, number in found if topic is not None)
