"""`python -m bench.hold [SECONDS]`: three brokers, a producer and a consumer on a busy machine, and nobody is replaced.

A failure detector that answers soon must not see failures where there are none. Exit code 1: something was elected.
"""

import os
import sys
import time

from confluent_kafka import Consumer
from tests.scenarios.cluster import Load, create_topic, seen

from tidelog.testing import Cluster

PARTITIONS = 6


def main(seconds: float) -> int:
    with Cluster(3) as cluster:
        create_topic(cluster, "held", PARTITIONS)
        reader = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "held", "auto.offset.reset": "earliest"}
        )
        reader.subscribe(["held"])
        reader.consume(1, 10)  # the topic of offsets is made, and its leaders are elected, before it counts
        before = _offices(cluster)
        end = time.monotonic() + seconds
        count = 0
        with Load(cluster.bootstrap_servers, "held", PARTITIONS, pause_s=0.02, request_timeout_ms=30_000) as load:
            while time.monotonic() < end:
                count += len(reader.consume(500, 0.5))
        load.check()
        reader.close()
        changed = {what for what, holder in _offices(cluster).items() if before.get(what) != holder}
    print(
        f"{seconds:g} s at load {os.getloadavg()[1]:.1f}: {len(load.promised):,} acknowledged, {count:,} read, "
        f"longest pause {load.longest_pause_s:.2f} s, changed: {', '.join(sorted(changed)) or 'nothing'}"
    )
    return 1 if changed else 0


def _offices(cluster: Cluster) -> dict[str, int]:
    """Who leads what, the quorum's epoch, and how often each broker was taken for dead."""
    picture = seen(cluster)
    offices = {each.place: each.leader for each in picture.partitions}
    if picture.quorum is not None:
        offices["the quorum's epoch"] = picture.quorum.epoch
    for node in cluster.nodes:
        offices[f"silence that broker {node} noticed"] = cluster.log_of(node).count("broker is silent")
    return offices


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600))
