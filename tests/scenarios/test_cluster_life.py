"""From one broker to a cluster, through lost disks and full restarts; and the cluster that one command starts."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.cli import run
from tidelog.cli.cluster.ports import HeldPort, taken
from tidelog.cli.config import alter_configs
from tidelog.cli.connecting import Cluster as Kafka
from tidelog.testing import Broker, Cluster

from .cluster import (
    PATIENCE_S,
    Load,
    create_topic,
    judge,
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


def test_one_broker_grows_into_a_cluster(tmp_path: Path, capfd: Said) -> None:
    """Its directory stays as it is: what was written to the lonely broker is replicated afterwards."""
    grown = Cluster(3, data_dir=tmp_path)
    with Broker(data_dir=grown.directory_of(1) / "data") as alone:
        assert run(["topic", "create", "first", "-p", "2", "-b", alone.bootstrap_servers]) == 0
        with Load(alone.bootstrap_servers, "first", 2) as load:
            load.await_more(200)
        load.check()
    said = (grown.directory_of(1) / "data" / "meta.properties").read_text()
    match = re.search("cluster.id=(.+)", said)
    assert match is not None
    grown.settings["cluster.id"] = match[1]
    with grown:
        picture = seen(grown)
        assert picture.cluster_id == match[1]
        assert partition(grown, "first").replicas == (1,)
        judge(load.promised, read_all(grown.bootstrap_servers, "first", 2))
        at = ["-b", grown.bootstrap_servers]
        assert run(["topic", "reassign", "first", "--to", "2,3", *at]) == 0
        wait(lambda: leader_of(grown, "first") == 2, "one of those it was moved to leads")
        grown.kill(1)
        judge(load.promised, read_all(grown.bootstrap_servers, "first", 2))


def test_a_broker_of_another_cluster_is_told_what_to_do(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "node-1" / "data"):
        pass
    cluster = Cluster(2, data_dir=tmp_path)
    try:
        for node in cluster.nodes:
            cluster.start_node(node)
        wait(lambda: "--set cluster.id=" in cluster.log_of(2), "how to start it is said")
        assert not cluster.is_ready(2)
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, {"leader.imbalance.check.interval.seconds": 600}) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    make_whole(running)
    return running


def test_a_disk_is_replaced(cluster: Cluster) -> None:
    """With nothing on it a broker is nobody's leader, and no voter that might forget what it voted for, until it has
    everything again."""
    create_topic(cluster, "replaced", partitions=3)
    with Load(cluster.bootstrap_servers, "replaced", 3) as load:
        load.await_more(100)
        node = leader_of(cluster, "replaced")
        voters = voters_of(cluster)
        cluster.kill(node)
        shutil.rmtree(cluster.directory_of(node) / "data")
        cluster.start_node(node)
        load.await_more(100)
        cluster.wait_ready(node)
        wait(lambda: (picture := look(cluster)) is not None and picture.is_healthy, "it has everything again")
        load.await_more()
    load.check()
    others = [each for each in cluster.nodes if each != node]
    wait(lambda: (now := voters_of(cluster)).keys() == voters.keys() and now[node] != voters[node], "a voter, and new")
    assert all(voters_of(cluster)[each] == voters[each] for each in others)
    # It has caught up, so the loss of another is borne by it.
    cluster.kill(others[0])
    wait(lambda: all(leader_of(cluster, "replaced", number, others[1]) != others[0] for number in range(3)), "led")
    judge(load.promised, read_all(cluster.bootstrap_servers, "replaced", 3))


def voters_of(cluster: Cluster) -> dict[int, str | None]:
    """And their disks: a voter whose disk was replaced is another one."""
    quorum = seen(cluster).quorum
    return {} if quorum is None else {each.id: each.directory_id for each in quorum.voters}


def metadata_files(cluster: Cluster, node: int, suffix: str) -> list[int]:
    """The offsets in the names of a node's metadata files."""
    found = (cluster.directory_of(node) / "data" / "__cluster_metadata-0").glob(f"*.{suffix}")
    return sorted(int(each.name[:20]) for each in found)


def test_metadata_outlives_many_changes_and_full_restarts(capfd: Said) -> None:
    """Enough of them for snapshots: one who was away gets a snapshot, since the log it needs is gone; and so do all who
    stop, cleanly, and start."""
    with Cluster(3, {"metadata.log.max.record.bytes.between.snapshots": 2000}) as cluster:
        at = ["-b", cluster.bootstrap_servers]
        create_topic(cluster, "settled", partitions=2)
        away = 3
        cluster.kill(away)
        quorum = seen(cluster, 1).quorum
        assert quorum is not None
        known = quorum.high_watermark
        kafka = Kafka.dial(cluster.bootstrap_servers, None)
        changes = 0

        def log_is_gone() -> bool:
            nonlocal changes
            changes += 1
            alter_configs(kafka, "topic", "settled", {"retention.ms": f"{changes}0000000"})
            return all(metadata_files(cluster, node, "log")[0] > known for node in (1, 2))

        wait(log_is_gone, "what it knew is in no log any more")
        cluster.restart(away)
        assert metadata_files(cluster, away, "checkpoint")[-1] > known
        assert metadata_files(cluster, away, "log")[0] > known, "its log begins behind the snapshot it was sent"
        make_whole(cluster)
        before = seen(cluster)
        for node in cluster.nodes:
            os.kill(cluster.pid_of(node), signal.SIGTERM)
        wait(lambda: not any(cluster.is_running(node) for node in cluster.nodes), "all have stopped")
        assert [cluster.exit_code(node) for node in cluster.nodes] == [0, 0, 0]
        make_whole(cluster)
        for node in cluster.nodes:
            after = seen(cluster, node)
            assert after.cluster_id == before.cluster_id
            assert [(each.place, each.replicas) for each in after.partitions] == [
                (each.place, each.replicas) for each in before.partitions
            ]
        capfd.readouterr()
        assert run(["topic", "describe", "settled", *at]) == 0
        assert f"{changes}0000000" in capfd.readouterr().out


