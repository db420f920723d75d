"""Framed requests for raw load, and where in them a number may be changed from one to the next."""

from tidelog.wire.frames import encode_request
from tidelog.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import encode

# Named topics and no fetch session: requests that every broker since 2.1 answers alike.
PRODUCE_KEY, PRODUCE_VERSION = 0, 7
FETCH_KEY, FETCH_VERSION = 1, 10
COMMIT_KEY, COMMIT_VERSION = 8, 7
_NOW_MS = 1_700_000_000_000
_MARK = 0x0123456789ABCDEF
# Of a Fetch answer with one partition: length, correlation, throttle, error, session, topic count, name length,
# partition count, index, error, three offsets, aborted count, records length; the topic's name comes on top.
_FETCH_ANSWER_HEAD = 4 + 4 + 4 + 2 + 4 + 4 + 2 + 4 + 4 + 2 + 24 + 4 + 4


def batch(records: int, record_bytes: int, *, first_key: int | None = None, now_ms: int = _NOW_MS) -> bytes:
    """Without keys, or with keys that count up from `first_key`."""
    value = bytes(97 + i * 7 % 26 for i in range(record_bytes))
    return build_batch(
        Record(i, now_ms + i, None if first_key is None else b"%016d" % (first_key + i), value, ())
        for i in range(records)
    )


def produce(topic: str, records: bytes, acks: int = 1, partition: int = 0) -> bytes:
    part = PartitionProduceData(index=partition, records=memoryview(records))
    data = (TopicProduceData(name=topic, partition_data=(part,)),)
    message = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)
    return encode_request(PRODUCE_KEY, PRODUCE_VERSION, 7, "bench", encode(message, PRODUCE_VERSION))


def partition_at(request: bytes, records: bytes) -> int:
    """The partition's number is in front of the length of its records."""
    return request.rindex(records) - 8


def waiting_fetch(topic: str, wait_ms: int = 500) -> tuple[bytes, int, int]:
    """A Fetch of partition 0; where its offset is; and how many bytes of its answer come before the batches."""
    part = FetchPartition(partition=0, fetch_offset=_MARK, partition_max_bytes=32_768)
    message = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=32_768, topics=(FetchTopic(topic=topic, partitions=(part,)),)
    )
    request = encode_request(FETCH_KEY, FETCH_VERSION, 7, "bench", encode(message, FETCH_VERSION))
    return request, request.index(_MARK.to_bytes(8, "big")), _FETCH_ANSWER_HEAD + len(topic)


def commit(group: str, topic: str, partitions: int) -> bytes:
    """An offset commit of a consumer that assigns its own partitions: any commit costs the same."""
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="")
        for each in range(partitions)
    )
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(OffsetCommitRequestTopic(name=topic, partitions=parts),),
    )
    return encode_request(COMMIT_KEY, COMMIT_VERSION, 7, "bench", encode(message, COMMIT_VERSION))
