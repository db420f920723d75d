"""What a producer is told: offsets, acks, errors; and topics that appear as they are used."""

import asyncio
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import MessageSizeTooLargeError as AioMessageSizeTooLarge
from confluent_kafka import KafkaError, Producer
from kafka.errors import MessageSizeTooLargeError

from .clients import CLIENTS
from .conftest import MakeTopic
from .records import Record

Delivery = tuple[KafkaError | None, Any]


def deliver(producer: Producer, topic: str, values: list[bytes], **options: Any) -> list[Delivery]:
    """Produces to partition 0 and returns the delivery reports in the order in which they came."""
    reports: list[Delivery] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda e, m: reports.append((e, m)), **options)
    assert producer.flush(20) == 0
    return reports


def values_of(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    return [r.value for r in CLIENTS["confluent"].consume(bootstrap, topic, {0: count})[0]]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_delivery_reports(bootstrap: str, make_topic: MakeTopic, acks: str, idempotent: bool) -> None:
    if idempotent and acks != "all":
        with pytest.raises(confluent_kafka.KafkaException):  # librdkafka's own rule
            Producer({"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": True})
        return
    topic = make_topic("acks")
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": idempotent})
    values = [b"%d" % i for i in range(300)]
    reports = deliver(producer, topic, values)

    assert [error for error, _ in reports] == [None] * len(values)
    if acks != "0":  # nobody answers acks=0, so there is no offset to report
        assert [message.offset() for _, message in reports] == list(range(len(values)))
    assert values_of(bootstrap, topic, len(values)) == values


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_kafka_python_offsets(bootstrap: str, make_topic: MakeTopic, acks: str | int) -> None:
    topic = make_topic("acks")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=acks)
    futures = [producer.send(topic, b"%d" % i, partition=0) for i in range(100)]
    offsets = [future.get(20).offset for future in futures]
    producer.close()
    if acks != 0:
        assert offsets == list(range(100))
    assert values_of(bootstrap, topic, 100) == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_aiokafka_offsets(bootstrap: str, make_topic: MakeTopic, acks: str | int) -> None:
    topic = make_topic("acks")

    async def run() -> list[Any]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            futures = [await producer.send(topic, b"%d" % i, partition=0) for i in range(100)]
            return await asyncio.gather(*futures)

    delivered = asyncio.run(run())
    if acks != 0:
        assert [metadata.offset for metadata in delivered] == list(range(100))
    assert values_of(bootstrap, topic, 100) == [b"%d" % i for i in range(100)]


