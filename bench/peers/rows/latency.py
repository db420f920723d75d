"""How long one record takes: its acknowledgement alone, and from producer to waiting consumer."""

from functools import partial

from bench import native
from bench.peers import raw
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

CACHED = "in the page cache of one broker"
_AWAKE = ", cores kept awake"
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
    seconds = 2 if broker.quick else 5
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


def _end_to_end_row(rate: int, *, awake: bool) -> Row:
    return Row(
        name=f"e2e-{rate}" + "-awake" * awake,
        title=f"producer to waiting consumer at {rate:,} records/s" + _AWAKE * awake + " (librdkafka)",
        guarantee=CACHED,
        metrics=(
            Metric("p50_us", "p50 µs", target=0.7),
            Metric("p99_us", "p99 µs", target=0.7),
            Metric("p999_us", "p99.9 µs", target=0.7),
            Metric("cpu_us", "broker CPU µs per record"),
        ),
        measure=partial(end_to_end, rate=rate),
        awake=awake,
    )


_ACKNOWLEDGED = (
    Metric("p50_us", "p50 µs", target=0.5),
    Metric("p99_us", "p99 µs", target=0.5),
    Metric("per_s", "requests/s", Better.HIGHER),
    Metric("cpu_us", "broker CPU µs per request"),
)


def _one_record_row(*, synced: bool = False, awake: bool = False) -> Row:
    how = ", fsync first" * synced + _AWAKE * awake
    return Row(
        name="one-record" + "-fsync" * synced + "-awake" * awake,
        title=f"one record per request, one in flight, acks=all{how} (C client)",
        guarantee=SYNCED if synced else CACHED,
        metrics=_ACKNOWLEDGED,
        measure=partial(one_record, synced=synced),
        awake=awake,
    )


ONE_RECORD, ONE_RECORD_AWAKE = _one_record_row(), _one_record_row(awake=True)
ONE_RECORD_SYNCED, ONE_RECORD_SYNCED_AWAKE = _one_record_row(synced=True), _one_record_row(synced=True, awake=True)
END_TO_END = tuple(_end_to_end_row(rate, awake=awake) for rate in (1_000, 10_000) for awake in (False, True))
