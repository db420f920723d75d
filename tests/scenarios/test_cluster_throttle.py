"""Replicas that move are copied no faster than they may be, by whom copies or by whom gives; and nobody else waits."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tidelog.cli import run
from tidelog.cli.config import alter_configs
from tidelog.cli.connecting import Cluster as Kafka
from tidelog.testing import Cluster

from .cluster import PATIENCE_S, Load, create_topic, partition, producer, wait

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

RECORD, RECORDS = bytes(50_000), 80
RATE = 1_000_000
SHORTEST_S = 0.6 * (len(RECORD) * RECORDS / RATE - 1)
"""Of a copy: a second's worth goes at once."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str) -> None:
    """On broker 1 alone."""
    create_topic(cluster, topic, replicas=1)
    assert run(["topic", "reassign", topic, "--to", "1", "-b", cluster.bootstrap_servers]) == 0
    writer = producer(cluster, batch_size=100_000)
    for _ in range(RECORDS):
        writer.produce(topic, RECORD)
    assert writer.flush(PATIENCE_S) == 0


def settings_of(cluster: Cluster, kind: ConfigResource.Type, name: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (answer,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {key: entry.value for key, entry in answer.result(PATIENCE_S).items() if "throttled" in key}


def await_no_limits(cluster: Cluster) -> None:
    """Every broker tells of its own, and hears of a change in its own time."""
    for node in cluster.nodes:
        wait(
            lambda node=node: (
                set(settings_of(cluster, ConfigResource.Type.BROKER, str(node)).values())  # type: ignore[misc]
                == {str(2**63 - 1)}
            ),
            "the limits are lifted",
        )


def test_a_move_with_a_limit_takes_its_time_and_leaves_no_limit_behind(cluster: Cluster) -> None:
    fill(cluster, "slow")
    before = settings_of(cluster, ConfigResource.Type.TOPIC, "slow")
    create_topic(cluster, "beside")
    with Load(cluster.bootstrap_servers, "beside") as load:
        load.await_more()
        began = time.monotonic()
        to = ["--to", "2,3", "--throttle", "1MB", "-b", cluster.bootstrap_servers]
        assert run(["topic", "reassign", "slow", *to]) == 0
        took = time.monotonic() - began
        load.await_more()
    load.check()
    print(f"\n{len(RECORD) * RECORDS:,} bytes in {took:.1f} s, longest pause beside it {load.longest_pause_s:.2f} s")
    assert took > SHORTEST_S
    assert sorted(partition(cluster, "slow").in_sync) == [2, 3]
    wait(lambda: settings_of(cluster, ConfigResource.Type.TOPIC, "slow") == before, "the topic is as it was")
    await_no_limits(cluster)


@pytest.mark.parametrize(("side", "node"), [("leader", 1), ("follower", 2)])
def test_each_side_has_a_limit_of_its_own(cluster: Cluster, side: str, node: int) -> None:
    """As kafka-configs sets it; a list that names other replicas limits nothing."""
    topic = f"by-{side}"
    fill(cluster, topic)
    kafka = Kafka.dial(cluster.bootstrap_servers, None)
    alter_configs(kafka, "broker", str(node), {f"{side}.replication.throttled.rate": str(RATE)})
    took = {}
    for listed, target in (("0:3", "1,3"), (f"0:{node}", "1,2")):
        alter_configs(kafka, "topic", topic, {f"{side}.replication.throttled.replicas": listed})
        began = time.monotonic()
        assert run(["topic", "reassign", topic, "--to", target, "-b", cluster.bootstrap_servers]) == 0
        took[listed] = time.monotonic() - began
    alter_configs(kafka, "broker", str(node), {f"{side}.replication.throttled.rate": None})
    print(f"\n{took}")
    assert took[f"0:{node}"] > SHORTEST_S
    assert took["0:3"] < took[f"0:{node}"]


def test_a_replica_in_sync_is_never_held_back(cluster: Cluster) -> None:
    create_topic(cluster, "free", replicas=3, min_insync_replicas="3")
    kafka = Kafka.dial(cluster.bootstrap_servers, None)
    for node in cluster.nodes:
        rates = {"leader.replication.throttled.rate": "10", "follower.replication.throttled.rate": "10"}
        alter_configs(kafka, "broker", str(node), rates)
    lists = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
    alter_configs(kafka, "topic", "free", lists)
    with Load(cluster.bootstrap_servers, "free") as load:
        load.await_more(300)
    load.check()
    assert run(["topic", "reassign", "--throttle", "none", "-b", cluster.bootstrap_servers]) == 0
    await_no_limits(cluster)
