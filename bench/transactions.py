"""What a transaction costs: 100 records of 1 KB in one, beside the same records acknowledged without one.

Twice: through librdkafka, as most people have it, and through a client that does nothing but send and receive. The
second is what the broker adds: three requests instead of one, each answered from disk.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from confluent_kafka import Producer

from bench.bare_producer import BareProducer
from bench.results import Limits, Result
from bench.target import Target

RECORDS, RECORD_BYTES = 100, 1000
TURNS, ROUNDS = 20, 10
BAR = 2.0

Once = Callable[[], float]


def measure(target: Target, _limits: Limits) -> list[Result]:
    results = []
    for partitions in (1, 4):
        topic = target.make_topic("transactions", partitions=partitions)
        assert topic is not None
        results.append(_through_librdkafka(target, topic, partitions))
        target.delete_topic(topic)
    if target.ours:  # Apache Kafka sends the bare client away while it still ends the transaction before
        topic = target.make_topic("transactions")
        assert topic is not None
        results.append(_bare(target, topic))
        target.delete_topic(topic)
    return results


def _bare(target: Target, topic: str) -> Result:
    with (
        BareProducer(target.host, target.port, topic, RECORDS, RECORD_BYTES) as plain,
        BareProducer(target.host, target.port, topic, RECORDS, RECORD_BYTES, f"bare-{topic}") as transactional,
    ):
        return _compare(target, "a bare client, 1 partition", plain.once, transactional.once)


def _through_librdkafka(target: Target, topic: str, partitions: int) -> Result:
    common: dict[str, Any] = {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
    plain = Producer({**common, "enable.idempotence": True})
    transactional = Producer({**common, "transactional.id": f"bench-{topic}"})
    transactional.init_transactions(30)
    return _compare(
        target,
        f"librdkafka, {partitions} partition{'s' * (partitions > 1)}",
        lambda: _plainly(plain, topic, partitions),
        lambda: _in_transaction(transactional, topic, partitions),
    )


def _compare(target: Target, how: str, plainly: Once, in_transaction: Once) -> Result:
    """In turns: the machine changes its mind from second to second."""
    plainly()  # both know their leaders and their coordinator before it counts
    in_transaction()
    plain_s: list[float] = []
    transaction_s: list[float] = []
    cpu_s = 0.0
    for _ in range(target.scaled(TURNS)):
        plain_s += [plainly() for _ in range(ROUNDS)]
        before = target.cpu_s()
        transaction_s += [in_transaction() for _ in range(ROUNDS)]
        cpu_s += target.cpu_s() - before
    ratio = median(transaction_s) / median(plain_s)
    return Result(
        name=f"transaction of {RECORDS} × 1 KB, {how}",
        value=median(transaction_s) * 1e3,
        unit="ms p50",
        ratio=ratio,
        limit="without",
        target=f"ratio ≤ {BAR:g}",
        ok=ratio <= BAR,
        detail={
            "without_ms": median(plain_s) * 1e3,
            "transactions_per_s": len(transaction_s) / sum(transaction_s),
            "broker_cpu_ms": cpu_s / len(transaction_s) * 1e3,
        },
    )


def _plainly(producer: Producer, topic: str, partitions: int) -> float:
    began = time.perf_counter()
    _produce(producer, topic, partitions)
    if producer.flush(30):
        raise RuntimeError("records were not acknowledged in time")
    return time.perf_counter() - began


def _in_transaction(producer: Producer, topic: str, partitions: int) -> float:
    began = time.perf_counter()
    producer.begin_transaction()
    _produce(producer, topic, partitions)
    producer.commit_transaction(30)
    return time.perf_counter() - began


def _produce(producer: Producer, topic: str, partitions: int) -> None:
    for number in range(RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=number % partitions)