def test_a_producer_instance_after_another_continues_the_offsets(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("instances")
    for first in (0, 10, 20):
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        reports = deliver(producer, topic, [b"x"] * 10)
        assert [message.offset() for _, message in reports] == list(range(first, first + 10))


def test_a_small_linger_many_requests_in_flight_keeps_order(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("order")
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 3, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    values = [b"%d" % i for i in range(2000)]
    reports = deliver(producer, topic, values)
    assert [message.offset() for _, message in reports] == list(range(2000))
    assert values_of(bootstrap, topic, 2000) == values


def test_a_message_larger_than_the_topic_allows_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("small", **{"max.message.bytes": "2000"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    [(error, _)] = deliver(producer, topic, [b"x" * 3000])
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    blocking = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    with pytest.raises(MessageSizeTooLargeError):
        blocking.send(topic, b"x" * 3000).get(20)
    blocking.close()

    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x" * 3000)

    with pytest.raises(AioMessageSizeTooLarge):
        asyncio.run(run())

    [(error, message)] = deliver(producer, topic, [b"fits"])
    assert error is None
    assert message.offset() == 0  # nothing of the refused ones was stored


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka", "kcat"])
def test_a_message_of_several_megabytes(bootstrap: str, make_topic: MakeTopic, client: str) -> None:
    topic = make_topic("large", **{"max.message.bytes": "10000000"})
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 10_000_000})
    value = bytes(range(251)) * 25_000
    [(error, _)] = deliver(producer, topic, [value])
    assert error is None
    # Larger than every client's max.partition.fetch.bytes: the first batch is sent whole, or nobody could go on.
    [record] = CLIENTS[client].consume(bootstrap, topic, {0: 1})[0]
    assert record.value == value


def _produce_confluent(bootstrap: str, topic: str) -> None:
    [(error, _)] = deliver(Producer({"bootstrap.servers": bootstrap}), topic, [b"hello"])
    assert error is None


def _produce_kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"hello", partition=0).get(20)
    producer.close()


def _produce_aiokafka(bootstrap: str, topic: str) -> None:
    CLIENTS["aiokafka"].produce(bootstrap, topic, 0, [Record(key=None, value=b"hello", timestamp_ms=1)], "none")


def _produce_kcat(bootstrap: str, topic: str) -> None:
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0"]
    subprocess.run(command, input=b"hello\n", check=True, timeout=60, capture_output=True)


ONE_RECORD: dict[str, Callable[[str, str], None]] = {
    "confluent": _produce_confluent,
    "kafka-python": _produce_kafka_python,
    "aiokafka": _produce_aiokafka,
    "kcat": _produce_kcat,
}


@pytest.mark.parametrize("client", ONE_RECORD)
def test_a_topic_is_created_by_the_first_record(bootstrap: str, client: str) -> None:
    topic = f"auto-{uuid.uuid4().hex[:8]}"
    ONE_RECORD[client](bootstrap, topic)
    assert values_of(bootstrap, topic, 1) == [b"hello"]


@pytest.mark.parametrize("client", ONE_RECORD)
def test_a_topic_takes_records_right_after_it_was_created(bootstrap: str, make_topic: MakeTopic, client: str) -> None:
    for _ in range(3):
        topic = make_topic("at-once")
        ONE_RECORD[client](bootstrap, topic)
        assert values_of(bootstrap, topic, 1) == [b"hello"]


def test_log_append_time_replaces_the_producers_timestamps(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("append-time", **{"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    deliver(producer, topic, [b"tide" * 500] * 5, timestamp=1_000)
    for name, client in CLIENTS.items():
        records = client.consume(bootstrap, topic, {0: 5})[0]
        assert len(records) == 5, name
        assert all(record.timestamp_ms > 1_600_000_000_000 for record in records), name


def test_a_timestamp_far_in_the_future_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("future", **{"message.timestamp.after.max.ms": "1000"})
    producer = Producer({"bootstrap.servers": bootstrap})
    [(error, _)] = deliver(producer, topic, [b"late"], timestamp=4_102_444_800_000)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP


def test_a_compacted_topic_insists_on_keys(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("compacted", **{"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": bootstrap})
    [(error, _)] = deliver(producer, topic, [b"no key"])
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    [(error, message)] = deliver(producer, topic, [b"keyed"], key=b"k")
    assert error is None
    assert message.offset() == 0


def test_the_broker_recompresses_when_the_topic_names_a_codec(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("recompress", **{"compression.type": "zstd"})
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip"})
    values = [b"%d" % i * 50 for i in range(50)]
    assert [message.offset() for _, message in deliver(producer, topic, values)] == list(range(50))
    for client in CLIENTS.values():
        assert [r.value for r in client.consume(bootstrap, topic, {0: 50})[0]] == values


def test_equal_keys_go_to_one_partition_for_java_style_clients(bootstrap: str, make_topic: MakeTopic) -> None:
    """murmur2 clients must agree with each other, or a key's order is lost when a team mixes languages."""
    topic = make_topic("keys", partitions=7)
    placed: dict[bytes | None, int | None] = {}
    native = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for i in range(40):
        native.produce(topic, b"x", b"key-%d" % i, on_delivery=lambda _, m: placed.update({m.key(): m.partition()}))
    native.flush(20)
    python = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    assert {key: python.send(topic, b"y", key).get(20).partition for key in placed} == placed
    assert len(set(placed.values())) > 1
    python.close()
