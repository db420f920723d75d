"""Produce of one batch to one partition: the request every low-latency client sends, and its answer, without objects.

`decode_one` recognises exactly that shape and answers None to everything else, also to anything malformed: the compiled
tables then say what it is. Tested equal to them.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.primitives import read_uvarint, uuid_of

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13

_LEGACY_START: Final = Struct(
    ">hhiih"
).unpack_from  # length of the transactional id, acks, timeout, one topic, its name's length
_LEGACY_LENGTH: Final = Struct(">h").unpack_from
_LEGACY_PARTITION: Final = Struct(">iii").unpack_from  # one partition, its index, its records' length
_FLEXIBLE_START: Final = Struct(">bhibB").unpack_from  # the same in compact form
_FLEXIBLE_PARTITION: Final = Struct(">bi").unpack_from

_LEGACY_HEAD: Final = Struct(">iiih").pack  # frame length, correlation id, one topic, its name's length
_TAIL_V3: Final = Struct(">iihqqi").pack  # one partition, index, error, base offset, append time, throttle time
_TAIL_V5: Final = Struct(">iihqqqi").pack
_TAIL_V8: Final = Struct(">iihqqqihi").pack  # with no record errors and a null error message
_FLEXIBLE_HEAD: Final = Struct(">iixb").pack
# one partition, index, error, offsets, no record errors, null error message, tags, tags of the topic, throttle, tags
_FLEXIBLE_TAIL: Final = Struct(">bihqqqbbxxix").pack


class OneBatch(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str
    topic_id: TopicId
    partition: int
    records: memoryview
    name: bytes
    """The topic as it stood in the request, to be sent back: its name, or its id."""


def decode_one(buffer: memoryview, offset: int, version: int) -> OneBatch | None:
    try:
        if version >= FLEXIBLE_SINCE:
            return _decode_flexible(buffer, offset, version >= TOPIC_IDS_SINCE)
        transactional_id = None
        (length,) = _LEGACY_LENGTH(buffer, offset)
        if length < -1:
            return None
        if length >= 0:
            # What follows is read as if there were none.
            transactional_id = str(buffer[offset + 2 : offset + 2 + length], "utf-8")
            offset += length
        _, acks, timeout_ms, topics, name_length = _LEGACY_START(buffer, offset)
        start = offset + 14
        stop = start + name_length
        partitions, index, length = _LEGACY_PARTITION(buffer, stop)
        begin = stop + 12
        if topics != 1 or name_length <= 0 or partitions != 1 or length < 0:
            return None
        if begin + length != len(buffer):
            return None
        name = bytes(buffer[start:stop])
        return OneBatch(transactional_id, acks, timeout_ms, name.decode(), NO_TOPIC_ID, index, buffer[begin:], name)
    except (error, IndexError, UnicodeDecodeError, MalformedMessage):
        return None


def _decode_flexible(buffer: memoryview, offset: int, topic_ids: bool) -> OneBatch | None:
    transactional_id = None
    if buffer[offset]:
        length = buffer[offset] - 1
        if length >= 127:
            return None  # so long that its length takes two bytes
        transactional_id = str(buffer[offset + 1 : offset + 1 + length], "utf-8")
        offset += length
    _, acks, timeout_ms, topics, name_length = _FLEXIBLE_START(buffer, offset)
    if topics != 2:
        return None
    if topic_ids:
        start, name_length = offset + 8, 17  # what was read as a length is the first byte of the id
    else:
        start = offset + 9
        if not 1 < name_length < 128:
            return None  # no name, or one so long that its length takes two bytes
    stop = start + name_length - 1
    partitions, index = _FLEXIBLE_PARTITION(buffer, stop)
    length, begin = read_uvarint(buffer, stop + 5)
    end = begin + length - 1
    # The three empty tag sections, of partition, topic and request, end the frame.
    if partitions != 2 or length < 1 or end + 3 != len(buffer) or bytes(buffer[end:]) != b"\0\0\0":
        return None
    name = bytes(buffer[start:stop])
    if topic_ids:
        topic_id = TopicId(uuid_of(name))
        return OneBatch(transactional_id, acks, timeout_ms, "", topic_id, index, buffer[begin:end], name)
    return OneBatch(transactional_id, acks, timeout_ms, name.decode(), NO_TOPIC_ID, index, buffer[begin:end], name)


def encode_one(
    version: int, correlation_id: int, one: OneBatch, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """The whole frame of a success."""
    name, index = one.name, one.partition
    if version >= FLEXIBLE_SINCE:
        tail = _FLEXIBLE_TAIL(2, index, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0)
        size = 6 + len(name) + len(tail)
        if version >= TOPIC_IDS_SINCE:
            return _FLEXIBLE_HEAD(size, correlation_id, 2) + name + tail
        return _FLEXIBLE_HEAD(size + 1, correlation_id, 2) + bytes((len(name) + 1,)) + name + tail
    if version >= 8:
        tail = _TAIL_V8(1, index, 0, base_offset, append_time_ms, log_start_offset, 0, -1, 0)
    elif version >= 5:
        tail = _TAIL_V5(1, index, 0, base_offset, append_time_ms, log_start_offset, 0)
    else:
        tail = _TAIL_V3(1, index, 0, base_offset, append_time_ms, 0)
    return _LEGACY_HEAD(10 + len(name) + len(tail), correlation_id, 1, len(name)) + name + tail
