"""A cluster on a screen and in words: what is drawn, what is told, what counts as broken."""

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from tidelog.cli import run
from tidelog.cli.cluster.add import command_for, evened_out
from tidelog.cli.cluster.picture import BrokerSeen, PartitionSeen, Picture, QuorumMember, QuorumSeen, news, picture
from tidelog.cli.cluster.start import how_it_ended, last_words
from tidelog.cli.cluster.state import is_alive
from tidelog.cli.cluster.view import BAR, bar, print_picture
from tidelog.cli.problems import Problem
from tidelog.cli.topic.moves import parse_nodes


def member(node: int, end: int = 100) -> QuorumMember:
    return QuorumMember(id=node, log_end_offset=end, lag=100 - end, caught_up_ms_ago=10, address=f"127.0.0.1:919{node}")


def cluster(here: tuple[int, ...] = (1, 2, 3), leader: int = 1, in_sync: tuple[int, ...] = (1, 2, 3)) -> Picture:
    return picture(
        cluster_id="id",
        controller=9,
        brokers=[BrokerSeen(id=node, host="h", port=9092 + node) for node in here],
        partitions=[PartitionSeen(topic="t", partition=0, leader=leader, replicas=(1, 2, 3), in_sync=in_sync)],
        quorum=QuorumSeen(
            leader=2, epoch=4, high_watermark=100, voters=tuple(map(member, (1, 2, 3))), observers=(member(4),)
        ),
    )


def test_what_is_well_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    seen = cluster()
    assert seen.is_healthy
    assert seen.controller == 2, "whom the quorum names, not whom clients are told of"
    print_picture(seen)
    out = capfd.readouterr().out
    assert "all replicas in sync" in out
    assert re.search(r"2 +h:9094 +controller", out)
    assert "4  follows" in out
    assert "without a leader" not in out


def test_what_is_missing_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    seen = cluster(here=(2, 3), leader=2, in_sync=(2, 3))
    assert (seen.absent, seen.is_healthy) == ((1,), False)
    print_picture(seen)
    out = capfd.readouterr().out
    assert "t-0: leader 2, not in sync: 1" in out
    assert "bears no more loss" in out
    assert "1 partition not led by the preferred replica" in out
    print_picture(cluster(here=(2,), leader=-1, in_sync=(1,)))
    assert "1 partition without a leader" in capfd.readouterr().out
    told = json.loads(msgspec.json.encode(seen.to_json()))
    assert told["under_replicated"][0]["in_sync"] == [2, 3]


def test_news() -> None:
    well, worse = cluster(), cluster(here=(2, 3), leader=2, in_sync=(2, 3))
    assert news(well, well) == []
    assert news(well, worse) == [
        "node 1 is not there any more",
        "1 of 1 partitions have another leader",
        "1 partition with replicas that are not in sync",
    ]
    assert news(worse, well)[0] == "node 1 is back"
    assert news(worse, well)[-1] == "every replica is in sync again"
    assert "1 partition without a leader" in news(well, cluster(here=(2,), leader=-1, in_sync=(1,)))


@pytest.mark.parametrize(("leads", "holds", "most"), [(0, 0, 0), (0, 0, 5), (5, 5, 5), (1, 3, 7), (2, 100, 100)])
def test_bars_are_of_one_length(leads: int, holds: int, most: int) -> None:
    assert len(bar(leads, holds, most)) == BAR


def test_the_command_for_a_new_broker_is_complete() -> None:
    text = "\n".join(command_for(cluster(), None, "h:9093"))
    assert "--node-id 4" in text
    assert "--voters 1@127.0.0.1:9191,2@127.0.0.1:9192,3@127.0.0.1:9193" in text
    assert "--set cluster.id=id" in text
    with pytest.raises(Problem, match="there is a broker 2 already"):
        list(command_for(cluster(), 2, "h:9093"))
    with pytest.raises(Problem, match="alone"):
        list(command_for(msgspec.structs.replace(cluster(), quorum=None), None, "h:9093"))
    with pytest.raises(Problem, match="broker 1 is down"):
        evened_out(cluster(here=(2, 3)))


def test_words_for_ends() -> None:
    assert how_it_ended(-9) == "killed by SIGKILL"
    assert how_it_ended(0) == "stopped cleanly"
    assert how_it_ended(1) == "with exit code 1"
    assert last_words("a\n\n b \n\n") == "b"
    assert last_words("error: no such setting\n  next: look it up\n") == "no such setting"
    assert last_words("") == "it said nothing"
    assert not is_alive(2**22 + 1, "anything")


def test_who_is_alive() -> None:
    assert is_alive(os.getpid(), "python", "pytest")
    assert not is_alive(os.getpid(), "a word that is not there")
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(ended.pid, "true"), "it has ended, and nobody has taken notice yet"


def test_brokers_as_people_type_them() -> None:
    assert parse_nodes("1, 2,3") == [1, 2, 3]


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (["topic", "reassign", "t", "--to", "1,x"], None),
        (["topic", "reassign", "t", "--to", "1,1"], None),
        (["topic", "reassign", "t", "--to", "1", "--cancel"], "give one"),
        (["cluster", "break", "1", "--how", "scold"], "kill, pause, isolate"),
        (["cluster", "status", "-b", "127.0.0.1:1"], "no broker at"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    command: list[str], wrong: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(command) != 0
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert wrong is None or wrong in " ".join(err.split())


def test_only_a_cluster_that_was_started_here_can_be_broken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("break", "heal"):
        assert run(["cluster", command, "1", "-d", str(tmp_path)]) == 1
        assert "no cluster was started" in capfd.readouterr().err
    (tmp_path / "cluster.json").write_text("{")
    assert run(["cluster", "heal", "1", "-d", str(tmp_path)]) == 1
    assert "cannot be read" in capfd.readouterr().err
