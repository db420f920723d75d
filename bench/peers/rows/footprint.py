"""What a broker takes when nothing happens, what remains after load, and how soon it is there."""

import time
from pathlib import Path

from bench import native
from bench.peers.clients import BIG_BATCHES
from bench.peers.rows.row import Row
from bench.peers.samples import Metric, Values
from bench.peers.servers.broker import Launcher
from bench.peers.servers.kafka_protocol import wait_ready


def footprint(launcher: Launcher, directory: Path, quick: bool) -> Values:
    broker = launcher.prepare(directory, nodes=1, quick=quick, settings={})
    try:
        began = time.perf_counter()
        broker.nodes[0].start()
        wait_ready(broker.nodes)
        ready_s = time.perf_counter() - began
        time.sleep(3)
        idle_mb, idle_cpu = broker.rss_mb(), broker.cpu_s()
        time.sleep(3)
        idle_cpu = broker.cpu_s() - idle_cpu

        topic, count = broker.make_topic("load", partitions=4), broker.scaled(2_000_000)
        before = broker.disk_bytes()
        native.rdload("produce", broker.bootstrap, topic, 4, count, 100, acks="all", **BIG_BATCHES)
        native.rdload("consume", broker.bootstrap, topic, 4, count)
        loaded_mb = broker.rss_mb()
        broker.stop()
        stored = broker.disk_bytes() - before
    finally:
        broker.stop()
    return {
        "ready_s": ready_s,
        "idle_mb": idle_mb,
        "idle_cpu": idle_cpu / 3 * 100,
        "loaded_mb": loaded_mb,
        "disk_bytes": stored / count,
    }


ROWS = (
    Row(
        name="footprint",
        title="an empty broker; then 2 M records of 100 B written and read (librdkafka, 4 partitions)",
        guarantee="in the page cache of one broker",
        metrics=(
            Metric("ready_s", "start to ready, s", target=0.1),
            Metric("idle_mb", "RSS idle, MB", target=0.15),
            Metric("loaded_mb", "RSS after load, MB", target=0.15),
            Metric("disk_bytes", "disk bytes per record", target=1.0),
            Metric("idle_cpu", "CPU idle, % of a core"),
        ),
        from_start=footprint,
    ),
)
