"""Reading what is already there: librdkafka from C, by one consumer or four at once."""

import time
from functools import partial

from bench import native
from bench.peers import raw
from bench.peers.clients import at_once
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

PARTITIONS, PER_BATCH, RECORD_BYTES = 4, 990, 1000
_TOPICS: dict[int, tuple[str, int]] = {}  # by broker process: written once, read in every round


def filled(broker: Broker, name: str, megabytes: int, partitions: int) -> tuple[str, int]:
    """A topic with this much in it; and the records of one partition."""
    topic = broker.make_topic(name, partitions=partitions)
    batches = max(1, megabytes // partitions)
    each = [fill(broker, topic, batches, partition) for partition in range(partitions)]
    broker.check_end(topic, sum(each), partitions)
    return topic, each[0]


def fill(broker: Broker, topic: str, megabytes: int, partition: int = 0) -> int:
    """In batches of almost 1 MB; how many records that is."""
    request = broker.work_dir / "request"
    request.write_bytes(raw.produce(topic, raw.batch(PER_BATCH, RECORD_BYTES), partition=partition))
    native.run("blast", "send", broker.host, broker.port, request, megabytes, 4)
    return megabytes * PER_BATCH


def read(broker: Broker, *, consumers: int) -> Values:
    key = broker.pids[0]
    if key not in _TOPICS:
        _TOPICS[key] = filled(broker, "history", broker.scaled(2000), PARTITIONS)
        time.sleep(1)  # the writes' own aftermath
    topic, each = _TOPICS[key]
    which, count = ("={job}", each) if consumers > 1 else (PARTITIONS, each * PARTITIONS)
    cpu = broker.cpu_s()
    took = at_once(
        consumers, "consume", broker.bootstrap, topic, which, count, fetch_max_bytes=67_108_864, check_crcs="false"
    )
    cpu = broker.cpu_s() - cpu
    seconds = max(one["seconds"] for one in took)
    gigabytes = each * PARTITIONS * RECORD_BYTES / 1e9
    return {"mb_s": gigabytes * 1e3 / seconds, "cpu_s": cpu / gigabytes, "rss_mb": broker.rss_mb()}


ROWS = tuple(
    Row(
        name=f"history-{consumers}",
        title=f"read 2 GB of 1 KB records, {consumers} consumer{'s' * (consumers > 1)} (librdkafka)",
        guarantee="page cache, read without checking CRCs",
        metrics=(
            Metric("mb_s", "MB/s", Better.HIGHER, target=1.0),
            Metric("cpu_s", "broker CPU s per GB"),
            Metric("rss_mb", "broker RSS MB"),
        ),
        measure=partial(read, consumers=consumers),
    )
    for consumers in (1, 4)
)
