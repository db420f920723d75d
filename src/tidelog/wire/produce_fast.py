"""Produce by hand, where that is faster than the compiled tables: in the answer.

Decoding by hand was measured too and gained nothing over the compiled decoder, so there is one decoder and it is that.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from tidelog.wire.frames import encode_response
from tidelog.wire.messages.data import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.primitives import uvarint
from tidelog.wire.schema import decode, encode

PRODUCE_KEY: Final = 0
FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13

_PLAIN_V3: Final = Struct(">ihqq").pack
_PLAIN_V5: Final = Struct(">ihqqq").pack
_PLAIN_V8: Final = Struct(">ihqqqih").pack  # no record errors, null error message
_PLAIN_V9: Final = Struct(">ihqqqBBx").pack
_I32_PACK: Final = Struct(">i").pack
_NAME_LENGTH: Final = Struct(">h").pack
_THROTTLE_TAGS: Final = Struct(">ix").pack
# The object that partitions without a leader to tell share: `is` finds it without comparing.
_NO_LEADER: Final = PartitionProduceResponse(index=0, base_offset=0).current_leader


def decode_produce(buffer: memoryview, offset: int, version: int) -> ProduceRequest:
    """Record sets are slices of `buffer`, not copies: they live as long as it is left alone."""
    return decode(ProduceRequest, version, buffer, offset)


def encode_produce_response(
    version: int,
    correlation_id: int,
    responses: Sequence[TopicProduceResponse],
    throttle_time_ms: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> bytes:
    """A whole frame, its length and header included. Answers with anything to explain take the compiled tables' way."""
    parts: list[bytes] | None = None
    if not node_endpoints:
        if version >= FLEXIBLE_SINCE:
            parts = _flexible_topics(responses, version >= TOPIC_IDS_SINCE, throttle_time_ms)
        else:
            parts = _legacy_topics(responses, version, throttle_time_ms)
    if parts is None:
        message = ProduceResponse(
            responses=tuple(responses), throttle_time_ms=throttle_time_ms, node_endpoints=node_endpoints
        )
        return encode_response(PRODUCE_KEY, version, correlation_id, encode(message, version))
    return encode_response(PRODUCE_KEY, version, correlation_id, b"".join(parts))


def _flexible_topics(
    responses: Sequence[TopicProduceResponse], topic_ids: bool, throttle_time_ms: int
) -> list[bytes] | None:
    parts = [uvarint(len(responses) + 1)]
    add = parts.append
    for topic in responses:
        if topic_ids:
            add(topic.topic_id.bytes)
        else:
            name = topic.name.encode()
            add(uvarint(len(name) + 1))
            add(name)
        add(uvarint(len(topic.partition_responses) + 1))
        for one in topic.partition_responses:
            if one.error_message is not None or one.record_errors or one.current_leader is not _NO_LEADER:
                return None
            add(
                _PLAIN_V9(
                    one.index, one.error_code, one.base_offset, one.log_append_time_ms, one.log_start_offset, 1, 0
                )
            )
        add(b"\0")
    add(_THROTTLE_TAGS(throttle_time_ms))
    return parts


def _legacy_topics(
    responses: Sequence[TopicProduceResponse], version: int, throttle_time_ms: int
) -> list[bytes] | None:
    parts = [_I32_PACK(len(responses))]
    for topic in responses:
        name = topic.name.encode()
        parts += (_NAME_LENGTH(len(name)), name, _I32_PACK(len(topic.partition_responses)))
        for one in topic.partition_responses:
            if one.error_message is not None or one.record_errors or one.current_leader is not _NO_LEADER:
                return None
            start = one.index, one.error_code, one.base_offset, one.log_append_time_ms
            if version >= 8:
                parts.append(_PLAIN_V8(*start, one.log_start_offset, 0, -1))
            elif version >= 5:
                parts.append(_PLAIN_V5(*start, one.log_start_offset))
            else:
                parts.append(_PLAIN_V3(*start))
    parts.append(_I32_PACK(throttle_time_ms))
    return parts
