"""Retention: writing to a topic whose oldest segments are deleted all the while."""

from bench import native
from bench.peers.clients import BIG_BATCHES
from bench.peers.rows.latency import CACHED
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

RECORDS, RECORD_BYTES = 3_000_000, 1000
SEGMENT_BYTES, KEPT_BYTES = 20_000_000, 100_000_000


def retention(broker: Broker) -> Values:
    """Thirty times what is kept goes through: by the end nearly all of it must have been deleted again."""
    config = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(KEPT_BYTES), "file.delete.delay.ms": "0"}
    topic, count = broker.make_topic("retention", config=config), broker.scaled(RECORDS)
    cpu = broker.cpu_s()
    took = native.rdload("produce", broker.bootstrap, topic, 1, count, RECORD_BYTES, acks=1, **BIG_BATCHES)
    cpu = broker.cpu_s() - cpu
    held = sum(path.stat().st_size for path in broker.nodes[0].data_dir.glob(f"{topic}-0/*.log"))
    written = count * RECORD_BYTES
    broker.delete_topic(topic)
    return {"mb_s": written / took["seconds"] / 1e6, "cpu_s": cpu / written * 1e9, "held_mb": held / 1e6}


ROWS = (
    Row(
        name="retention",
        title="produce 3 GB of 1 KB records while retention keeps 100 MB, looked at every 100 ms",
        guarantee=CACHED,
        metrics=(
            Metric("mb_s", "MB/s", Better.HIGHER, target=1.0),
            Metric("cpu_s", "broker CPU s per GB"),
            Metric("held_mb", "MB held at the end"),
        ),
        measure=retention,
        settings={"log.retention.check.interval.ms": "100"},
        rounds_most=3,
    ),
)
