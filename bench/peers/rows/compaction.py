"""Compaction: how fast a log of few keys written often shrinks to the newest record of each."""

import time

from bench import native
from bench.peers import raw
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import ADMIN, Broker

PER_BATCH, RECORD_BYTES, BATCHES, MEGABYTES = 1000, 1000, 20, 500
SEGMENT_BYTES = 10_000_000
WAIT_SECONDS = 120


def compaction(broker: Broker) -> Values:
    """Nothing is cleaned until all is written; then the clock runs until nothing but the newest is left."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.compaction.lag.ms": "3600000000"}
    topic = broker.make_topic("compaction", config=config)
    now_ms = int(time.time() * 1000)
    request = broker.work_dir / "request"
    turns = max(1, broker.scaled(MEGABYTES) // BATCHES)
    for number in range(BATCHES):
        batch = raw.batch(PER_BATCH, RECORD_BYTES, first_key=number * PER_BATCH, now_ms=now_ms)
        request.write_bytes(raw.produce(topic, batch))
        native.run("blast", "send", broker.host, broker.port, request, turns, 4)
    written = turns * BATCHES * len(batch)
    left = BATCHES * len(batch) + SEGMENT_BYTES + len(batch)  # the newest of every key, and a segment that is open
    cpu = broker.cpu_s()
    began = time.perf_counter()
    _set(broker, topic, "min.compaction.lag.ms", "0")
    while (size := _log_bytes(broker, topic)) > left:
        if time.perf_counter() - began > WAIT_SECONDS:
            raise RuntimeError(f"{broker.side}: {size / 1e6:,.0f} MB are left after {WAIT_SECONDS} s")
        time.sleep(0.05)
    took = time.perf_counter() - began
    cpu = broker.cpu_s() - cpu
    broker.delete_topic(topic)
    return {"mb_s": written / took / 1e6, "cpu_s": cpu / written * 1e9}


def _log_bytes(broker: Broker, topic: str) -> int:
    """Of segments in use: Kafka keeps what it replaced for a while, under names that end otherwise."""
    total = 0
    for path in broker.nodes[0].data_dir.glob(f"{topic}-0/*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _set(broker: Broker, topic: str, name: str, value: str) -> None:
    entry = ADMIN.ConfigEntry(name, value, incremental_operation=ADMIN.AlterConfigOpType.SET)
    resource = ADMIN.ConfigResource(ADMIN.ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)


ROWS = (
    Row(
        name="compaction",
        title=f"compaction of {MEGABYTES} MB of 1 KB records to 20,000 keys",
        guarantee="the newest record of every key stays",
        metrics=(Metric("mb_s", "MB/s", Better.HIGHER, target=1.0), Metric("cpu_s", "broker CPU s per GB")),
        measure=compaction,
        settings={"log.cleaner.backoff.ms": "100"},
        rounds_most=3,
        warm=False,
    ),
)
