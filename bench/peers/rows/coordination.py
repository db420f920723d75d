"""What coordinators cost: a transaction of 100 records, an offset commit of 12 partitions."""

import time
from functools import partial
from statistics import median
from typing import Any

from confluent_kafka import Producer

from bench import native
from bench.peers import raw
from bench.peers.rows.latency import CACHED, SYNCED
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker
from bench.results import quantile
from tidelog.client.connection import Connection
from tidelog.wire.messages.groups import FindCoordinatorRequest

RECORDS, PARTITIONS, GROUP = 100, 12, "bench-commits"


def transactions(broker: Broker, *, synced: bool) -> Values:
    topic = broker.make_topic("transactions", partitions=4, synced=synced)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0}
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(60)
    for _ in range(5):  # it knows its leaders and its coordinator before the clock runs
        _transaction(producer, topic)
    cpu = broker.cpu_s()
    took = [_transaction(producer, topic) for _ in range(broker.scaled(200))]
    cpu = broker.cpu_s() - cpu
    broker.delete_topic(topic)
    return {
        "per_s": len(took) / sum(took),
        "p50_ms": median(took) * 1e3,
        "p99_ms": quantile(took, 0.99) * 1e3,
        "cpu_ms": cpu / len(took) * 1e3,
    }


def _transaction(producer: Producer, topic: str) -> float:
    began = time.perf_counter()
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, bytes(1000), partition=number % 4)
    producer.commit_transaction(60)
    return time.perf_counter() - began


def commits(broker: Broker) -> Values:
    topic = broker.make_topic("commits", partitions=PARTITIONS)
    with Connection(broker.host, broker.port, timeout=30) as connection:
        deadline = time.monotonic() + 60
        while connection.call(FindCoordinatorRequest(key=GROUP), version=2).error_code:
            if time.monotonic() > deadline:
                raise RuntimeError("no group coordinator within 60 s")
            time.sleep(0.05)
    request = broker.work_dir / "request"
    request.write_bytes(raw.commit(GROUP, topic, PARTITIONS))
    count = broker.scaled(5_000)
    cpu = broker.cpu_s()
    took = native.run("blast", "send", broker.host, broker.port, request, count, 1)
    cpu = broker.cpu_s() - cpu
    broker.delete_topic(topic)
    return {
        "per_s": count / took["seconds"],
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "cpu_us": cpu / count * 1e6,
    }


_TRANSACTION = (
    Metric("per_s", "transactions/s", Better.HIGHER, target=1.0),
    Metric("p50_ms", "p50 ms"),
    Metric("p99_ms", "p99 ms"),
    Metric("cpu_ms", "broker CPU ms each"),
)
ROWS = (
    Row(
        name="transactions",
        title="transactions of 100 × 1 KB over 4 partitions, one after the other (librdkafka)",
        guarantee=CACHED + ", coordinator's records too",
        metrics=_TRANSACTION,
        measure=partial(transactions, synced=False),
        settings_of={"tidelog": {"flush.on.ack": "false"}},
    ),
    Row(
        name="commits",
        title="group commits of 12 partitions, one in flight (C client)",
        guarantee=CACHED,
        metrics=(
            Metric("per_s", "commits/s", Better.HIGHER, target=1.0),
            Metric("p50_us", "p50 µs"),
            Metric("p99_us", "p99 µs"),
            Metric("cpu_us", "broker CPU µs each"),
        ),
        measure=commits,
        settings_of={"tidelog": {"flush.on.ack": "false"}},
    ),
    Row(
        name="transactions-fsync",
        title="transactions of 100 × 1 KB over 4 partitions, one after the other, all fsynced (librdkafka)",
        guarantee=SYNCED + ", coordinator's records too",
        metrics=_TRANSACTION,
        measure=partial(transactions, synced=True),
        settings_of={"tidelog": {"flush.on.ack": "true"}, "kafka": {"log.flush.interval.messages": "1"}},
    ),
)
