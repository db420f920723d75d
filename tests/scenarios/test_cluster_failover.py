"""Three brokers in processes, and what clients notice when one dies, stands still or stops: a pause, nothing else."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tidelog.cli import run
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Cluster

from .cluster import (
    PATIENCE_S,
    QUICK_TO_RETURN,
    Load,
    create_topic,
    leader_of,
    look,
    make_whole,
    partition,
    producer,
    read_all,
    seen,
    wait,
)
from .kit import NAMES, batch_of, produce_request

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

TOPICS = itertools.count()
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    with Cluster(3, settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """Whole: whatever the test before did to it is undone."""
    make_whole(running)
    return running


@pytest.fixture
def topic() -> str:
    return f"t{next(TOPICS)}"


Killer = Callable[[Cluster, str], int]


def leader(cluster: Cluster, topic: str) -> int:
    return leader_of(cluster, topic)


def controller(cluster: Cluster, topic: str) -> int:
    return seen(cluster).controller


@pytest.mark.parametrize("victim", [leader, controller])
def test_a_broker_killed_under_load(cluster: Cluster, topic: str, victim: Killer) -> None:
    create_topic(cluster, topic, partitions=3)
    with Load(cluster.bootstrap_servers, topic, 3) as load:
        load.await_more()
        node = victim(cluster, topic)
        cluster.kill(node)
        wait(lambda: all(leader_of(cluster, topic, p) != node for p in range(3)), "others lead")
        load.await_more()
        cluster.restart(node)
        load.await_more()
    load.check()


def test_a_zombie_acknowledges_nothing_when_it_wakes(cluster: Cluster, topic: str) -> None:
    """A leader that stood still does not know that it was replaced. What it is asked meanwhile, it must not promise."""
    create_topic(cluster, topic)
    zombie = leader_of(cluster, topic)
    others = [node for node in cluster.nodes if node != zombie]
    with Load(cluster.bootstrap_servers, topic) as load:
        load.await_more()
        with Connection("127.0.0.1", cluster.ports[zombie], PATIENCE_S) as connection:
            cluster.pause(zombie)
            connection.send(produce_request(topic, batch_of(b"1000000000")), NAMES)
            wait(lambda: leader_of(cluster, topic, 0, *others) != zombie, "another leads")
            load.await_more()
            cluster.resume(zombie)
            answer = connection.receive().responses[0].partition_responses[0]
            assert answer.error_code != 0, "acknowledged by a broker that leads no more"
            assert ErrorCode(answer.error_code) in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                ErrorCode.REQUEST_TIMED_OUT,
            )
        load.await_more()
    load.check()
    assert 1_000_000_000 not in read_all(cluster.bootstrap_servers, topic)[0]


def test_not_enough_replicas_and_enough_again(cluster: Cluster, topic: str) -> None:
    """With one of three away, for those who want two copies and for those who want all three."""
    create_topic(cluster, topic, min_insync_replicas="2")
    create_topic(cluster, f"{topic}-all", min_insync_replicas="3")
    dead = next(node for node in cluster.nodes if node != leader_of(cluster, topic))
    cluster.kill(dead)
    for name, code in ((topic, 0), (f"{topic}-all", ErrorCode.NOT_ENOUGH_REPLICAS)):
        # As those see it who are asked.
        wait(
            lambda name=name: all(  # type: ignore[misc]
                (seen_there := partition(cluster, name, 0, node)).leader != dead and len(seen_there.in_sync) == 2
                for node in cluster.nodes
                if node != dead
            ),
            "one is out of sync",
        )
        with Connection("127.0.0.1", cluster.ports[leader_of(cluster, name)], PATIENCE_S) as connection:
            answer = connection.call(produce_request(name, batch_of(b"1")), NAMES)
            assert answer.responses[0].partition_responses[0].error_code == code
    with Load(cluster.bootstrap_servers, f"{topic}-all") as load:
        time.sleep(1)
        assert not load.promised
        cluster.restart(dead)
        load.await_more()
    load.check()


def test_a_topic_is_made_while_a_broker_is_away(cluster: Cluster, topic: str) -> None:
    """It gets its replicas all the same, and makes them when it is back."""
    dead = cluster.nodes[-1]
    cluster.kill(dead)
    wait(lambda: dead not in [each.id for each in seen(cluster, 1).brokers], "it is missed")
    create_topic(cluster, topic, partitions=3)
    for number in range(3):
        placed = partition(cluster, topic, number)
        assert (set(placed.replicas), set(placed.in_sync)) == ({1, 2, 3}, {1, 2})
    with Load(cluster.bootstrap_servers, topic, 3) as load:
        load.await_more()
        cluster.restart(dead)
        wait(lambda: all(dead in partition(cluster, topic, n).in_sync for n in range(3)), "it is in sync")
        load.await_more()
    load.check()


def test_a_majority_gone_and_back(cluster: Cluster, topic: str) -> None:
    """Two of three: what is left cannot know whether the others went on without it, and promises nothing."""
    create_topic(cluster, topic, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.await_more()
        dead = [node for node in cluster.nodes if node != leader_of(cluster, topic)]
        for node in dead:
            cluster.kill(node)
        before = time.monotonic()
        time.sleep(4)
        # What was acknowledged before may be told a moment later.
        assert not [at for at in load.promised_at if at > before + 2], "acknowledged by one of three"
        for node in dead:
            cluster.start_node(node)
        load.await_more()
    load.check()


def test_the_last_of_three_says_so_and_takes_records_again(cluster: Cluster, topic: str) -> None:
    """Nobody is left to take the dead out of the in-sync set. The leader refuses all the same, and does not let
    producers wait until they give up."""
    create_topic(cluster, topic, min_insync_replicas="2")
    alone = leader_of(cluster, topic)
    dead = [node for node in cluster.nodes if node != alone]
    address = ("127.0.0.1", cluster.ports[alone], PATIENCE_S)
    codes = []
    with Connection(*address) as parked, Connection(*address) as connection:

        def code_of(value: bytes) -> int:
            request = produce_request(topic, batch_of(value))
            return int(connection.call(request, NAMES).responses[0].partition_responses[0].error_code)

        assert code_of(b"0") == 0
        for node in dead:
            cluster.kill(node)
        waiting = threading.Thread(
            target=lambda: codes.append(
                parked.call(produce_request(topic, batch_of(b"1")), NAMES)
                .responses[0].partition_responses[0].error_code
            )
        )  # fmt: skip
        waiting.start()
        refused_s = wait(lambda: code_of(b"2") == ErrorCode.NOT_ENOUGH_REPLICAS, "it says that it has not enough")
        waiting.join(PATIENCE_S)
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        cluster.start_node(dead[0])
        again_s = wait(lambda: code_of(b"3") == 0, "it takes records again")
    print(f"\nNOT_ENOUGH_REPLICAS {refused_s:.1f} s after two deaths, writable {again_s:.1f} s after a start")


def test_all_killed_at_once(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=3)
    with Load(cluster.bootstrap_servers, topic, 3) as load:
        load.await_more(100)
        for node in cluster.nodes:
            cluster.kill(node)
        for node in cluster.nodes:
            cluster.start_node(node)
        load.await_more(100)
    load.check()


def test_a_rolling_restart_is_no_error(cluster: Cluster, topic: str) -> None:
    """Leaders move before a broker stops: clients learn of it by retriable errors that they keep to themselves."""
    create_topic(cluster, topic, partitions=3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic, 3) as load:
        load.await_more()
        for node in cluster.nodes:
            cluster.terminate(node)
            assert cluster.exit_code(node) == 0, cluster.log_of(node)
            cluster.restart(node)
            wait(lambda: (picture := look(cluster)) is not None and picture.is_healthy, "every replica in sync")
        load.await_more()
    load.check()


def test_a_group_goes_on_when_its_coordinator_dies(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=2)
    group = f"g-{uuid4().hex[:8]}"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            **QUICK_TO_RETURN,
        }
    )
    consumer.subscribe([topic])
    read: list[bytes] = []

    def read_and_commit() -> bool:
        read.extend(each.value() or b"" for each in consumer.consume(100, 0.2) if each.error() is None)
        try:
            return bool(consumer.commit(asynchronous=False)) and len(read) > 20
        except KafkaException:
            return False

    with Load(cluster.bootstrap_servers, topic, 2, pause_s=0.05) as load:
        wait(read_and_commit, "it reads and commits")
        node = coordinator_of(cluster, GROUPS, group)
        cluster.kill(node)
        read.clear()
        took = wait(read_and_commit, "it reads and commits again")
        print(f"\ncommits again after {took:.1f} s")
    committed = consumer.committed([TopicPartition(topic, number) for number in range(2)], timeout=PATIENCE_S)
    assert sum(place.offset for place in committed) >= 20
    consumer.close()
    load.check()


def coordinator_of(cluster: Cluster, internal: str, key: str) -> int:
    from tidelog.broker.coordinators.coordinator import partition_of

    partitions = [each for each in seen(cluster).partitions if each.topic == internal]
    return leader_of(cluster, internal, partition_of(key, len(partitions)))


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_outlives_its_coordinator_and_its_leaders(cluster: Cluster, topic: str, commits: bool) -> None:
    create_topic(cluster, topic, partitions=3)
    name = f"tx-{uuid4().hex[:8]}"
    writer = producer(cluster, transactional_id=name, transaction_timeout_ms=60_000)
    writer.init_transactions(PATIENCE_S)
    for rounds, value in enumerate((b"1", b"2", b"3")):
        writer.begin_transaction()
        for number in range(3):
            writer.produce(topic, value, partition=number)
        writer.flush(PATIENCE_S)
        if rounds == 1:
            cluster.kill(coordinator_of(cluster, TRANSACTIONS, name))
        if rounds == 1 and not commits:
            retried(lambda: writer.abort_transaction(PATIENCE_S))
        else:
            retried(lambda: writer.commit_transaction(PATIENCE_S))
    expected = [1, 2, 3] if commits else [1, 3]
    found = read_all(cluster.bootstrap_servers, topic, 3, "read_committed")
    assert found == dict.fromkeys(range(3), expected)


def retried(end: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return end()
        except KafkaException as error:
            told: KafkaError = error.args[0]
            assert told.retriable(), told
            assert time.monotonic() < deadline, told


def test_clients_of_three_libraries(cluster: Cluster, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from kafka import KafkaConsumer, KafkaProducer

    create_topic(cluster, topic)
    bootstrap = cluster.bootstrap_servers.split(",")
    confluent: Producer = producer(cluster)
    confluent.produce(topic, b"0")
    assert confluent.flush(PATIENCE_S) == 0
    python = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    python.send(topic, b"1").get(PATIENCE_S)
    cluster.kill(leader_of(cluster, topic))
    # kafka-python raises what it could not deliver in time, and its next record goes to the new leader.
    python.send(topic, b"2").get(PATIENCE_S)
    python.close()

    async def asynchronous() -> list[bytes]:
        writer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await writer.start()
        await writer.send_and_wait(topic, b"3")
        await writer.stop()
        reader = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await reader.start()
        values = [(await asyncio.wait_for(reader.getone(), PATIENCE_S)).value for _ in range(4)]
        await reader.stop()
        return values

    assert asyncio.run(asynchronous()) == [b"0", b"1", b"2", b"3"]
    reader = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1000)
    )
    assert [next(reader).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    reader.close()


def test_two_of_three_replicas_dead_and_back(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """While the quorum has its majority, a leader whose followers are gone says so and keeps no producer waiting.

    So that it has one, a replica is on a fourth broker, which has no vote."""
    fourth = cluster.add_node()
    cluster.wait_ready(fourth)
    create_topic(cluster, topic, min_insync_replicas="2")
    alone = leader_of(cluster, topic)
    follower = next(node for node in cluster.nodes if node not in (alone, fourth))
    plan = {"partitions": [{"topic": topic, "partition": 0, "replicas": [alone, follower, fourth]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert run(["topic", "reassign", "--plan", str(tmp_path / "plan.json"), "-b", cluster.bootstrap_servers]) == 0
    with Load(cluster.bootstrap_servers, topic) as load:
        load.await_more()
        for node in (follower, fourth):
            cluster.kill(node)
        with Connection("127.0.0.1", cluster.ports[alone], PATIENCE_S) as connection:
            request = produce_request(topic, batch_of(b"-2"))

            def refused() -> bool:
                code = connection.call(request, NAMES).responses[0].partition_responses[0].error_code
                assert code != 0, "acknowledged by one of three, and two are asked for"
                return bool(code == ErrorCode.NOT_ENOUGH_REPLICAS)

            took = wait(refused, "the leader says that it has not enough replicas")
        print(f"\nNOT_ENOUGH_REPLICAS after {took:.1f} s")
        cluster.restart(fourth)
        load.await_more()
    assert not load.failed
    stored = read_all(cluster.bootstrap_servers, topic)[0]
    assert set(load.promised.values()) <= set(stored)
    numbers = [value for value in stored if value >= 0]
    assert numbers == sorted(set(numbers)), "twice or out of order"
