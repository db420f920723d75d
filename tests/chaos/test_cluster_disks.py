"""Three brokers, and disks that are full or lose power: one node's, then all at once. What was acknowledged stays."""

import os
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.scenarios.cluster import Load, create_topic, leader_of, make_whole, wait

from tidelog.testing import Cluster

from .cluster_storm import check_replicas
from .conftest import Mount
from .power import needs_root, new_disk, plug_in_again, pull_the_plug

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
SETTINGS = {"log.segment.bytes": 200_000, "leader.imbalance.check.interval.seconds": 3600}


def put_data_on(cluster_dir: Path, node: int, disk: Path) -> None:
    """What the node says stays on the disk of this machine, which works."""
    (disk / "data").mkdir()
    (cluster_dir / f"node-{node}").mkdir(parents=True)
    (cluster_dir / f"node-{node}" / "data").symlink_to(disk / "data")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@needs_root
def test_a_node_whose_disk_is_full_says_so_and_others_lead_for_it(tmp_path: Path, mount: Mount) -> None:
    disk = mount("-t", "tmpfs", "-o", "size=24m", "tmpfs")
    filler = disk / "filler"
    put_data_on(tmp_path / "cluster", 1, disk)
    with Cluster(3, SETTINGS, data_dir=tmp_path / "cluster") as cluster:
        create_topic(cluster, "full", PARTITIONS, min_insync_replicas="2")
        assert 1 in {leader_of(cluster, "full", number) for number in range(PARTITIONS)}
        with Load(cluster.bootstrap_servers, "full", PARTITIONS) as load:
            load.await_more()
            with pytest.raises(OSError, match="No space left"):
                fill(filler)
            wait(lambda: not cluster.is_running(1), "it gives up")
            for number in range(PARTITIONS):
                wait(lambda n=number: leader_of(cluster, "full", n, 2, 3) in (2, 3), "others lead")  # type: ignore[misc]
            load.await_more()
            said = cluster.log_of(1)
            assert "left the cluster" in said
            assert "No space left" in said
            filler.unlink()
            make_whole(cluster)
            load.await_more()
        load.check()
        print(f"\nlongest pause {load.longest_pause_s:.1f} s")
        make_whole(cluster)
        stop(cluster)
        check_replicas(cluster, "full", PARTITIONS)


def stop(cluster: Cluster) -> None:
    for node in cluster.nodes:
        cluster.terminate(node)


@needs_root
@pytest.mark.parametrize("victims", [(1,), (1, 2, 3)], ids=["one", "all"])
def test_power_loss_takes_nothing_that_was_acknowledged(tmp_path: Path, mount: Mount, victims: tuple[int, ...]) -> None:
    directory = tmp_path / "cluster"
    disks = {}
    for node in (1, 2, 3):
        (tmp_path / f"disk-{node}").mkdir()
        disks[node] = new_disk(tmp_path / f"disk-{node}", mount)
        put_data_on(directory, node, disks[node][1])
    with Cluster(3, SETTINGS, data_dir=directory) as cluster:
        create_topic(cluster, "plug", PARTITIONS, min_insync_replicas="2")
        with Load(cluster.bootstrap_servers, "plug", PARTITIONS) as load:
            for _ in range(2):
                load.await_more(200)
                for node in victims:
                    pull_the_plug(disks[node][1])
                time.sleep(0.2)  # whatever they answer now, they are held to it
                for node in victims:
                    cluster.kill(node)
                for node in victims:
                    plug_in_again(*disks[node])
                    cluster.start_node(node)
                for node in victims:
                    cluster.wait_ready(node)
                load.await_more(200)
            make_whole(cluster)
        load.check()
        print(f"\n{len(load.promised)} acknowledged, longest pause {load.longest_pause_s:.1f} s")
        make_whole(cluster)  # on a busy machine one may have been out of sync once more
        stop(cluster)
        check_replicas(cluster, "plug", PARTITIONS)


def flip_a_bit(cluster_dir: Path, node: int, topic: str) -> None:
    """In the middle of what a broker that is down has of partition 0."""
    path = max(
        (cluster_dir / f"node-{node}" / "data" / f"{topic}-0").glob("*.log"), key=lambda each: each.stat().st_size
    )
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


def checkpointed(cluster_dir: Path, node: int, topic: str) -> int:
    """The watermark of partition 0 that a broker would begin with."""
    lines = (cluster_dir / f"node-{node}" / "data" / "replication-offset-checkpoint").read_text().splitlines()
    return next((int(line.split()[2]) for line in lines[2:] if line.startswith(f"{topic} 0 ")), 0)


def allow_unclean(cluster: Cluster, topic: str) -> None:
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(20)


def test_bits_that_flip_cost_nothing_while_one_replica_is_whole_and_an_operator_decides_when_none_is(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "cluster"
    settings = {"log.flush.offset.checkpoint.interval.ms": 100, "leader.imbalance.check.interval.seconds": 3600}
    with Cluster(3, settings, data_dir=directory) as cluster:
        create_topic(cluster, "rot", 1, min_insync_replicas="2")
        with Load(cluster.bootstrap_servers, "rot", 1) as load:
            load.await_more(300)
            victim = leader_of(cluster, "rot", 0)
            cluster.kill(victim)
            load.await_more(100)
            flip_a_bit(directory, victim, "rot")
            make_whole(cluster)
            load.await_more(100)
        load.check()
        wait(
            lambda: min(checkpointed(directory, node, "rot") for node in cluster.nodes) >= load.sent,
            "every replica has everything, and their watermarks are on disk",
        )
        for node in cluster.nodes:
            cluster.kill(node)
        check_replicas(cluster, "rot", 1)

        for node in cluster.nodes:
            flip_a_bit(directory, node, "rot")
            cluster.start_node(node)
        for node in cluster.nodes:
            cluster.wait_ready(node)
        wait(
            lambda: any("not led: part of" in cluster.log_of(node) for node in cluster.nodes), "nobody leads in silence"
        )
        allow_unclean(cluster, "rot")
        for node in cluster.nodes:
            cluster.terminate(node)
            cluster.restart(node)
        with Load(cluster.bootstrap_servers, "rot", 1) as more:
            more.await_more(50)
