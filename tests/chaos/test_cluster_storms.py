"""Three brokers that are killed, paused, stopped and cut off at random under acknowledged load: every promise is kept,
once and in order, and in the end every replica is the same, byte for byte."""

import os
import time
from collections.abc import Iterator

import pytest
from tests.scenarios.cluster import Load, create_topic, make_whole
from tests.tools import need

from tidelog.cli.cluster.network import Namespaces
from tidelog.testing import Cluster

from .cluster_storm import Storm, check_replicas

SECONDS = float(os.environ.get("STORM_S", "30"))
SEED = int(os.environ.get("STORM_SEED", "0")) or time.time_ns() % 1_000_000
PARTITIONS = 4
SETTINGS = {"log.segment.bytes": 200_000}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400 + 3 * SECONDS)]


@pytest.fixture
def network() -> Iterator[Namespaces]:
    need("ip", "iproute2")
    network = Namespaces(f"storm-{os.getpid()}", range(1, 4))
    network.create()
    yield network
    network.remove()


def weather(cluster: Cluster, network: Namespaces | None, seconds: float) -> None:
    create_topic(cluster, "storm", PARTITIONS, min_insync_replicas="2")
    storm = Storm(cluster, SEED, network)
    with Load(cluster.bootstrap_servers, "storm", PARTITIONS) as load:
        load.await_more()
        storm.blow(seconds)
        make_whole(cluster)
        load.await_more()
    load.check()
    print(f"{storm.accidents} accidents, {len(load.promised)} acknowledged, longest pause {load.longest_pause_s:.1f} s")
    make_whole(cluster)  # a replica that is out of sync when the others stop would rightly have less
    for node in cluster.nodes:
        cluster.terminate(node)
    check_replicas(cluster, "storm", PARTITIONS)


def test_killed_paused_and_stopped() -> None:
    with Cluster(3, SETTINGS) as cluster:
        weather(cluster, None, SECONDS)


def test_cut_off_deaf_and_mute(network: Namespaces) -> None:
    with Cluster(3, SETTINGS, network=network) as cluster:
        weather(cluster, network, SECONDS / 2)
