"""Fetch by hand, where that is faster than the compiled tables: in the answer.

The answer is a list of parts in the order of the wire, metadata as bytes and record sets as the objects they were given
as, so that the broker can hand those to `sendfile`. All metadata between two record sets is one part. A partition
without anything special, and of a thousand nearly all are, costs one `struct` call.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.wire.frames import response_start
from tidelog.wire.messages.data import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from tidelog.wire.primitives import uvarint
from tidelog.wire.schema import decode, encode

FETCH_KEY: Final = 1
LOG_START_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
READ_REPLICA_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13

_I16: Final = Struct(">h").pack
_I32: Final = Struct(">i").pack
_TWO_I32: Final = Struct(">ii").pack
_TWO_I64: Final = Struct(">qq").pack
_TWO_I64_TAGS: Final = Struct(">qqx").pack
_SESSION: Final = Struct(">ihi").pack
_HEAD_V4: Final = Struct(">ihqq").pack
_HEAD_V5: Final = Struct(">ihqqq").pack
# The usual partitions: null or empty list of aborted transactions, no tags.
_USUAL_V4: Final = Struct(">ihqqii").pack
_USUAL_V5: Final = Struct(">ihqqqii").pack
_USUAL_V11: Final = Struct(">ihqqqiii").pack
_EMPTY_V12: Final = Struct(">ihqqqBiBx").pack
_USUAL_V12: Final = Struct(">ihqqqBi").pack
_TAG_DIVERGING_EPOCH: Final = Struct(">BBiqx").pack
_TAG_CURRENT_LEADER: Final = Struct(">BBiix").pack
_NULL_V12, _NONE_V12 = 0, 1
_NULL, _NONE = -1, 0


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: EpochEndOffset | None = None
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    # Anything with a `length`; typed narrower, callers would not get their own type of slice back. None is sent as an
    # empty record set, as Kafka does: null is legal, but not every client was written with it in mind.
    records: Any = None
    preferred_read_replica: int = -1
    current_leader: LeaderIdAndEpoch | None = None  # only with a leader error: clients take it for news


class FetchedTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[FetchedPartition]


def decode_fetch(buffer: memoryview, offset: int, version: int) -> FetchRequest:
    """The compiled decoder: one `struct` call for each partition leaves nothing to gain by hand."""
    return decode(FetchRequest, version, buffer, offset)


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchedTopic],
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> list[Any]:
    """A whole frame in parts, beginning with its length: bytes, and the record sets themselves between them."""
    flexible = version >= FLEXIBLE_SINCE
    parts: list[Any] = []
    pending = [_start_of_body(version, throttle_time_ms, error_code, session_id)]
    pending.append(uvarint(len(topics) + 1) if flexible else _I32(len(topics)))
    for topic in topics:
        if version >= TOPIC_IDS_SINCE:
            pending.append(topic.topic_id.bytes)
        else:
            name = topic.name.encode()
            pending += (uvarint(len(name) + 1) if flexible else _I16(len(name)), name)
        if flexible:
            pending.append(uvarint(len(topic.partitions) + 1))
            pending = _flexible_partitions(topic.partitions, parts, pending)
            pending.append(b"\0")
        else:
            pending.append(_I32(len(topic.partitions)))
            pending = _legacy_partitions(topic.partitions, version, parts, pending)
    if flexible:
        pending.append(_end_of_body(version, node_endpoints) if node_endpoints else b"\0")
    if pending:  # an old answer ends with its last record set
        parts.append(b"".join(pending))
    size = sum(len(part) if type(part) is bytes else part.length for part in parts)
    parts[0] = response_start(FETCH_KEY, version, correlation_id, size) + parts[0]
    return parts


def _start_of_body(version: int, throttle_time_ms: int, error_code: int, session_id: int) -> bytes:
    if version >= SESSIONS_SINCE:
        return _SESSION(throttle_time_ms, error_code, session_id)
    return _I32(throttle_time_ms)


def _end_of_body(version: int, node_endpoints: tuple[NodeEndpoint, ...]) -> bytes:
    """The tagged section, cut from an answer that holds nothing else."""
    return encode(FetchResponse(responses=(), node_endpoints=node_endpoints), version)[11:]


def _flexible_partitions(partitions: list[FetchedPartition], parts: list[Any], pending: list[bytes]) -> list[bytes]:
    """Moves finished parts to `parts`; the bytes still to be sent before the next record set are returned."""
    add = pending.append
    for one in partitions:
        partition, error, watermark, stable, start, diverging, aborted, records, replica, leader = one
        if records is None and diverging is None and leader is None and not aborted:
            none = _NULL_V12 if aborted is None else _NONE_V12
            add(_EMPTY_V12(partition, error, watermark, stable, start, none, replica, 1))
            continue
        if aborted:
            add(_HEAD_V5(partition, error, watermark, stable, start))
            add(uvarint(len(aborted) + 1))
            pending += [_TWO_I64_TAGS(each.producer_id, each.first_offset) for each in aborted]
            add(_I32(replica))
        else:
            none = _NULL_V12 if aborted is None else _NONE_V12
            add(_USUAL_V12(partition, error, watermark, stable, start, none, replica))
        if records is None or not records.length:
            add(b"\1")
        else:
            add(uvarint(records.length + 1))
            parts += (b"".join(pending), records)
            pending = []
            add = pending.append
        add(b"\0" if diverging is None and leader is None else _partition_tags(diverging, leader))
    return pending


def _partition_tags(diverging: EpochEndOffset | None, leader: LeaderIdAndEpoch | None) -> bytes:
    tags = []
    if diverging is not None:
        tags.append(_TAG_DIVERGING_EPOCH(0, 13, diverging.epoch, diverging.end_offset))
    if leader is not None:
        tags.append(_TAG_CURRENT_LEADER(1, 9, leader.leader_id, leader.leader_epoch))
    return uvarint(len(tags)) + b"".join(tags)


def _legacy_partitions(
    partitions: list[FetchedPartition], version: int, parts: list[Any], pending: list[bytes]
) -> list[bytes]:
    for one in partitions:
        partition, error, watermark, stable, start, _, aborted, records, replica, _ = one
        size = 0 if records is None else records.length
        if aborted:
            pending.append(
                _HEAD_V5(partition, error, watermark, stable, start)
                if version >= LOG_START_SINCE
                else _HEAD_V4(partition, error, watermark, stable)
            )
            pending.append(_I32(len(aborted)))
            pending += [_TWO_I64(each.producer_id, each.first_offset) for each in aborted]
            pending.append(_TWO_I32(replica, size) if version >= READ_REPLICA_SINCE else _I32(size))
        else:
            none = _NULL if aborted is None else _NONE
            if version >= READ_REPLICA_SINCE:
                pending.append(_USUAL_V11(partition, error, watermark, stable, start, none, replica, size))
            elif version >= LOG_START_SINCE:
                pending.append(_USUAL_V5(partition, error, watermark, stable, start, none, size))
            else:
                pending.append(_USUAL_V4(partition, error, watermark, stable, none, size))
        if size:
            parts += (b"".join(pending), records)
            pending = []
    return pending
