"""Framed requests, encoded once and sent many times."""

from collections.abc import Sequence

from tidelog.wire.frames import encode_request
from tidelog.wire.layout import Message
from tidelog.wire.messages.admin import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import encode, spec_of

# Named topics and no fetch session: requests that every broker since 2.1 answers alike.
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 10, 5
_NOW_MS = 1_700_000_000_000


def _framed(message: Message, version: int) -> bytes:
    key = spec_of(type(message)).key
    return encode_request(key, version, 7, "bench", encode(message, version))


def batch(records: int, record_bytes: int) -> bytes:
    value = bytes(97 + i * 7 % 26 for i in range(record_bytes))
    return build_batch(Record(i, _NOW_MS + i, None, value, ()) for i in range(records))


def produce(topic: str, records: bytes, acks: int) -> bytes:
    partition = PartitionProduceData(index=0, records=memoryview(records))
    data = (TopicProduceData(name=topic, partition_data=(partition,)),)
    return _framed(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION)


def fetch(topic: str, offsets: Sequence[tuple[int, int]], *, wait_ms: int = 0, max_bytes: int = 64 << 20) -> bytes:
    """Asks for `(partition, offset)` pairs of one topic."""
    partitions = tuple(
        FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=max_bytes) for p, offset in offsets
    )
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=(FetchTopic(topic=topic, partitions=partitions),)
    )
    return _framed(request, FETCH_VERSION)


def metadata(topic: str) -> bytes:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
    return _framed(request, METADATA_VERSION)
