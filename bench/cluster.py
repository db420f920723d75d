"""Three brokers on this machine: how soon they serve, and how long clients wait when one dies, stands still or stops.

Absolute times, and so only as good as the machine is idle. Every part checks that nothing acknowledged was lost, sits
there twice or moved: a fast answer that is wrong would end the run.
"""

import itertools
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException
from tests.scenarios.cluster import QUICK_TO_RETURN, Load, create_topic, leader_of, look, make_whole, wait
from tests.scenarios.kit import NAMES, batch_of, produce_request

from bench.results import Limits, Result
from bench.target import Target
from tidelog.broker.coordinators.coordinator import partition_of
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Cluster

_GROUPS, _GROUP_PARTITIONS = "__consumer_offsets", 4
_SETTLED_SECONDS = 4.0
_PATIENCE_SECONDS = 60.0


def measure(_target: Target, _limits: Limits) -> list[Result]:
    began = time.monotonic()
    with Cluster(3, {"offsets.topic.num.partitions": _GROUP_PARTITIONS}) as cluster:
        results = [_row("three brokers, start to ready", time.monotonic() - began, 2)]
        results.append(_row("leader killed: writes stand still", _pause_of(cluster, "killed", cluster.kill), 2))
        results.append(_row("leader paused: writes stand still", _pause_of(cluster, "paused", cluster.pause), 3))
        results += _two_dead(cluster)
        results.append(_row("group coordinator killed: next commit", _coordinator_killed(cluster), 5))
        results.append(_row("all killed at once: first ack after the start", _all_killed(cluster), 5))
        results.append(_row("rolling restart: longest pause", _rolling(cluster), 0.5))
    return results


def _row(name: str, seconds: float, bar: float) -> Result:
    return Result(name=name, value=seconds, unit="s", target=f"< {bar:g}", ok=seconds < bar)


def _load(cluster: Cluster, topic: str) -> Load:
    """On all brokers, of which the first partition is watched. A client that has met the struck one alone waits for its
    own timeouts, twice or three times, before it asks another."""
    make_whole(cluster)
    create_topic(cluster, topic, len(cluster.nodes), min_insync_replicas="2")
    return Load(cluster.bootstrap_servers, topic, len(cluster.nodes), pause_s=0.005, request_timeout_ms=1000, timed=0)


def _pause_of(cluster: Cluster, topic: str, strike: Callable[[int], None]) -> float:
    with _load(cluster, topic) as load:
        wait(lambda: len(load.promised_at) >= 30, "the watched partition is written to")
        at = time.monotonic()
        strike(leader_of(cluster, topic))
        time.sleep(_SETTLED_SECONDS)
        settled = time.monotonic()
        wait(lambda: load.promised_at[-1] > settled, "the watched partition is written to again")
        pause = _longest_pause(load, at)
        make_whole(cluster)
    load.check()
    return pause


def _longest_pause(load: Load, since: float) -> float:
    times = list(load.promised_at)
    first = next(number for number, moment in enumerate(times) if moment >= since)
    seen = times[max(first - 1, 0) :]
    return max(later - earlier for earlier, later in itertools.pairwise(seen))


def _two_dead(cluster: Cluster) -> list[Result]:
    topic = "deserted"
    make_whole(cluster)
    create_topic(cluster, topic, min_insync_replicas="2")
    leader = leader_of(cluster, topic)
    first, second = (node for node in cluster.nodes if node != leader)
    with Connection("127.0.0.1", cluster.ports[leader], _PATIENCE_SECONDS) as connection:

        def answer() -> int:
            response = connection.call(produce_request(topic, batch_of(b"1")), NAMES)
            return int(response.responses[0].partition_responses[0].error_code)

        cluster.kill(first)
        wait(lambda: answer() == ErrorCode.NONE, "two are enough")
        cluster.kill(second)
        refused = wait(lambda: answer() == ErrorCode.NOT_ENOUGH_REPLICAS, "it says that it has not enough")
        cluster.start_node(first)
        cluster.wait_ready(first)
        writable = wait(lambda: answer() == ErrorCode.NONE, "it takes records again")
    return [
        _row("two of three killed: NOT_ENOUGH_REPLICAS after", refused, 3),
        _row("one of them ready again: writable after", writable, 2),
    ]


def _coordinator_killed(cluster: Cluster) -> float:
    topic, group = "grouped", "bench"
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with _load(cluster, topic) as load:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings, **QUICK_TO_RETURN})
        consumer.subscribe([topic])

        def commits() -> bool:
            if not [each for each in consumer.consume(100, 0.05) if each.error() is None]:
                return False
            try:
                return bool(consumer.commit(asynchronous=False))
            except KafkaException:
                return False

        wait(commits, "it commits")
        cluster.kill(leader_of(cluster, _GROUPS, partition_of(group, _GROUP_PARTITIONS)))
        took = wait(commits, "it commits again")
        consumer.close()
        make_whole(cluster)
    load.check()
    return took


def _all_killed(cluster: Cluster) -> float:
    with _load(cluster, "outage") as load:
        load.await_more(100)
        for node in cluster.nodes:
            cluster.kill(node)
        at = time.monotonic()
        for node in cluster.nodes:
            cluster.start_node(node)
        load.await_more(1)
        took = time.monotonic() - at
        make_whole(cluster)
    load.check()
    return took


def _rolling(cluster: Cluster) -> float:
    with _load(cluster, "rolling") as load:
        load.await_more(100)
        at = time.monotonic()
        for node in cluster.nodes:
            cluster.terminate(node)
            cluster.restart(node)
            wait(lambda: (picture := look(cluster)) is not None and picture.is_healthy, "every replica in sync")
        load.await_more(100)
        pause = _longest_pause(load, at)
    load.check()
    return pause
