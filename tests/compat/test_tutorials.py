"""The programs a newcomer types first, as the tutorials print them: subscribe, poll, close; nothing is tuned."""

import asyncio
import json
import subprocess
import uuid
from typing import Any

import aiokafka
import kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)

from .conftest import MakeTopic


def test_confluent_purchases(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("purchases")
    report: list[str] = []

    def delivery_callback(error: Any, message: Any) -> None:
        if error:
            report.append(f"ERROR: message failed delivery: {error}")
        else:
            report.append(f"{message.topic()}: {message.key().decode()} -> {message.value().decode()}")

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "compression.type": "snappy"})
    purchases = [("ada", "books"), ("grace", "alarm clock"), ("alan", "t-shirts"), ("edsger", "batteries")]
    for user, item in purchases:
        producer.produce(topic, item, user, callback=delivery_callback)
        producer.poll(0)
    producer.flush()
    assert sorted(report) == sorted(f"{topic}: {user} -> {item}" for user, item in purchases)

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "kafka-python-getting-started", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    bought: list[tuple[str, str]] = []
    try:
        while len(bought) < len(purchases):
            message: Any = consumer.poll(1.0)
            if message is None:
                continue  # "Waiting..."
            assert not message.error()
            bought.append((message.key().decode(), message.value().decode()))
    finally:
        consumer.close()
    assert bought == purchases


def test_confluent_serializers(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("serializers")
    to_bytes, to_text = StringSerializer("utf_8"), StringDeserializer("utf_8")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic=topic,
        key=to_bytes(str(uuid.UUID(int=7))),
        value=to_bytes("grüße", SerializationContext(topic, MessageField.VALUE)),
        partition=0,
    )
    producer.flush()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "texts", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = None
    while message is None:
        message = consumer.poll(1.0)
    assert to_text(message.value(), SerializationContext(topic, MessageField.VALUE)) == "grüße"
    consumer.close()


def test_kafka_python_readme(bootstrap: str) -> None:
    topic = f"foobar-{uuid.uuid4().hex[:8]}"  # not created before: the first send does it
    producer = kafka.KafkaProducer(
        bootstrap_servers=[bootstrap],
        retries=5,
        compression_type="gzip",
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    seen: list[int] = []
    for i in range(100):
        producer.send(topic, {"n": i}, headers=[("content-encoding", b"json")]).add_callback(
            lambda metadata: seen.append(metadata.offset)
        )
    metadata = producer.send(topic, {"last": True}, key=b"end").get(timeout=60)
    producer.flush()
    producer.close()
    assert metadata.topic == topic
    assert len(seen) == 100

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=[bootstrap],
        group_id="my_favorite_group",
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
        consumer_timeout_ms=60_000,
    )
    numbers = []
    for message in consumer:
        assert message.topic == topic
        if "n" in message.value:
            numbers.append(message.value["n"])
        else:
            assert message.key == b"end"
        if len(numbers) == 100:
            break
    assert sorted(numbers) == list(range(100))
    assert consumer.metrics()
    consumer.close()


def test_aiokafka_getting_started(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("my-topic", partitions=2)

    async def send_one() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"Super message")
            batch = producer.create_batch()
            for i in range(3):
                assert batch.append(key=None, value=b"in a batch %d" % i, timestamp=None) is not None
            await (await producer.send_batch(batch, topic, partition=1))
        finally:
            await producer.stop()

    async def consume() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id="my-group", auto_offset_reset="earliest"
        )
        await consumer.start()
        values = []
        try:
            async for message in consumer:
                values.append(message.value)
                if len(values) == 4:
                    break
        finally:
            await consumer.stop()
        return values

    asyncio.run(send_one())
    values = asyncio.run(asyncio.wait_for(consume(), 60))
    assert sorted(values) == [b"Super message", b"in a batch 0", b"in a batch 1", b"in a batch 2"]


def test_kcat_quick_start(bootstrap: str, make_topic: MakeTopic) -> None:
    """`kcat -G` prints what `kcat -P` was given, and on its second run only what came since."""
    topic = make_topic("mytopic", partitions=2)
    group = f"mygroup-{uuid.uuid4().hex[:8]}"
    for lines in (b"one\ntwo\n", b"three\n"):
        subprocess.run(["kcat", "-P", "-b", bootstrap, "-t", topic], input=lines, check=True, timeout=60)
        listen = ["kcat", "-b", bootstrap, "-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic]
        heard = subprocess.run(listen, check=True, timeout=60, capture_output=True).stdout
        assert sorted(heard.split()) == sorted(lines.split())
