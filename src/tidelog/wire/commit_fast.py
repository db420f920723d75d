"""OffsetCommit as consumers send it all day, offsets without metadata, in columns; and its answer.

Without metadata every partition of a commit takes the same number of bytes, so one call unpacks all of them and no
object is made for any. `decode_commit` recognises exactly that shape and answers None to everything else, also to
anything malformed: the compiled tables then say what it is. Tested equal to them.
"""

from collections.abc import Sequence
from itertools import repeat
from struct import Struct, error
from typing import Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.frames import encode_response
from tidelog.wire.primitives import i16, i32, read_uvarint, uuid_of, uvarint
from tidelog.wire.records import SMALL_VARINTS
from tidelog.wire.schema import Message

API_KEY: Final = 8
THROTTLED_SINCE: Final = 3
WITH_RETENTION_UNTIL: Final = 4
LEADER_EPOCHS_SINCE: Final = 6
INSTANCES_SINCE: Final = 7
FLEXIBLE_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10

PARTITIONS_MAX: Final = SMALL_VARINTS
"""In one commit that is kept in columns."""

_I16: Final = Struct(">h").unpack_from
_I32: Final = Struct(">i").unpack_from
_I64: Final = Struct(">q").unpack_from
_TOPIC_ID: Final = Struct(">16s").unpack_from
_SHORT: Final = Struct(">h").pack
_INT: Final = Struct(">i").pack
_PARTITION_V2: Final = Struct(">iqh")  # index, offset, length of the metadata
_PARTITION_V6: Final = Struct(">iqih")  # with the leader's epoch
_PARTITION_V8: Final = Struct(">iqiH")  # the length in one byte, and no tags
_EMPTY: Final = frozenset({0, -1})  # as metadata, or none
_EMPTY_COMPACT: Final = frozenset({0x0000, 0x0100})
_NOT_THROTTLED: Final = bytes(4)
_NO_TAGS: Final = b"\0"
_ANSWER: Final = Struct(">ih").pack
_ANSWER_COMPACT: Final = Struct(">ihx").pack


class TopicOffsets(NamedTuple):
    """What is committed of one topic: three columns of equal length."""

    name: str
    topic_id: TopicId
    partitions: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]


class PlainCommit(Message, kw_only=True):
    """An OffsetCommit without metadata and without a retention of its own."""

    group_id: str
    generation_id_or_member_epoch: i32
    member_id: str
    group_instance_id: str | None
    topics: tuple[TopicOffsets, ...]


class PlainCommitResponse(Message, kw_only=True):
    """All partitions are answered with the same code."""

    error_code: i16 = 0


def decode_commit(frame: memoryview, offset: int, version: int) -> PlainCommit | None:
    data = bytes(frame[offset:])
    try:
        return _flexible(data, version) if version >= FLEXIBLE_SINCE else _legacy(data, version)
    except (error, IndexError, UnicodeDecodeError, MalformedMessage):
        return None


def _legacy(data: bytes, version: int) -> PlainCommit | None:
    group_id, p = _legacy_string(data, 0)
    epoch = _I32(data, p)[0]
    member_id, p = _legacy_string(data, p + 4)
    instance_id = None
    if version >= INSTANCES_SINCE:
        if _I16(data, p)[0] == -1:
            p += 2
        else:
            instance_id, p = _legacy_string(data, p)
    elif version <= WITH_RETENTION_UNTIL:
        if _I64(data, p)[0] != -1:
            return None
        p += 8
    layout = _PARTITION_V6 if version >= LEADER_EPOCHS_SINCE else _PARTITION_V2
    room = PARTITIONS_MAX
    topics = []
    count = _I32(data, p)[0]
    p += 4
    if not 0 < count <= room:
        return None
    for _ in range(count):
        name, p = _legacy_string(data, p)
        partitions = _I32(data, p)[0]
        p += 4
        stop = p + partitions * layout.size
        room -= partitions
        if partitions <= 0 or room < 0 or stop > len(data):
            return None
        topic = _columns(name, NO_TOPIC_ID, layout, data[p:stop], _EMPTY)
        if topic is None:
            return None
        topics.append(topic)
        p = stop
    return _commit(group_id, epoch, member_id, instance_id, topics)


def _flexible(data: bytes, version: int) -> PlainCommit | None:
    group_id, p = _compact_string(data, 0)
    epoch = _I32(data, p)[0]
    member_id, p = _compact_string(data, p + 4)
    instance_id = None
    if data[p] == 0:
        p += 1
    else:
        instance_id, p = _compact_string(data, p)
    room = PARTITIONS_MAX
    topics = []
    count, p = read_uvarint(data, p)
    if not 1 < count <= room:
        return None
    for _ in range(count - 1):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_SINCE:
            topic_id = TopicId(uuid_of(_TOPIC_ID(data, p)[0]))
            p += 16
        else:
            name, p = _compact_string(data, p)
        partitions, p = read_uvarint(data, p)
        partitions -= 1
        stop = p + partitions * _PARTITION_V8.size
        room -= partitions
        if partitions <= 0 or room < 0 or stop >= len(data) or data[stop] != 0:  # tags of the topic
            return None
        topic = _columns(name, topic_id, _PARTITION_V8, data[p:stop], _EMPTY_COMPACT)
        if topic is None:
            return None
        topics.append(topic)
        p = stop + 1
    return None if data[p] != 0 else _commit(group_id, epoch, member_id, instance_id, topics)


def _commit(
    group_id: str, epoch: int, member_id: str, instance_id: str | None, topics: list[TopicOffsets]
) -> PlainCommit:
    return PlainCommit(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=tuple(topics),
    )


def _columns(name: str, topic_id: TopicId, layout: Struct, data: bytes, empty: frozenset[int]) -> TopicOffsets | None:
    """None if any partition has metadata. The first that has is found: up to there the layout is the true one."""
    partitions, offsets, *epochs, lengths = zip(*layout.iter_unpack(data), strict=True)
    if not empty.issuperset(lengths):
        return None
    return TopicOffsets(name, topic_id, partitions, offsets, epochs[0] if epochs else (-1,) * len(partitions))


def _legacy_string(data: bytes, p: int) -> tuple[str, int]:
    p += 2
    return _string(data, p, p + _I16(data, p - 2)[0])


def _compact_string(data: bytes, p: int) -> tuple[str, int]:
    length, p = read_uvarint(data, p)
    return _string(data, p, p + length - 1)


def _string(data: bytes, p: int, stop: int) -> tuple[str, int]:
    if not p <= stop <= len(data):
        raise MalformedMessage("a string's length is outside the message")
    return data[p:stop].decode(), stop


def encode_commit_response(version: int, correlation_id: int, topics: Sequence[TopicOffsets], error_code: int) -> bytes:
    """The whole frame: this code for each partition."""
    flexible = version >= FLEXIBLE_SINCE
    answer = _ANSWER_COMPACT if flexible else _ANSWER
    parts = [_NOT_THROTTLED if version >= THROTTLED_SINCE else b"", _count(len(topics), flexible)]
    for topic in topics:
        if version >= TOPIC_IDS_SINCE:
            parts.append(topic.topic_id.bytes)
        else:
            name = topic.name.encode()
            parts += (uvarint(len(name) + 1) if flexible else _SHORT(len(name)), name)
        parts.append(_count(len(topic.partitions), flexible))
        parts += map(answer, topic.partitions, repeat(error_code))
        if flexible:
            parts.append(_NO_TAGS)
    if flexible:
        parts.append(_NO_TAGS)
    return encode_response(API_KEY, version, correlation_id, b"".join(parts))


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT(count)
