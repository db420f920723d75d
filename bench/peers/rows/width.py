"""Many at once: 200 consumers of one topic, 2,000 partitions, 2,000 connections."""

from bench import native
from bench.peers import clients, raw
from bench.peers.rows.latency import CACHED
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

CONSUMERS, RATE = 200, 50
PARTITIONS, CONNECTIONS, IN_FLIGHT = 2000, 2000, 64


def fan_out(broker: Broker) -> Values:
    topic = broker.make_topic("fanout")
    request, fetch = broker.work_dir / "request", broker.work_dir / "fetch"
    request.write_bytes(raw.produce(topic, raw.batch(1, 100)))
    asking, offset_at, head = raw.waiting_fetch(topic)
    fetch.write_bytes(asking)
    count = RATE * (2 if broker.quick else 5)
    cpu = broker.cpu_s()
    took = clients.run(
        "crowd", "fanout", broker.host, broker.port, request, fetch, offset_at, head, CONSUMERS, count, RATE
    )
    cpu = broker.cpu_s() - cpu
    rss = broker.rss_mb()
    broker.delete_topic(topic)
    return {
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "cpu_us": cpu / took["count"] * 1e6,
        "rss_mb": rss,
    }


def many_partitions(broker: Broker) -> Values:
    """librdkafka spreads records over all of them, so that batches are small and requests wide."""
    topic, count = broker.make_topic("wide", partitions=PARTITIONS), broker.scaled(1_000_000)
    cpu = broker.cpu_s()
    took = native.rdload("produce", broker.bootstrap, topic, PARTITIONS, count, 100, acks=1, **clients.BIG_BATCHES)
    cpu = broker.cpu_s() - cpu
    read = native.rdload("consume", broker.bootstrap, topic, PARTITIONS, count)
    rss = broker.rss_mb()
    broker.delete_topic(topic)
    return {
        "rate": count / took["seconds"],
        "cpu_s": cpu / count * 1e6,
        "read_rate": count / read["seconds"],
        "rss_mb": rss,
    }


def many_connections(broker: Broker) -> Values:
    topic = broker.make_topic("connections")
    request = broker.work_dir / "request"
    request.write_bytes(raw.produce(topic, raw.batch(1, 100)))
    count, before = broker.scaled(50_000), broker.rss_mb()
    cpu = broker.cpu_s()
    took = clients.run("crowd", "spread", broker.host, broker.port, request, CONNECTIONS, count, IN_FLIGHT, 0, 0)
    cpu = broker.cpu_s() - cpu
    rss = broker.rss_mb()
    broker.check_end(topic, count)
    broker.delete_topic(topic)
    return {
        "per_s": count / took["seconds"],
        "p99_us": took["p99_us"],
        "cpu_us": cpu / count * 1e6,
        "rss_mb": rss,
        "rss_more_mb": rss - before,
    }


_MEMORY = Metric("rss_mb", "broker RSS MB", target=0.2)
ROWS = (
    Row(
        name="fan-out-200",
        title=f"{CONSUMERS} waiting consumers of one topic, {RATE} records/s to each (C client)",
        guarantee=CACHED,
        metrics=(
            Metric("p50_us", "p50 µs to a consumer", target=1.0),
            Metric("p99_us", "p99 µs to a consumer"),
            Metric("cpu_us", "broker CPU µs per delivery", target=1.0),
            _MEMORY,
        ),
        measure=fan_out,
    ),
    Row(
        name="connections-2000",
        title=f"one record per request over {CONNECTIONS:,} connections, {IN_FLIGHT} in flight (C client)",
        guarantee=CACHED,
        metrics=(
            Metric("per_s", "requests/s", Better.HIGHER, target=1.0),
            Metric("p99_us", "p99 µs"),
            Metric("cpu_us", "broker CPU µs per request"),
            _MEMORY,
        ),
        measure=many_connections,
    ),
    Row(
        name="partitions-2000",
        title=f"produce and read 100 B over {PARTITIONS:,} partitions (librdkafka)",
        guarantee=CACHED,
        metrics=(
            Metric("rate", "records/s written", Better.HIGHER, target=1.0),
            Metric("read_rate", "records/s read", Better.HIGHER, target=1.0),
            Metric("cpu_s", "broker CPU s per M records written"),
            _MEMORY,
        ),
        measure=many_partitions,
        rounds_most=3,
    ),
)
