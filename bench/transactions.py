"""What a transaction costs: 100 records of 1 KB in one, beside the same records acknowledged without one."""

import time
from statistics import median
from typing import Any

from confluent_kafka import Producer

from bench.results import Limits, Result
from bench.target import Target

RECORDS, RECORD_BYTES = 100, 1000
TURNS, ROUNDS = 20, 10
BAR = 2.0


def measure(target: Target, _limits: Limits) -> list[Result]:
    results = []
    for partitions in (1, 4):
        topic = target.make_topic("transactions", partitions=partitions)
        assert topic is not None
        results.append(_compare(target, topic, partitions))
        target.delete_topic(topic)
    return results


def _compare(target: Target, topic: str, partitions: int) -> Result:
    """One client, one library, in turns: the machine changes its mind from second to second."""
    common: dict[str, Any] = {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
    plain = Producer({**common, "enable.idempotence": True})
    transactional = Producer({**common, "transactional.id": f"bench-{topic}"})
    transactional.init_transactions(30)
    _plainly(plain, topic, partitions)  # both know their leaders and their coordinator before it counts
    _in_transaction(transactional, topic, partitions)
    plain_s: list[float] = []
    transaction_s: list[float] = []
    cpu_s = 0.0
    for _ in range(target.scaled(TURNS)):
        plain_s += [_plainly(plain, topic, partitions) for _ in range(ROUNDS)]
        before = target.cpu_s()
        transaction_s += [_in_transaction(transactional, topic, partitions) for _ in range(ROUNDS)]
        cpu_s += target.cpu_s() - before
    ratio = sum(transaction_s) / sum(plain_s)
    return Result(
        name=f"transaction of {RECORDS} × 1 KB, {partitions} partition{'s' * (partitions > 1)}",
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
