"""Where a consumer may start, what it waits for, and what it is told when it asks for what is not there."""

import asyncio
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Producer, TopicPartition

from .conftest import MakeTopic

T0 = 1_700_000_000_000


def fill(bootstrap: str, topic: str, count: int, start: int = 0) -> None:
    """Record i has the value b"i" and the timestamp T0 + 1000 i."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 17})
    for i in range(start, start + count):
        producer.produce(topic, b"%d" % i, partition=0, timestamp=T0 + 1000 * i)
    assert producer.flush(20) == 0


@contextmanager
def consumer_of(bootstrap: str, topic: str, offset: int = 0, **settings: Any) -> Iterator[Consumer]:
    conf = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**conf, **{key.replace("_", "."): value for key, value in settings.items()}})
    consumer.assign([TopicPartition(topic, 0, offset)])
    yield consumer
    consumer.close()


def next_of(consumer: Consumer, timeout_s: float = 20) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            return message
    raise AssertionError("no message in time")


@pytest.fixture(scope="module")
def hundred(bootstrap: str, make_topic: MakeTopic) -> str:
    topic = make_topic("hundred")
    fill(bootstrap, topic, 100)
    return topic


@pytest.mark.parametrize("offset", [0, 1, 16, 17, 50, 99])
def test_confluent_starts_and_seeks_inside_batches(bootstrap: str, hundred: str, offset: int) -> None:
    with consumer_of(bootstrap, hundred, offset) as consumer:
        assert next_of(consumer).value() == b"%d" % offset
        consumer.seek(TopicPartition(hundred, 0, 33))
        assert next_of(consumer).value() == b"33"
        assert consumer.get_watermark_offsets(TopicPartition(hundred, 0), timeout=10) == (0, 100)


def test_kafka_python_seeks(bootstrap: str, hundred: str) -> None:
    partition = kafka.TopicPartition(hundred, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    consumer.assign([partition])
    consumer.seek(partition, 42)
    assert next(consumer).value == b"42"
    consumer.seek_to_beginning(partition)
    assert next(consumer).value == b"0"
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()


def test_aiokafka_seeks(bootstrap: str, hundred: str) -> None:
    async def run() -> None:
        partition = aiokafka.TopicPartition(hundred, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        consumer.assign([partition])
        async with consumer:
            consumer.seek(partition, 42)
            assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"42"
            await consumer.seek_to_beginning(partition)
            assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"0"
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 100
            assert await consumer.end_offsets([partition]) == {partition: 100}

    asyncio.run(run())


@pytest.mark.parametrize(("at", "expected"), [(T0 - 5, 0), (T0 + 30_000, 30), (T0 + 30_001, 31), (T0 + 99_000, 99)])
def test_every_client_finds_the_first_record_at_or_after_a_time(
    bootstrap: str, hundred: str, at: int, expected: int
) -> None:
    with consumer_of(bootstrap, hundred) as consumer:
        [found] = consumer.offsets_for_times([TopicPartition(hundred, 0, at)], timeout=10)
        assert found.offset == expected

    partition = kafka.TopicPartition(hundred, 0)
    python = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    answer = python.offsets_for_times({partition: at})[partition]
    assert (answer.offset, answer.timestamp) == (expected, T0 + 1000 * expected)
    python.close()

    async def run() -> Any:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            return await consumer.offsets_for_times({aiokafka.TopicPartition(hundred, 0): at})

    [found_async] = asyncio.run(run()).values()
    assert found_async.offset == expected

    query = subprocess.run(
        ["kcat", "-b", bootstrap, "-Q", "-t", f"{hundred}:0:{at}"], check=True, capture_output=True, timeout=60
    )
    assert f"offset {expected}" in query.stdout.decode()


def test_a_time_after_the_last_record_has_no_offset(bootstrap: str, hundred: str) -> None:
    with consumer_of(bootstrap, hundred) as consumer:
        [found] = consumer.offsets_for_times([TopicPartition(hundred, 0, T0 + 10**9)], timeout=10)
        assert found.offset == OFFSET_END
    partition = kafka.TopicPartition(hundred, 0)
    python = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    assert python.offsets_for_times({partition: T0 + 10**9}) == {partition: None}
    python.close()


def test_kcat_reads_from_a_time_and_the_last_records(bootstrap: str, hundred: str) -> None:
    def read(*options: str) -> list[bytes]:
        command = ["kcat", "-C", "-b", bootstrap, "-t", hundred, "-q", "-e", *options]
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.split()

    assert read("-o", f"s@{T0 + 95_000}") == [b"95", b"96", b"97", b"98", b"99"]
    assert read("-o", "-2") == [b"98", b"99"]
    assert read("-o", "3", "-c", "2") == [b"3", b"4"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_see_all_plain_records(bootstrap: str, hundred: str, isolation: str) -> None:
    with consumer_of(bootstrap, hundred, isolation_level=isolation) as consumer:
        assert [next_of(consumer).value() for _ in range(100)] == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"0"), ("error", None)])
def test_an_offset_out_of_range_resets_or_fails_as_configured(
    bootstrap: str, hundred: str, reset: str, expected: bytes | None
) -> None:
    with consumer_of(bootstrap, hundred, 5000, auto_offset_reset=reset) as consumer:
        message = next_of(consumer)
        if expected is None:
            assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        else:
            assert message.value() == expected


def test_a_consumer_that_asks_for_an_unknown_topic_is_told_so_and_creates_nothing(bootstrap: str) -> None:
    topic = f"nowhere-{uuid.uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    for _ in range(2):
        error = consumer.list_topics(topic, timeout=10).topics[topic].error
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in consumer.list_topics(timeout=10).topics
    consumer.close()


def test_end_of_partition_is_reported(bootstrap: str, hundred: str) -> None:
    with consumer_of(bootstrap, hundred, 98, enable_partition_eof=True) as consumer:
        assert [next_of(consumer).value() for _ in range(2)] == [b"98", b"99"]
        end = next_of(consumer)
        assert end.error().code() == KafkaError._PARTITION_EOF
        assert end.offset() == 100


def test_a_waiting_fetch_is_answered_by_the_produce_and_not_by_its_timeout(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    """The consumer asks the broker to wait up to 40 s; a record that arrives meanwhile must not wait for that."""
    wait_ms = 40_000
    topic = make_topic("long-poll")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"warm-up", partition=0)
    assert producer.flush(20) == 0
    with consumer_of(bootstrap, topic, fetch_wait_max_ms=wait_ms) as consumer:
        assert next_of(consumer).value() == b"warm-up"
        time.sleep(0.3)  # the next fetch is on its way and finds nothing
        for i in range(3):
            started = time.monotonic()
            producer.produce(topic, b"%d" % i, partition=0)
            producer.poll(0)
            assert next_of(consumer).value() == b"%d" % i
            assert time.monotonic() - started < wait_ms / 1000 / 4


def test_a_fetch_waits_for_its_minimum_of_bytes(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("min-bytes")
    fill(bootstrap, topic, 1)
    started = time.monotonic()
    with consumer_of(bootstrap, topic, fetch_wait_max_ms=1500, fetch_min_bytes=50_000) as consumer:
        assert next_of(consumer).value() == b"0"
        assert time.monotonic() - started > 0.7


def test_incremental_fetch_sessions_follow_many_partitions(bootstrap: str, make_topic: MakeTopic) -> None:
    """kafka-python names all partitions once and then only what changed; records must come from each of them."""
    topic = make_topic("sessions", partitions=30)
    partitions = [kafka.TopicPartition(topic, p) for p in range(30)]
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign(partitions)
    got: dict[int, list[bytes]] = {p: [] for p in range(30)}

    def read_until(per_partition: int) -> None:
        deadline = time.monotonic() + 20
        while any(len(values) < per_partition for values in got.values()) and time.monotonic() < deadline:
            for partition, messages in consumer.poll(timeout_ms=200).items():
                got[partition.partition] += [message.value for message in messages]

    consumer.poll(timeout_ms=300)
    for round_ in range(3):
        producer = Producer({"bootstrap.servers": bootstrap})
        for p in range(30):
            producer.produce(topic, b"%d" % round_, partition=p)
        assert producer.flush(20) == 0
        read_until(round_ + 1)
        # A paused partition leaves the session and comes back to it later.
        consumer.pause(*partitions[:15])
        consumer.poll(timeout_ms=100)
        consumer.resume(*partitions[:15])
    assert got == {p: [b"0", b"1", b"2"] for p in range(30)}
    consumer.close()


def test_a_small_fetch_size_still_makes_progress(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("tiny-fetch")
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 2})
    values = [bytes([i]) * 3000 for i in range(40)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1000,
        consumer_timeout_ms=20_000,
    )
    consumer.assign([partition])
    assert [next(consumer).value for _ in values] == values
    consumer.close()


def test_readers_and_a_writer_at_once_see_one_order(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("together")
    seen: list[list[bytes]] = []

    def read() -> None:
        with consumer_of(bootstrap, topic) as consumer:
            seen.append([next_of(consumer).value() for _ in range(500)])

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for start in range(0, 500, 50):
        fill(bootstrap, topic, 50, start=start)
    for reader in readers:
        reader.join(60)
    assert seen == [[b"%d" % i for i in range(500)]] * 4
