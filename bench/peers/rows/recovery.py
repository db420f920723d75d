"""A broker that was killed: how long until it serves all that it had acknowledged."""

import signal
import time
from pathlib import Path

from bench.peers.rows.history import filled
from bench.peers.rows.row import Row
from bench.peers.samples import Metric, Values
from bench.peers.servers.broker import Launcher
from bench.peers.servers.kafka_protocol import wait_ready

PARTITIONS, MEGABYTES = 4, 20_000


def recovery(launcher: Launcher, directory: Path, quick: bool) -> Values:
    broker = launcher.launch(directory, nodes=1, quick=quick, settings={})
    try:
        topic, each = filled(broker, "recovery", broker.scaled(MEGABYTES), PARTITIONS)
        broker.stop(signal.SIGKILL)
        began = time.perf_counter()
        broker.nodes[0].start()
        wait_ready(broker.nodes, timeout_s=150)
        broker.wait_for_leaders(topic, PARTITIONS)
        took = time.perf_counter() - began
        broker.check_end(topic, each * PARTITIONS, PARTITIONS)
        cpu = broker.cpu_s()
    finally:
        broker.stop()
    return {"seconds": took, "cpu_s": cpu}


ROWS = (
    Row(
        name="recovery",
        title=f"kill -9 with {MEGABYTES / 1000:g} GB in {PARTITIONS} partitions, start to serving all of it",
        guarantee="everything acknowledged is there again; files still in the page cache",
        metrics=(Metric("seconds", "s", target=0.2), Metric("cpu_s", "broker CPU s")),
        from_start=recovery,
        rounds_most=3,
    ),
)
