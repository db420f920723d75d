"""OffsetCommit as consumers send it all day, offsets without metadata, in columns; and its answer.

Without metadata every partition of a commit takes the same number of bytes, so one call unpacks all of them and no
object is made for any. `decode_commit` recognises exactly that shape and answers None to everything else, also to
anything malformed: the compiled tables then say what it is. Tested equal to them.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct, error
from typing import Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.decoder import STRING_MAX
from tidelog.wire.frames import encode_response
from tidelog.wire.primitives import read_uvarint, uuid_of, uvarint
from tidelog.wire.records import SMALL_VARINTS

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
_EPOCH: Final = Struct(">ih").unpack_from  # generation or member epoch, length of the member's id
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


class PlainCommit(NamedTuple):
    """An OffsetCommit without metadata and without a retention of its own."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[TopicOffsets, ...]


def decode_commit(frame: memoryview, offset: int, version: int) -> PlainCommit | None:
    data = bytes(frame[offset:])
    try:
        return _flexible(data, version) if version >= FLEXIBLE_SINCE else _legacy(data, version)
    except (error, IndexError, UnicodeDecodeError, MalformedMessage):
        return None


# Below, that a string ends outside the message shows in what is read behind it: there is always something.


def _legacy(data: bytes, version: int) -> PlainCommit | None:
    size = _I16(data)[0]
    p = 2 + size
    if size < 0:
        return None
    group_id = data[2:p].decode()
    epoch, size = _EPOCH(data, p)
    p += 6
    if size < 0:
        return None
    member_id = data[p : (p := p + size)].decode()
    instance_id = None
    if version >= INSTANCES_SINCE:
        size = _I16(data, p)[0]
        p += 2
        if size >= 0:
            instance_id = data[p : (p := p + size)].decode()
        elif size != -1:
            return None
    elif version <= WITH_RETENTION_UNTIL:
        if _I64(data, p)[0] != -1:
            return None
        p += 8
    topic_count = _I32(data, p)[0]
    p += 4
    layout = _PARTITION_V6 if version >= LEADER_EPOCHS_SINCE else _PARTITION_V2
    room = PARTITIONS_MAX
    topics = []
    for _ in range(topic_count):
        size = _I16(data, p)[0]
        p += 2
        if size < 0:
            return None
        name = data[p : (p := p + size)].decode()
        count = _I32(data, p)[0]
        p += 4
        room -= count
        stop = p + count * layout.size
        if count <= 0 or room < 0 or stop > len(data):
            return None
        topic = _columns(name, NO_TOPIC_ID, layout, data[p:stop], _EMPTY)
        if topic is None:
            return None
        topics.append(topic)
        p = stop
    return PlainCommit(group_id, epoch, member_id, instance_id, tuple(topics)) if topics else None


def _flexible(data: bytes, version: int) -> PlainCommit | None:
    size, p = read_uvarint(data, 0)
    if size == 0:
        return None
    group_id = data[p : (p := p + size - 1)].decode()
    epoch = _I32(data, p)[0]
    size, p = read_uvarint(data, p + 4)
    if size == 0:
        return None
    member_id = data[p : (p := p + size - 1)].decode()
    size, p = read_uvarint(data, p)
    instance_id = None if size == 0 else data[p : (p := p + size - 1)].decode()
    topic_count, p = read_uvarint(data, p)
    room = PARTITIONS_MAX
    topics = []
    for _ in range(topic_count - 1):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_SINCE:
            topic_id = TopicId(uuid_of(_TOPIC_ID(data, p)[0]))
            p += 16
        else:
            size, p = read_uvarint(data, p)
            if size == 0:
                return None
            name = data[p : (p := p + size - 1)].decode()
        count, p = read_uvarint(data, p)
        count -= 1
        room -= count
        stop = p + count * _PARTITION_V8.size
        if count <= 0 or room < 0 or stop >= len(data) or data[stop] != 0:  # tags of the topic
            return None
        topic = _columns(name, topic_id, _PARTITION_V8, data[p:stop], _EMPTY_COMPACT)
        if topic is None:
            return None
        topics.append(topic)
        p = stop + 1
    if not topics or data[p] != 0:  # tags of the request
        return None
    if len(data) > STRING_MAX:
        texts = (group_id, member_id, instance_id or "", *(topic.name for topic in topics))
        if max(len(text.encode()) for text in texts) > STRING_MAX:
            return None
    return PlainCommit(group_id, epoch, member_id, instance_id, tuple(topics))


def _columns(name: str, topic_id: TopicId, layout: Struct, data: bytes, empty: frozenset[int]) -> TopicOffsets | None:
    """None if any partition has metadata. The first that has is found: up to there the layout is the true one."""
    columns = tuple(zip(*layout.iter_unpack(data), strict=True))
    if not empty.issuperset(columns[-1]):
        return None
    epochs = columns[2] if layout is not _PARTITION_V2 else (-1,) * len(columns[0])
    return TopicOffsets(name, topic_id, columns[0], columns[1], epochs)


def encode_commit_response(version: int, correlation_id: int, topics: Sequence[TopicOffsets], error_code: int) -> bytes:
    """The whole frame: this code for each partition."""
    flexible = version >= FLEXIBLE_SINCE
    parts = [_NOT_THROTTLED if version >= THROTTLED_SINCE else b"", _count(len(topics), flexible)]
    for topic in topics:
        if version >= TOPIC_IDS_SINCE:
            parts.append(topic.topic_id.bytes)
        else:
            name = topic.name.encode()
            parts += (uvarint(len(name) + 1) if flexible else _SHORT(len(name)), name)
        parts.append(_answers(topic.partitions, error_code, flexible))
    if flexible:
        parts.append(_NO_TAGS)
    return encode_response(API_KEY, version, correlation_id, b"".join(parts))


@lru_cache(maxsize=128)
def _answers(partitions: tuple[int, ...], error_code: int, flexible: bool) -> bytes:
    """Who commits some partitions will commit them again, and be told the same."""
    count = _count(len(partitions), flexible)
    answers = map(_ANSWER_COMPACT if flexible else _ANSWER, partitions, repeat(error_code))
    return b"".join((count, *answers, _NO_TAGS if flexible else b""))


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT(count)
