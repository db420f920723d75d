"""Real clients, each as a pair: 100 records acknowledged, and the same in a transaction. Seconds for one round each."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

RECORDS: Final = 100
RECORD_BYTES: Final = 1000
_SECONDS: Final = 30

Once = Callable[[], float]


class Pair(NamedTuple):
    plainly: Once
    in_transaction: Once


def timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@contextmanager
def librdkafka(topic: str, partitions: int, **settings: Any) -> Iterator[Pair]:
    common: dict[str, Any] = {"acks": "all", "linger.ms": 5, "log_level": 0, **settings}
    plain = Producer({**common, "enable.idempotence": True})
    transactional = Producer({**common, "transactional.id": f"librdkafka-{topic}"})
    transactional.init_transactions(_SECONDS)

    def produce(producer: Producer) -> None:
        for number in range(RECORDS):
            producer.produce(topic, bytes(RECORD_BYTES), partition=number % partitions)

    def plainly() -> None:
        produce(plain)
        if plain.flush(_SECONDS):
            raise RuntimeError("records were not acknowledged in time")

    def in_transaction() -> None:
        transactional.begin_transaction()
        produce(transactional)
        transactional.commit_transaction(_SECONDS)

    yield Pair(lambda: timed(plainly), lambda: timed(in_transaction))


@contextmanager
def librdkafka_alone() -> Iterator[Pair]:
    """With the broker that it carries for its own tests, in the same process: what the client takes by itself. Between
    `begin_transaction` and AddPartitionsToTxn it waits for a timer of a millisecond."""
    with librdkafka("alone", 1, **{"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1}) as pair:
        yield pair


@contextmanager
def kafka_python(bootstrap: str, topic: str) -> Iterator[Pair]:
    from kafka import KafkaProducer

    common: dict[str, Any] = {"bootstrap_servers": bootstrap, "acks": "all"}
    plain = KafkaProducer(**common, enable_idempotence=True)
    transactional = KafkaProducer(**common, transactional_id=f"kafka-python-{topic}")
    transactional.init_transactions()

    def produce(producer: Any) -> None:
        for _ in range(RECORDS):
            producer.send(topic, bytes(RECORD_BYTES), partition=0)

    def plainly() -> None:
        produce(plain)
        plain.flush(_SECONDS)

    def in_transaction() -> None:
        transactional.begin_transaction()
        produce(transactional)
        transactional.commit_transaction()

    try:
        yield Pair(lambda: timed(plainly), lambda: timed(in_transaction))
    finally:
        plain.close()
        transactional.close()


@contextmanager
def aiokafka(bootstrap: str, topic: str) -> Iterator[Pair]:
    from aiokafka import AIOKafkaProducer

    loop = asyncio.new_event_loop()
    room = 2 * RECORDS * RECORD_BYTES  # all of a round in one batch, as the other clients have it

    async def start(**settings: Any) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_batch_size=room, **settings)
        await producer.start()
        return producer

    plain = loop.run_until_complete(start(enable_idempotence=True))
    transactional = loop.run_until_complete(start(transactional_id=f"aiokafka-{topic}"))

    async def produce(producer: Any) -> list[Any]:
        return [await producer.send(topic, bytes(RECORD_BYTES), partition=0) for _ in range(RECORDS)]

    async def plainly() -> None:
        await asyncio.gather(*await produce(plain))

    async def in_transaction() -> None:
        async with transactional.transaction():
            await produce(transactional)

    try:
        yield Pair(
            lambda: timed(lambda: loop.run_until_complete(plainly())),
            lambda: timed(lambda: loop.run_until_complete(in_transaction())),
        )
    finally:
        for producer in (plain, transactional):
            with suppress(Exception):
                loop.run_until_complete(producer.stop())
        loop.close()
