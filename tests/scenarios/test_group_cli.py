"""`tidelog group …` on Tidelog: every command, and what only its coordinator remembers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.peers.cli_cases import Cli
from tests.peers.commit_epoch_cases import CommitEpochCases
from tests.peers.group_cli_cases import GroupCliCases, kinds
from tests.peers.group_workers import Worker, commit, until, write

from tidelog.client.connection import Connection
from tidelog.groups.diagnosis import Kind, Limits
from tidelog.observe import diagnose
from tidelog.testing import Broker
from tidelog.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}
    with Broker({**settings, "group.consumer.heartbeat.interval.ms": 200}) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


class TestCommitEpochsOnTidelog(CommitEpochCases):
    """As on Apache Kafka."""


class TestGroupCliOnTidelog(GroupCliCases):
    def events(self, cli: Cli, group: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = cli("group", "timeline", group, "-o", "json").json["events"]
        return found

    def test_timeline(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        with Worker(bootstrap, group, [topic], **{"client.id": "first"}):
            until(lambda: len(self.members(cli, group)) == 1)
            with Worker(bootstrap, group, [topic], **{"client.id": "second"}):
                until(lambda: "generation" in [each["kind"] for each in self.events(cli, group)[4:]])
        until(lambda: cli("group", "timeline", group, "-o", "json").json["state"] == "Empty")
        told = cli("group", "timeline", group, "-o", "json").json
        happened = [(each["kind"], each["client_id"]) for each in told["events"] if each["client_id"]]
        assert happened == [("joined", "first"), ("joined", "second"), ("left", "second"), ("left", "first")]
        stable = [each for each in told["events"] if each["kind"] == "stable"]
        assert all(each["stopped_ms"] >= 0 for each in stable)
        drawn = cli("group", "timeline", group)
        first, second = (next(line for line in drawn.lines if line.startswith(name)) for name in ("first", "second"))
        assert first.index("●") < second.index("●") < second.index("○") <= first.index("○")
        assert next(line for line in drawn.lines if line.startswith("generation")).count("│") >= 2
        assert "stood still for " in drawn.out
        assert cli("group", "timeline", group, "--last", "0s", "-o", "json").json["events"] == []

    def test_describing_needs_no_wait_where_samples_are_kept(self, cli: Cli, read: str) -> None:
        told = cli("group", "diagnose", read, "--seconds", "1.2", "-o", "json").json
        assert (told["history"], told["history_missing_because"]) == (True, None)
        assert cli("group", "describe", read, "--seconds", "0", "-o", "json").json["lag"]["trend_per_s"] == 0.0

    def test_a_member_that_was_killed(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        program = (
            "from confluent_kafka import Consumer; import sys\n"
            "c = Consumer(eval(sys.argv[1])); c.subscribe([sys.argv[2]])\n"
            "while not c.assignment(): c.poll(0.1)\n"
            "print('ready', flush=True)\n"
            "while True: c.poll(1)\n"
        )
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "doomed"}
        settings |= {"session.timeout.ms": "3000", "heartbeat.interval.ms": "200"}
        command = [sys.executable, "-c", program, repr(settings), topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
            assert member.stdout is not None
            assert member.stdout.readline() == b"ready\n"
            os.kill(member.pid, signal.SIGKILL)
        until(lambda: "evicted" in [each["kind"] for each in self.events(cli, group)])
        diagnosed = cli("group", "diagnose", group, "--seconds", "0", "-o", "json")
        (evicted,) = [each for each in diagnosed.json["findings"] if each["kind"] == "evicted_session"]
        assert (evicted["subject"], diagnosed.code) == ("doomed", 1)
        assert "session.timeout.ms=3000" in evicted["evidence"]["reason"]
        drawn = cli("group", "timeline", group).lines
        assert "✗" in next(line for line in drawn if line.startswith("doomed"))

    def test_a_member_whose_application_does_not_poll(
        self, cli: Cli, broker: Broker, bootstrap: str, topic: str, group: str
    ) -> None:
        """It is in the group, but when another comes it does not rejoin before its max.poll.interval.ms is over."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=_subscription(topic))
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=600,
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        with Connection("127.0.0.1", broker.port, client_id="dreamer") as connection:
            joined = connection.call(join, 3)  # a version that asks for no member id first
            assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
            sync = SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=(assignment,),
            )
            assert connection.call(sync, 2).error_code == 0
            impatient = {"session.timeout.ms": 3000, "max.poll.interval.ms": 3000}  # the group waits for its slowest
            with Worker(bootstrap, group, [topic], **impatient):
                until(lambda: "evicted" in [each["kind"] for each in self.events(cli, group)])
                told = cli("group", "diagnose", group, "--seconds", "0", "-o", "json").json
        (evicted,) = [each for each in told["findings"] if each["kind"] == "evicted_max_poll"]
        assert evicted["subject"] == "dreamer"
        assert "max.poll.interval.ms" in evicted["advice"]

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_member_that_does_nothing(self, cli: Cli, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        """It polls and heartbeats, and all it was given is paused: a real client whose application is stuck."""
        write(bootstrap, topic, [30, 20, 0])
        settings = {"group.protocol": protocol, "client.id": "sleeper"}
        with Worker(bootstrap, group, [topic], paused=True, **settings) as sleeper:
            until(lambda: len(self.members(cli, group)) == 1 and sleeper.assigned == 3)
            early = cli("group", "diagnose", group, "--seconds", "0", "-o", "json")
            assert (early.code, early.json["healthy"], kinds(early.json)) == (3, None, {"too_early_to_tell"})
            (unsure,) = early.json["findings"]
            assert unsure["evidence"]["lag_records"] == 50
            assert 0 < unsure["evidence"]["ask_again_in_s"] <= 30
            assert cli("group", "diagnose", group, "--seconds", "0").lines[3].startswith("unsure: too_early_to_tell: ")

            late = cli("group", "diagnose", group, "--seconds", "2.5", "--stuck-after", "2s", "-o", "json")
            (stuck,) = [each for each in late.json["findings"] if each["kind"] == "stuck_member"]
            assert (late.code, late.json["healthy"], stuck["severity"]) == (1, False, "critical")
            assert stuck["subject"] == "sleeper@127.0.0.1"
            assert (stuck["evidence"]["partitions_stuck"], stuck["evidence"]["lag_records"]) == (2, 50)
            assert "stack dump" in stuck["advice"]
            limits = Limits(stuck_after_ms=1_000)
            assert Kind.STUCK_MEMBER in [
                each.kind for each in diagnose(bootstrap, group, seconds=1.2, limits=limits).findings
            ]
        assert not sleeper.seen

    def test_why_members_of_either_protocol_left(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        for protocol, reason in [("classic", "no reason given"), ("consumer", "left by itself (member epoch -1)")]:
            with Worker(bootstrap, f"{group}-{protocol}", [topic], **{"group.protocol": protocol}):
                until(lambda: len(self.members(cli, f"{group}-{protocol}")) == 1)  # noqa: B023
            until(lambda: not self.members(cli, f"{group}-{protocol}"))  # noqa: B023
            (left,) = [each for each in self.events(cli, f"{group}-{protocol}") if each["kind"] == "left"]
            assert str(left["reason"]).startswith(reason)

    def test_a_rebalance_storm(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        for _ in range(6):
            with Worker(bootstrap, group, [topic], **{"client.id": "restless"}):
                until(lambda: len(self.members(cli, group)) == 1)
            until(lambda: not self.members(cli, group))
        diagnosed = cli("group", "diagnose", group, "--seconds", "0", "-o", "json").json
        (storm,) = [each for each in diagnosed["findings"] if each["kind"] == "rebalance_storm"]
        assert storm["subject"] == "restless"
        assert storm["evidence"]["rebalances"] >= 5
        lane = [line for line in cli("group", "timeline", group).lines if line.startswith("restless ")]
        assert len(lane) == 1  # one process that restarts is one lane
        assert lane[0].count("○") >= 2

    def test_offsets_that_went_back_are_remembered(self, cli: Cli, read: str, topic: str) -> None:
        cli("group", "diagnose", read, "--seconds", "0")
        cli("group", "seek", read, topic, "0", "3")
        told = cli("group", "diagnose", read, "--seconds", "0", "-o", "json").json
        (back,) = [each for each in told["findings"] if each["kind"] == "offsets_reset"]
        assert (back["evidence"]["from_offset"], back["evidence"]["to_offset"]) == (40, 3)

    def test_names_that_would_steer_the_terminal(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [1])
        evil = f"{group}\x1b[31m"
        commit(bootstrap, evil, {(topic, 0): 0})
        with Worker(bootstrap, group, [topic], **{"client.id": "evil\x1b]0;title\x07"}):
            until(lambda: len(self.members(cli, group)) == 1)
            for command in (("list",), ("lag",), ("members", group), ("describe", group), ("timeline", group)):
                told = cli("group", *command)
                assert told.code == 0
                assert "\x1b" not in told.out
                assert "\\x1b" in told.out
            assert "nothing_wrong" in kinds(
                json.loads(cli("group", "diagnose", group, "--seconds", "0", "-o", "json").out)
            )


def _subscription(topic: str) -> bytes:
    name = topic.encode()
    return b"\x00\x00" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
