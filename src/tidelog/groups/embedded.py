"""What consumers put into the opaque bytes of JoinGroup and SyncGroup.

The coordinator passes these through. It looks inside only to know which topics a group is subscribed to (offsets of
other topics may be deleted and expire) and to tell how many partitions a rebalance moved. Only version 0 is read, which
is the beginning of every later version.
"""

from struct import Struct
from typing import Final

from tidelog.errors import MalformedMessage
from tidelog.ids import TopicPartition
from tidelog.wire.primitives import i32
from tidelog.wire.schema import NEVER, Message, decode, stored

CONSUMER: Final = "consumer"
"""The protocol type of everything that calls itself a consumer; Connect and others have bytes of their own."""

_VERSION: Final = Struct(">h")


@stored(versions=(0, 0), flexible=NEVER)
class _Subscription(Message, kw_only=True):
    topics: tuple[str, ...]


class _AssignedTopic(Message, kw_only=True):
    topic: str
    partitions: tuple[i32, ...]


@stored(versions=(0, 0), flexible=NEVER)
class _Assignment(Message, kw_only=True):
    assigned_partitions: tuple[_AssignedTopic, ...]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if these bytes are not a consumer's subscription."""
    try:
        return frozenset(decode(_Subscription, 0, metadata, _VERSION.size).topics)
    except MalformedMessage:
        return None


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition] | None:
    """None if these bytes are not a consumer's assignment. Nothing at all is an assignment of nothing."""
    if not assignment:
        return frozenset()
    try:
        topics = decode(_Assignment, 0, assignment, _VERSION.size).assigned_partitions
    except MalformedMessage:
        return None
    return frozenset(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
