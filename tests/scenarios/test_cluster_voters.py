"""Votes in the metadata quorum are given and taken away while the cluster runs, and stay so when brokers restart."""

import pytest

from tidelog.cli import run
from tidelog.cli.cluster.admin import Administration
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing import Cluster

from .cluster import PATIENCE_S, Load, create_topic, look, seen, wait

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

Said = pytest.CaptureFixture[str]


def voters_of(cluster: Cluster) -> list[int]:
    picture = look(cluster)
    return [] if picture is None or picture.quorum is None else sorted(each.id for each in picture.quorum.voters)


def test_the_voters_change_one_by_one_and_for_good(capfd: Said) -> None:
    with Cluster(3, {"default.replication.factor": 2}) as cluster:
        at = ["-b", cluster.bootstrap_servers]
        create_topic(cluster, "kept", partitions=4, replicas=2)
        fourth = cluster.add_node()
        cluster.wait_ready(fourth)
        with Load(cluster.bootstrap_servers, "kept", 4) as load:
            load.await_more()
            assert run(["cluster", "add", str(fourth), "--voter", *at]) == 0
            assert "broker 4 votes; 4 voters bear the loss of 1" in capfd.readouterr().out
            wait(lambda: voters_of(cluster) == [1, 2, 3, 4], "the fourth votes")
            leader = seen(cluster).quorum
            assert leader is not None
            gone = leader.leader  # which removes itself
            assert run(["cluster", "decommission", str(gone), "--yes", *at]) == 0
            assert f"broker {gone} votes no more; 3 voters bear the loss of 1" in capfd.readouterr().out
            left = [node for node in cluster.nodes if node != gone]
            wait(lambda: voters_of(cluster) == left, "one has lost its vote")
            load.await_more()

            # It was started with a list that names it as a voter, and so were the others.
            cluster.terminate(gone)
            cluster.restart(gone)
            cluster.terminate(left[0])
            cluster.restart(left[0])
            wait(lambda: voters_of(cluster) == left, "it is as it was")
            load.await_more()
        load.check()

        cluster.kill(gone)
        cluster.kill(left[0])
        create_topic(cluster, "made-by-the-other-two", replicas=1)
        admin = Administration.at(cluster.address_of(left[1]), timeout_s=PATIENCE_S)
        with pytest.raises(KafkaError) as refused:
            admin.remove_voter(left[1])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "no majority" in str(refused.value)
        admin.remove_voter(left[0])  # of one that is dead
        admin.close()
        wait(lambda: voters_of(cluster) == left[1:], "the dead one is no voter")
