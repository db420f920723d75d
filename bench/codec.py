"""Codec cost: µs per request decode plus response encode at ten partitions, beside kio in the same run.

    python bench/codec.py

Columns: the tables compiled to Python, the hand-written fast path where there is one, and kio (decoder in Rust, encoder
in Python). Ratios travel between machines; microseconds do not.
"""

import io
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "property"))

from kio.serial import entity_reader, entity_writer
from wire_messages import oracle_class, to_oracle

from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, decode_fetch, encode_fetch_response
from tidelog.wire.messages import admin, data
from tidelog.wire.produce_fast import decode_produce, encode_produce_response
from tidelog.wire.schema import Message, decode, encode

PARTITIONS = 10
MANY = 1000


def produce() -> tuple[Message, Message]:
    batch = b"b" * 100
    request = data.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=(
            data.TopicProduceData(
                name="orders",
                partition_data=tuple(data.PartitionProduceData(index=n, records=batch) for n in range(PARTITIONS)),
            ),
        ),
    )
    answers = tuple(data.PartitionProduceResponse(index=n, base_offset=n) for n in range(PARTITIONS))
    response = data.ProduceResponse(responses=(data.TopicProduceResponse(name="orders", partition_responses=answers),))
    return request, response


def fetch(partitions: int = PARTITIONS) -> tuple[Message, Message]:
    asked = tuple(
        data.FetchPartition(partition=n, fetch_offset=n, partition_max_bytes=1 << 20) for n in range(partitions)
    )
    request = data.FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=(data.FetchTopic(topic="orders", partitions=asked),)
    )
    told = tuple(data.PartitionData(partition_index=n, high_watermark=n, records=None) for n in range(partitions))
    response = data.FetchResponse(responses=(data.FetchableTopicResponse(topic="orders", partitions=told),))
    return request, response


def metadata() -> tuple[Message, Message]:
    request = admin.MetadataRequest(topics=(admin.MetadataRequestTopic(name="orders"),))
    partitions = tuple(
        admin.MetadataResponsePartition(partition_index=n, leader_id=1, replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3))
        for n in range(PARTITIONS)
    )
    broker = admin.MetadataResponseBroker(node_id=1, host="localhost", port=9092)
    topic = admin.MetadataResponseTopic(name="orders", partitions=partitions)
    return request, admin.MetadataResponse(brokers=(broker,), topics=(topic,), cluster_id="tidelog", controller_id=1)


def microseconds(work: Callable[[], object]) -> float:
    count, _ = timeit.Timer(work).autorange()
    count = max(1, count // 4)
    return min(timeit.repeat(work, number=count, repeat=7)) / count * 1e6


def compiled(request: Message, response: Message, version: int) -> Callable[[], object]:
    raw, kind = encode(request, version), type(request)

    def work() -> None:
        decode(kind, version, raw)
        encode(response, version)

    return work


def kio(request: Message, response: Message, version: int) -> Callable[[], object]:
    raw = encode(request, version)
    entity = to_oracle(response, version, oracle_class(type(response), version))
    read = entity_reader(oracle_class(type(request), version))
    write = entity_writer(type(entity))

    def work() -> None:
        read(raw, 0)
        write(io.BytesIO(), entity)

    return work


def fast_produce(request: Message, response: data.ProduceResponse, version: int) -> Callable[[], object]:
    raw = memoryview(encode(request, version))

    def work() -> None:
        decode_produce(raw, 0, version)
        encode_produce_response(version, 1, response.responses)

    return work


def fast_fetch(request: Message, response: data.FetchResponse, version: int) -> Callable[[], object]:
    raw = memoryview(encode(request, version))
    topics = [
        FetchedTopic(
            topic.topic,
            topic.topic_id,
            [FetchedPartition(one.partition_index, 0, one.high_watermark, 0, 0) for one in topic.partitions],
        )
        for topic in response.responses
    ]

    def work() -> None:
        decode_fetch(raw, 0, version)
        encode_fetch_response(version, 1, 0, 0, 0, topics)

    return work


def main() -> None:
    print(f"{'':24}{'compiled':>10}{'fast':>10}{'kio':>10}{'kio / best':>12}   (µs)")
    rows = [("Produce v9", produce(), 9, fast_produce), ("Fetch v12", fetch(), 12, fast_fetch)]
    rows += [("Metadata v12", metadata(), 12, None), (f"Fetch v12, {MANY:,} parts", fetch(MANY), 12, fast_fetch)]
    for name, (request, response), version, by_hand in rows:
        ours = microseconds(compiled(request, response, version))
        fast = microseconds(by_hand(request, response, version)) if by_hand else None
        theirs = microseconds(kio(request, response, version))
        shown = f"{fast:10.1f}" if fast else f"{'-':>10}"
        print(f"{name:24}{ours:10.1f}{shown}{theirs:10.1f}{theirs / min(ours, fast or ours):12.1f}")


if __name__ == "__main__":
    main()
