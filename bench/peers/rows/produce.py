"""Bulk produce through librdkafka with big batches."""

from functools import partial

from bench.peers.clients import BIG_BATCHES, at_once
from bench.peers.rows.latency import CACHED, SYNCED
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker


def produce(broker: Broker, *, record_bytes: int, acks: str, producers: int, synced: bool = False) -> Values:
    topic = broker.make_topic("produce", partitions=producers, synced=synced)
    each = broker.scaled(2_000_000 if record_bytes == 100 else 600_000) // producers
    cpu = broker.cpu_s()
    took = at_once(
        producers, "produce", broker.bootstrap, topic, producers, each, record_bytes, acks=acks, **BIG_BATCHES
    )
    cpu = broker.cpu_s() - cpu
    seconds = max(one["seconds"] for one in took)
    broker.check_end(topic, (each + 1) * producers, producers)  # and one record each, by which it met the broker
    broker.delete_topic(topic)
    count = each * producers
    return {
        "rate": count / seconds,
        "mb_s": count * record_bytes / seconds / 1e6,
        "cpu_s": cpu / count * 1e6,
        "rss_mb": broker.rss_mb(),
    }


def row(record_bytes: int, acks: str, producers: int, *, synced: bool = False, nodes: int = 1) -> Row:
    size = "1 KB" if record_bytes == 1000 else f"{record_bytes} B"
    who = "1 producer" if producers == 1 else f"{producers} producers"
    copies = "" if nodes == 1 else f", {nodes} brokers"
    guarantee = SYNCED if synced else CACHED
    if nodes > 1:
        guarantee = "in the page caches of all in-sync brokers, two at least"
    return Row(
        name=f"produce-{record_bytes}-{acks}-{producers}" + "-fsync" * synced + f"-{nodes}-nodes" * (nodes > 1),
        title=f"produce {size}, acks={acks}, {who}{copies}" + ", fsync first" * synced,
        guarantee=guarantee,
        metrics=(
            Metric("rate", "records/s", Better.HIGHER, target=2.0 if synced else 1.0),
            Metric("cpu_s", "broker CPU s per M records", target=None if synced or nodes > 1 else 0.5),
            Metric("rss_mb", "broker RSS MB"),
        ),
        measure=partial(produce, record_bytes=record_bytes, acks=acks, producers=producers, synced=synced),
        nodes=nodes,
        settings={"min.insync.replicas": "2"} if nodes > 1 else {},
    )


ROWS = tuple(
    row(record_bytes, acks, producers) for record_bytes in (100, 1000) for acks in ("1", "all") for producers in (1, 4)
)
SYNCED_ROWS = tuple(row(record_bytes, "all", 1, synced=True) for record_bytes in (100, 1000))
