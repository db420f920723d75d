"""How long one record takes: its acknowledgement alone, and from producer to waiting consumer."""

from functools import partial

from bench import native
from bench.peers import raw
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

CACHED = "in the page cache of one broker"
SYNCED = "on its disk (fsync or fdatasync before the answer)"


def one_record(broker: Broker, *, synced: bool) -> Values:
    topic = broker.make_topic("one", synced=synced)
    request = broker.work_dir / "request"
    request.write_bytes(raw.produce(topic, raw.batch(1, 100), acks=-1))
    count = broker.scaled(2_000 if synced else 20_000)
    cpu = broker.cpu_s()
    took = native.run("blast", "send", broker.host, broker.port, request, count, 1)
    cpu = broker.cpu_s() - cpu
    broker.check_end(topic, count)
    broker.delete_topic(topic)
    return {
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "per_s": count / took["seconds"],
        "cpu_us": cpu / count * 1e6,
    }


def end_to_end(broker: Broker, *, rate: int) -> Values:
    topic = broker.make_topic("e2e")
    seconds = 2 if broker.quick else 8
    cpu = broker.cpu_s()
    took = native.rdload("e2e", broker.bootstrap, topic, rate * seconds, rate, 100, linger_ms=0, acks=1)
    cpu = broker.cpu_s() - cpu
    broker.delete_topic(topic)
    return {
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "p999_us": took["p999_us"],
        "cpu_us": cpu / (rate * seconds) * 1e6,
    }


def _end_to_end_row(rate: int) -> Row:
    return Row(
        name=f"e2e-{rate}",
        title=f"producer to waiting consumer at {rate:,} records/s (librdkafka)",
        guarantee=CACHED,
        metrics=(
            Metric("p50_us", "p50 µs", target=0.7),
            Metric("p99_us", "p99 µs", target=0.7),
            Metric("p999_us", "p99.9 µs", target=0.7),
            Metric("cpu_us", "broker CPU µs per record"),
        ),
        measure=partial(end_to_end, rate=rate),
    )


_ACKNOWLEDGED = (
    Metric("p50_us", "p50 µs", target=0.5),
    Metric("p99_us", "p99 µs", target=0.5),
    Metric("per_s", "requests/s", Better.HIGHER),
    Metric("cpu_us", "broker CPU µs per request"),
)
ROWS = (
    Row(
        name="one-record",
        title="one record per request, one in flight, acks=all (C client)",
        guarantee=CACHED,
        metrics=_ACKNOWLEDGED,
        measure=partial(one_record, synced=False),
    ),
    Row(
        name="one-record-fsync",
        title="one record per request, one in flight, acks=all, fsync first (C client)",
        guarantee=SYNCED,
        metrics=_ACKNOWLEDGED,
        measure=partial(one_record, synced=True),
    ),
    _end_to_end_row(1_000),
    _end_to_end_row(10_000),
)