# -- tidelog cluster start ---------------------------------------------------------------------------------------------


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[tuple[str, Path]]:
    """`tidelog cluster start` in its own process; an address, and the file of what it says. Ctrl-C ends it."""
    port = _free_run(3)
    said = directory / "said.txt"
    command = [sys.executable, "-m", "tidelog", "cluster", "start", "-p", str(port), "-d", str(directory), *arguments]
    with said.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait(lambda: "brokers are ready" in said.read_text() or process.poll() is not None, "ready")
            assert process.poll() is None, said.read_text()
            addresses = re.search(r"ready after .* s: (\S+)", said.read_text())
            assert addresses is not None
            yield addresses[1], said
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
    assert process.returncode == 0, said.read_text()


def _free_run(count: int) -> int:
    """The first of so many free ports in a row, with their neighbours 100 further on."""
    while True:
        with HeldPort() as free:
            first = free.port
        wanted = [first + offset + step for offset in (0, 100) for step in range(count)]
        if max(wanted) < 65_000 and not taken(wanted):
            return first


def test_one_command_starts_a_cluster_that_can_be_broken_and_healed(tmp_path: Path, capfd: Said) -> None:
    here = ["-d", str(tmp_path)]
    with started(tmp_path) as (bootstrap, said):
        at = ["-b", bootstrap]
        assert run(["topic", "create", "tried", "-p", "3", *at]) == 0
        assert run(["cluster", "status", *at]) == 0
        assert run(["cluster", "break", "2", *here]) == 0
        wait(lambda: "node 2: its process has ended, killed by SIGKILL" in said.read_text(), "its death is told")
        wait(lambda: "node 2 is not there any more" in said.read_text(), "so is what the others make of it")
        assert run(["cluster", "status", *at]) == 1
        assert run(["cluster", "break", "2", *here]) == 1
        assert "is not running" in capfd.readouterr().err
        assert run(["cluster", "heal", "2", *here]) == 0
        assert "started again" in capfd.readouterr().out
        wait(lambda: "every replica is in sync again" in said.read_text(), "and that all is well")
        assert run(["cluster", "break", "3", "--how", "pause", *here]) == 0
        wait(lambda: "node 3: is paused" in said.read_text(), "a pause is told")
        assert run(["cluster", "heal", "3", *here]) == 0
        wait(lambda: "node 3: goes on" in said.read_text(), "and its end")
        capfd.readouterr()
        assert run(["cluster", "break", "1", "--how", "isolate", *here]) == 1
        assert "share one network" in capfd.readouterr().err
        assert run(["cluster", "break", "9", *here]) == 1
        assert "has no node 9" in capfd.readouterr().err
        assert run(["cluster", "start", "-p", "1024", *here]) == 1
        assert "runs in" in capfd.readouterr().err
    assert "Traceback" not in said.read_text()
    assert run(["cluster", "heal", "2", *here]) == 1
    assert "no cluster was started" in capfd.readouterr().err
    assert run(["cluster", "start", "-n", "2", "-p", "1024", *here]) == 1
    assert "holds a cluster of 3 nodes" in capfd.readouterr().err
    with started(tmp_path) as (bootstrap, _):
        assert run(["topic", "describe", "tried", "-b", bootstrap]) == 0, "the data stayed"


def test_with_namespaces_a_broker_can_be_cut_off(tmp_path: Path, capfd: Said) -> None:
    here = ["-d", str(tmp_path)]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        assert run(["cluster", "start", "--namespaces", *here]) == 1
        assert "a network for every broker needs" in capfd.readouterr().err
        return
    with started(tmp_path, "--namespaces") as (bootstrap, said):
        assert run(["cluster", "break", "1", "--how", "isolate", *here]) == 0
        wait(lambda: "node 1 is not there any more" in said.read_text(), "the others do without it")
        assert run(["cluster", "heal", "1", *here]) == 0
        assert "reachable again" in capfd.readouterr().out
        wait(lambda: "node 1 is back" in said.read_text(), "it is back")
        wait(lambda: run(["cluster", "status", "-b", bootstrap]) == 0, "all is well")
