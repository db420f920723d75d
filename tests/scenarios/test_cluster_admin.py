"""What an administrator does with a cluster: look, move, elect, add a broker, take one out. By our own commands and by
confluent-kafka's admin client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.cli import run
from tidelog.cli.cluster.admin import look_over_tls
from tidelog.cli.connecting import Cluster as Kafka
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Cluster
from tidelog.wire.messages.clusters import (
    AddRaftVoterRequest,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    RemoveRaftVoterRequest,
)
from tidelog.wire.primitives import NO_UUID

from .cluster import (
    PATIENCE_S,
    QUICK_TO_RETURN,
    Load,
    create_topic,
    leader_of,
    look,
    make_whole,
    partition,
    read_all,
    seen,
    wait,
)

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, {"leader.imbalance.check.interval.seconds": 2}) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    make_whole(running)
    return running


def quorum_of(cluster: Cluster, node: int) -> "tuple[int, int, list[int], list[int]]":
    """The leader, its epoch, the voters and the observers, as this node tells it."""
    asked = DescribeQuorumTopic(
        topic_name="__cluster_metadata", partitions=(DescribeQuorumPartition(partition_index=0),)
    )
    with Connection("127.0.0.1", cluster.ports[node], PATIENCE_S) as connection:
        answer = connection.call(DescribeQuorumRequest(topics=(asked,)))
    told = answer.topics[0].partitions[0]
    assert (answer.error_code, told.error_code) == (0, 0)
    assert all(
        each.log_end_offset >= told.high_watermark for each in told.current_voters if each.replica_id == told.leader_id
    )
    assert {each.node_id for each in answer.nodes} == {each.replica_id for each in told.current_voters}
    voters = sorted(each.replica_id for each in told.current_voters)
    return told.leader_id, told.leader_epoch, voters, sorted(each.replica_id for each in told.observers)


def test_every_node_tells_the_same_of_the_quorum(cluster: Cluster) -> None:
    told: dict[int, Any] = {}

    def tell_the_same() -> bool:
        """On a busy machine there may be an election between two questions."""
        told.update({node: quorum_of(cluster, node) for node in cluster.nodes})
        return len({str(each) for each in told.values()}) == 1

    wait(tell_the_same, "every node tells the same")
    leader, epoch, voters, observers = told[1]
    assert (voters, observers) == ([1, 2, 3], [])
    cluster.kill(leader)
    others = [node for node in cluster.nodes if node != leader]

    def agree() -> bool:
        pictures = [look(cluster, node) for node in others]
        leaders = {each.quorum.leader for each in pictures if each is not None and each.quorum is not None}
        return len(leaders) == 1 and leaders != {leader}

    wait(agree, "the others agree on a new leader")
    after = quorum_of(cluster, others[0])
    assert after[0] in others
    assert after[1] > epoch
    assert after[2] == [1, 2, 3], "a voter that is away is a voter"


def test_status_draws_a_whole_and_a_broken_cluster(cluster: Cluster, capfd: Said) -> None:
    create_topic(cluster, "drawn", partitions=3)
    make_whole(cluster)
    at = ["-b", cluster.bootstrap_servers]
    capfd.readouterr()
    assert run(["cluster", "status", *at]) == 0
    out = capfd.readouterr().out
    assert "3 brokers" in out
    assert "all replicas in sync" in out
    assert "controller" in out
    assert "bears the loss of 1" in out
    victim = leader_of(cluster, "drawn")
    cluster.kill(victim)
    others = [node for node in cluster.nodes if node != victim]

    def is_known() -> bool:
        pictures = [look(cluster, node) for node in others]
        return all(each is not None and each.absent == (victim,) and not each.offline for each in pictures)

    wait(is_known, "its death is known, and others lead for it")
    assert run(["cluster", "status", *at]) == 1, "a script can wait for health"
    out = capfd.readouterr().out
    assert "1 broker down" in out
    assert f"not in sync: {victim}" in out
    assert "bears no more loss" in out
    assert run(["cluster", "status", *at, "-o", "json"]) == 1
    told = json.loads(capfd.readouterr().out)
    assert (told["healthy"], told["absent_brokers"], told["offline"]) == (False, [victim], [])
    assert {each["topic"] for each in told["under_replicated"]} == {"drawn"}


def test_over_tls_the_picture_is_what_confluent_kafka_knows(cluster: Cluster) -> None:
    create_topic(cluster, "known", partitions=2)
    kafka = Kafka.dial(cluster.bootstrap_servers)

    def tell_the_same() -> bool:
        """Leaders that were away return meanwhile, and the two may ask different nodes."""
        known, told = look_over_tls(kafka), seen(cluster)
        assert known.quorum is None
        return known.partitions == told.partitions and [
            (each.id, each.port, each.replicas) for each in known.brokers
        ] == [(each.id, each.port, each.replicas) for each in told.brokers]

    wait(tell_the_same, "both tell the same")


def test_leaders_return_by_themselves_and_on_request(cluster: Cluster, capfd: Said) -> None:
    create_topic(cluster, "returns", partitions=3)
    first = partition(cluster, "returns").replicas[0]
    cluster.kill(first)
    wait(lambda: leader_of(cluster, "returns") != first, "another leads")
    cluster.restart(first)
    wait(lambda: leader_of(cluster, "returns") == first, "the preferred one leads again")
    capfd.readouterr()
    assert run(["topic", "elect", "returns", "-b", cluster.bootstrap_servers]) == 0
    wait(lambda: not seen(cluster).led_elsewhere, "all are led by the preferred one")
    capfd.readouterr()
    assert run(["topic", "elect", "-b", cluster.bootstrap_servers]) == 0
    assert "every partition is led by its preferred replica" in capfd.readouterr().out
    assert run(["topic", "elect", "returns", "--unclean", "-b", cluster.bootstrap_servers]) == 0
    assert "every partition has a leader" in capfd.readouterr().out


def test_an_unclean_election_on_request(cluster: Cluster, capfd: Said) -> None:
    """The only replica in sync is gone for good; the other one lacks records, and is all there is."""
    create_topic(cluster, "unclean", replicas=2, min_insync_replicas="1")
    kept, gone = reversed(partition(cluster, "unclean").replicas)
    cluster.kill(kept)
    wait(lambda: partition(cluster, "unclean", 0, gone).in_sync == (gone,), "one left in sync")
    cluster.kill(gone)
    cluster.start_node(kept)
    cluster.wait_ready(kept)
    wait(lambda: partition(cluster, "unclean", 0, kept).is_offline, "no leader")
    capfd.readouterr()
    at = ["-b", cluster.address_of(kept)]
    assert run(["topic", "elect", "unclean", *at]) == 1, "a clean one is not possible"
    assert "unclean-0" in capfd.readouterr().err
    assert run(["topic", "elect", "unclean", "--unclean", "--yes", *at]) == 0
    assert "1 leader elected" in capfd.readouterr().out
    assert leader_of(cluster, "unclean", 0, kept) == kept


def test_reassigning_under_load(cluster: Cluster, tmp_path: Path, capfd: Said) -> None:
    create_topic(cluster, "moves", partitions=2, replicas=1)
    at = ["-b", cluster.bootstrap_servers]
    with Load(cluster.bootstrap_servers, "moves", 2) as load:
        load.await_more()
        assert run(["topic", "reassign", "moves", "--to", "3,2", *at]) == 0
        assert "2 partitions moved" in capfd.readouterr().out
        assert [partition(cluster, "moves", number).replicas for number in range(2)] == [(3, 2), (2, 3)]
        load.await_more()
        plan = {"version": 1, "partitions": [{"topic": "moves", "partition": 1, "replicas": [1, 2, 3]}]}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        assert run(["topic", "reassign", "--plan", str(tmp_path / "plan.json"), *at]) == 0
        load.await_more()
    load.check()
    assert partition(cluster, "moves", 1).replicas == (1, 2, 3)
    capfd.readouterr()
    assert run(["topic", "reassign", "moves", *at]) == 0
    assert "nothing is being moved" in capfd.readouterr().out
    assert run(["topic", "reassign", "moves", "--to", "1,9", *at]) == 1
    assert "there is no broker 9" in capfd.readouterr().err


def test_a_reassignment_is_taken_back(cluster: Cluster, capfd: Said) -> None:
    """To a broker that is away it cannot end, and the partition is served meanwhile."""
    create_topic(cluster, "back", replicas=2)
    one, two = partition(cluster, "back").replicas
    third = next(node for node in cluster.nodes if node not in (one, two))
    cluster.kill(third)
    wait(lambda: (picture := look(cluster, one)) is not None and third in picture.absent, "its death is known")
    plan = json.dumps({"partitions": [{"topic": "back", "partition": 0, "replicas": [one, third]}]})
    path = cluster.data_dir / "plan.json"
    path.write_text(plan)
    at = ["-b", cluster.address_of(one)]
    assert run(["topic", "reassign", "--plan", str(path), "--no-wait", *at]) == 0
    capfd.readouterr()
    assert run(["topic", "reassign", "back", "-o", "json", *at]) == 0
    (moving,) = json.loads(capfd.readouterr().out)
    assert (moving["adding"], moving["removing"]) == ([third], [two])
    with Load(cluster.bootstrap_servers, "back") as load:
        load.await_more()
    load.check()
    assert run(["topic", "reassign", "back", "--cancel", *at]) == 0
    assert "1 reassignment taken back" in capfd.readouterr().out
    assert set(partition(cluster, "back", 0, one).replicas) == {one, two}


def test_confluents_admin_client(cluster: Cluster) -> None:
    create_topic(cluster, "seen", partitions=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUICK_TO_RETURN})
    listed = admin.list_topics(timeout=PATIENCE_S)
    assert sorted(listed.brokers) == [1, 2, 3]
    assert sorted(listed.topics["seen"].partitions[0].replicas) == [1, 2, 3]
    described = admin.describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.controller.id in (1, 2, 3)
    places = [TopicPartition("seen", number) for number in range(3)]
    elected = admin.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_S)
    # Led as it should be already: that is what each of them is told.
    assert {place.partition for place in elected} == {0, 1, 2}


def test_a_fourth_broker_comes_and_goes(cluster: Cluster, capfd: Said) -> None:
    create_topic(cluster, "shared", partitions=8)
    at = ["-b", cluster.bootstrap_servers]
    assert run(["cluster", "add", *at]) == 0
    told = capfd.readouterr().out
    assert f"--voters {cluster.voters}" in told
    assert "--node-id 4" in told
    with Load(cluster.bootstrap_servers, "shared", 8) as load:
        load.await_more()
        node = cluster.add_node()
        cluster.wait_ready(node)
        wait(lambda: len(seen(cluster).brokers) == 4, "it is there")
        wait(lambda: quorum_of(cluster, 1)[2:] == ([1, 2, 3], [node]), "it follows the quorum")
        assert run(["cluster", "add", str(node), "--rebalance", *at]) == 0
        replicas = {each.id: each.replicas for each in seen(cluster).brokers}
        assert max(replicas.values()) - min(replicas.values()) <= 1, replicas
        assert leaders_of(cluster)[node] > 0
        load.await_more()
        capfd.readouterr()
        assert run(["cluster", "decommission", str(node), "--yes", *at]) == 0
        assert "stop it" in capfd.readouterr().out
        assert all(node not in each.replicas for each in seen(cluster).partitions)
        load.await_more()
        cluster.terminate(node)
        del cluster.ports[node]
        wait(lambda: len(seen(cluster).brokers) == 3, "it is gone")
        assert run(["cluster", "decommission", str(node), *at]) == 0
        assert "is forgotten" in capfd.readouterr().out
        assert run(["cluster", "decommission", str(node), *at]) == 1
        assert "there is no broker" in capfd.readouterr().err
    load.check()
    read_all(cluster.bootstrap_servers, "shared", 8)


def leaders_of(cluster: Cluster) -> dict[int, int]:
    wait(lambda: not seen(cluster).led_elsewhere, "every preferred replica leads")
    return {each.id: each.leaders for each in seen(cluster).brokers}


@pytest.mark.parametrize(
    ("code", "request_"),
    [
        (ErrorCode.DUPLICATE_VOTER, AddRaftVoterRequest(voter_id=2, voter_directory_id=NO_UUID)),
        (ErrorCode.REQUEST_TIMED_OUT, AddRaftVoterRequest(voter_id=9, voter_directory_id=NO_UUID, timeout_ms=100)),
        (ErrorCode.VOTER_NOT_FOUND, RemoveRaftVoterRequest(voter_id=9, voter_directory_id=NO_UUID)),
        (ErrorCode.VOTER_NOT_FOUND, RemoveRaftVoterRequest(voter_id=2, voter_directory_id=UUID(int=5))),
        (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            RemoveRaftVoterRequest(cluster_id="other", voter_id=2, voter_directory_id=NO_UUID),
        ),
    ],
)
def test_votes_that_cannot_change(cluster: Cluster, code: ErrorCode, request_: Any) -> None:
    """The same from every node, whichever leads the quorum."""
    for node in cluster.nodes:
        with Connection("127.0.0.1", cluster.ports[node], PATIENCE_S) as connection:
            answer = connection.call(request_)
            assert answer.error_code == code, answer
            assert answer.error_message
    assert quorum_of(cluster, 1)[2] == [1, 2, 3]


def test_a_voter_is_emptied_loses_its_vote_and_gets_it_back(cluster: Cluster, capfd: Said) -> None:
    at = ["-b", cluster.bootstrap_servers]
    create_topic(cluster, "everywhere", replicas=3)
    assert run(["cluster", "decommission", "3", "--dry-run", *at]) == 1
    err = capfd.readouterr().err
    assert "there is no other broker" in err
    assert "--shrink" in err
    assert run(["cluster", "decommission", "3", "--shrink", "--yes", *at]) == 0
    out = capfd.readouterr().out
    assert "broker 3 votes no more; 2 voters bear no loss" in out
    assert "stop it" in out
    assert all(3 not in each.replicas for each in seen(cluster).partitions)
    assert quorum_of(cluster, 1)[2] == [1, 2]
    assert run(["cluster", "add", "3", "--voter", *at]) == 0
    assert "broker 3 votes; 3 voters bear the loss of 1" in capfd.readouterr().out
    wait(lambda: quorum_of(cluster, 2)[2] == [1, 2, 3], "others know of it")
    assert run(["cluster", "add", "3", "--voter", *at]) == 0
    assert "votes already" in capfd.readouterr().out
    assert run(["cluster", "add", "9", "--voter", *at]) == 1  # a script must not take it for done
    assert "broker 9 is not there yet" in capfd.readouterr().err
    assert run(["cluster", "add", "--voter", *at]) == 1
    assert "say which" in capfd.readouterr().err
