"""Stamps through real clients: each sends what another reads, and causes are seen as causes."""

import asyncio
from itertools import pairwise

import aiokafka
import confluent_kafka
import kafka
import pytest

from tidelog.causality import Clock, Stamp, read_stamp
from tidelog.testing import Broker

TOPIC = "talk"
READERS = ["confluent", "kafka_python", "aiokafka"]


def now() -> int:
    return 1_700_000_000_000


def send_confluent(servers: str, headers: list) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(TOPIC, b"confluent", headers=headers)
    assert producer.flush(20) == 0


def send_kafka_python(servers: str, headers: list) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    producer.send(TOPIC, b"kafka-python", headers=headers).get(20)
    producer.close()


def send_aiokafka(servers: str, headers: list) -> None:
    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(TOPIC, b"aiokafka", headers=headers)

    asyncio.run(send())


def read_confluent(servers: str, count: int) -> list:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"g-{count}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    messages = consumer.consume(count, 30)
    consumer.close()
    return [message.headers() for message in messages]


def read_kafka_python(servers: str, count: int) -> list:
    consumer = kafka.KafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest")
    found = [next(consumer).headers for _ in range(count)]
    consumer.close()
    return found


def read_aiokafka(servers: str, count: int) -> list:
    async def read() -> list:
        consumer = aiokafka.AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest")
        async with consumer:
            return [(await consumer.getone()).headers for _ in range(count)]

    return asyncio.run(read())


@pytest.mark.timeout(120)
def test_stamps_pass_through_every_client() -> None:
    send = dict(zip(READERS, (send_confluent, send_kafka_python, send_aiokafka), strict=True))
    read = dict(zip(READERS, (read_confluent, read_kafka_python, read_aiokafka), strict=True))
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        for number, (writer, reader) in enumerate(zip(READERS, [*READERS[1:], READERS[0]], strict=True)):
            # Each hears everything that was said before through another client than the one that said it.
            clock = Clock(writer, now)
            for headers in read[reader](servers, number) if number else []:
                assert clock.receive(headers) is not None
            send[writer](servers, clock.send_headers([("trace", b"1")]))
        for reader in READERS:
            stamps = [read_stamp(headers) for headers in read[reader](servers, len(READERS))]
            assert [stamp.node for stamp in stamps if stamp] == READERS
            assert all(one.before(other) for one, other in pairwise(s for s in stamps if isinstance(s, Stamp)))
