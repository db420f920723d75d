"""Every `tidelog group` command that any Kafka can answer, as cases for whichever the `bootstrap` fixture names."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from tests.peers.cli_cases import Cli, CliCases
from tests.peers.group_workers import Worker, commit, now_ms, steady_arrivals, until, write

PROTOCOLS = ["classic", "consumer"]
STATIC = "broker's server.properties, environment or flag"
HOUR_MS = 3_600_000


def kinds(diagnosed: Any) -> set[str]:
    return {each["kind"] for each in diagnosed["findings"]}


class GroupCliCases:
    cli = CliCases.cli
    topic = CliCases.topic

    @pytest.fixture
    def group(self) -> str:
        return f"group-{uuid4().hex[:10]}"

    @pytest.fixture
    def read(self, bootstrap: str, topic: str, group: str) -> str:
        """A group that read 40, 10 and nothing of 100, 50 and 20 records, and left."""
        write(bootstrap, topic, [100, 50, 20])
        commit(bootstrap, group, {(topic, 0): 40, (topic, 1): 10})
        return group

    def offsets(self, cli: Cli, group: str) -> dict[int, int]:
        """Empty also for a group that is not there yet."""
        told = cli("group", "describe", group, "--seconds", "0", "-o", "json")
        found = told.json["partitions"] if told.code == 0 else ()
        return {each["partition"]: each["committed"] for each in found if each["committed"] is not None}

    def members(self, cli: Cli, group: str) -> list[Any]:
        told = cli("group", "members", group, "-o", "json")
        return list(told.json) if told.code == 0 else []

    # -- looking ------------------------------------------------------------------------------------------------------

    def test_list(self, cli: Cli, read: str) -> None:
        listed = cli("group", "list", "-o", "json").json
        assert {"group": read, "type": "classic", "state": "Empty"} in listed
        assert any(line.split() == [read, "classic", "Empty"] for line in cli("group", "list").lines)
        for options, found in [
            (("--state", "empty", "--type", "Classic"), True),
            (("--state", "Stable"), False),
            (("--type", "consumer"), False),
            (("--state", "Stable", "--state", "Empty"), True),
        ]:
            names = [each["group"] for each in cli("group", "list", *options, "-o", "json").json]
            assert (read in names) is found, options
        assert cli("group", "list", "--state", "Asleep").code == 2

    def test_describe_a_group_that_left(self, cli: Cli, read: str, topic: str) -> None:
        told = cli("group", "describe", read, "-o", "json").json
        assert (told["group"], told["state"], told["members"]) == (read, "Empty", [])
        assert told["lag"]["lag_records"] == 100
        first = told["partitions"][0]
        assert (first["topic"], first["partition"], first["committed"], first["end_offset"]) == (topic, 0, 40, 100)
        assert (first["lag_records"], first["member_id"], first["trend_per_s"]) == (60, None, 0.0)
        assert 0 <= first["lag_seconds"] < 60
        text = cli("group", "describe", read)
        assert f"{read}: Empty, classic, 0 members, coordinator " in text.lines[0]
        assert text.lines[1].startswith("lag: 100 records, ")
        assert [line.split()[:5] for line in text.lines[4:]] == [
            [topic, "0", "40", "100", "60"],
            [topic, "1", "10", "50", "40"],
        ]

    def test_lag_in_seconds_is_the_age_of_the_first_unread_record(
        self, cli: Cli, bootstrap: str, topic: str, group: str
    ) -> None:
        write(bootstrap, topic, [5, 1], at_ms=now_ms() - 2 * HOUR_MS)
        write(bootstrap, topic, [5], at_ms=now_ms() - HOUR_MS)
        commit(bootstrap, group, {(topic, 0): 5, (topic, 1): 1})
        late, done = cli("group", "lag", group, "-o", "json").json
        assert (late["lag_records"], done["lag_records"], done["lag_seconds"]) == (5, 0, 0.0)
        assert 3600 <= late["lag_seconds"] < 3660
        assert "60 min" in cli("group", "lag", group).out
        (mine,) = [each for each in cli("group", "lag", "-o", "json").json if each["group"] == group]
        assert (mine["lag_records"], 3600 <= mine["lag_seconds"] < 3660, mine["members"]) == (5, True, 0)
        assert any(line.split()[:4] == [group, "Empty", "0", "5"] for line in cli("group", "lag").lines)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_members(self, cli: Cli, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        write(bootstrap, topic, [30, 0, 0])
        with Worker(bootstrap, group, [topic], **{"group.protocol": protocol, "client.id": "till"}) as worker:
            until(lambda: len(worker.seen) == 30)
            until(lambda: self.offsets(cli, group).get(0) == 30)
            (member,) = cli("group", "members", group, "-o", "json").json
            assert (member["client_id"], member["host"], member["lag_records"]) == ("till", "127.0.0.1", 0)
            assert member["partitions"] == [[topic, 0], [topic, 1], [topic, 2]]
            line = cli("group", "members", group).lines[1].split()
            assert line == [member["member_id"], "till", "127.0.0.1", "-", "3", "0", f"{topic}[0-2]"]
            told = cli("group", "describe", group, "-o", "json").json
            assert (told["state"], told["type"]) == ("Stable", protocol)
            assert told["assignor"] == ("range" if protocol == "classic" else "uniform")
            assert {each["client_id"] for each in told["partitions"]} == {"till"}
        until(lambda: cli("group", "members", group).out == f"{group} has no members\n")

    def test_a_group_with_settings_of_its_own(self, cli: Cli, group: str) -> None:
        name = "consumer.session.timeout.ms"
        assert cli("config", "get", name, "--group", group).out == "45000\n"
        changed = cli("config", "set", f"{name}=50000", "--group", group)
        assert changed.out == f"{group}: {name} = 50000  (group)\n"
        told = cli("config", "list", "--group", group, "-o", "json").json
        assert told[name] == {"value": "50000", "source": "group"}
        assert told["consumer.heartbeat.interval.ms"]["source"] in ("default", STATIC)
        for refused in (f"{name}=1000", f"{name}=999999999", f"{name}=soon", "consumer.nonsense=1"):
            assert cli("config", "set", refused, "--group", group).code == 1, refused
        assert cli("config", "get", name, "--group", group).out == "50000\n"
        assert cli("config", "unset", name, "--group", group).out == f"{group}: {name} = 45000  (default)\n"

    def test_watching_lag_shows_the_trend_and_ends_with_ctrl_c(self, bootstrap: str, topic: str, read: str) -> None:
        command = [sys.executable, "-m", "tidelog", "group", "lag", read, "--watch", "--every", "0.6", "-o", "json"]
        with (
            steady_arrivals(bootstrap, topic, {0: 100}),
            subprocess.Popen([*command, "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch,
        ):
            assert watch.stdout is not None
            looks = [json.loads(watch.stdout.readline()) for _ in range(4)]
            watch.send_signal(signal.SIGINT)
            _, err = watch.communicate(timeout=20)
        assert (watch.returncode, err) == (0, b"")
        assert 20 < looks[-1][0]["trend_per_s"] < 300
        assert looks[-1][0]["lag_records"] > looks[0][0]["lag_records"]

    @pytest.mark.parametrize("command", ["describe", "members", "lag", "timeline", "diagnose"])
    def test_a_group_that_is_not_there(self, cli: Cli, command: str) -> None:
        missing = cli("group", command, "nobody")
        assert missing.code == 1
        assert missing.err.splitlines()[0] in ("error: there is no group nobody", "error: " + NO_HISTORY)
        assert "next:" in missing.err

    # -- moving -------------------------------------------------------------------------------------------------------

    def test_reset_to_places(self, cli: Cli, read: str, topic: str) -> None:
        reset = ("group", "reset", read, "--topic", topic)
        for options, expected in [
            (("--to-earliest",), {0: 0, 1: 0, 2: 0}),
            (("--to-latest",), {0: 100, 1: 50, 2: 20}),
            (("--shift-by", "-5"), {0: 95, 1: 45, 2: 15}),
            (("--shift-by", "3", "--partition", "0", "-p", "2"), {0: 98, 1: 45, 2: 18}),
            (("--to-offset", "30"), {0: 30, 1: 30, 2: 20}),
            (("--to-current",), {0: 30, 1: 30, 2: 20}),
        ]:
            assert cli(*reset, *options).code == 0, options
            assert self.offsets(cli, read) == expected, options

    def test_what_is_out_of_range_is_clamped_with_a_warning(self, cli: Cli, read: str, topic: str) -> None:
        done = cli("group", "reset", read, "-t", topic, "-p", "2", "--to-offset", "30")
        assert done.lines[1].split() == [topic, "2", "-", "20", "first", "commit,", "0", "to", "read"]
        assert done.err == f"warning: {topic}-2: 30 is not written yet: set to the end, 20\n"
        told = cli("group", "reset", read, "-t", topic, "-p", "0", "--shift-by", "-1000", "-o", "json").json
        assert (told["executed"], told["partitions"][0]["new_offset"]) == (True, 0)
        assert "deleted already" in told["partitions"][0]["warning"]

    def test_a_dry_run_shows_the_difference_and_changes_nothing(self, cli: Cli, read: str, topic: str) -> None:
        before = self.offsets(cli, read)
        shown = cli("group", "reset", read, "--all-topics", "--to-latest", "--dry-run")
        assert shown.lines[1].split() == [topic, "0", "40", "100", "skips", "60"]
        assert shown.lines[-1] == f"{read}: nothing changed, this was a dry run"
        again = cli("group", "seek", read, topic, "0", "15", "--dry-run", "-o", "json").json
        assert (again["executed"], again["partitions"][0]["new_offset"]) == (False, 15)
        assert self.offsets(cli, read) == before

    def test_reset_by_time(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [10], at_ms=now_ms() - 3 * HOUR_MS)
        write(bootstrap, topic, [10], at_ms=now_ms() - HOUR_MS)
        write(bootstrap, topic, [10])
        reset = ("group", "reset", group, "-t", topic, "-p", "0")
        two_hours_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7200))
        for options, offset in [
            (("--by-duration", "PT2H"), 10),
            (("--by-duration", "90m"), 10),
            (("--by-duration", "30m"), 20),
            (("--to-time", two_hours_ago), 10),
            (("--to-time", "5h"), 0),
            (("--to-time", "2100-01-01"), 30),  # nothing is that young: the end
        ]:
            assert cli(*reset, *options).code == 0
            assert self.offsets(cli, group) == {0: offset}, options

    def test_csv_there_and_back(self, cli: Cli, read: str, topic: str, tmp_path: Path) -> None:
        file = tmp_path / "offsets.csv"
        saved = cli("group", "reset", read, "--all-topics", "--to-current", "--dry-run", "--export-csv", str(file))
        assert saved.code == 0
        assert file.read_text() == f"{topic},0,40\n{topic},1,10\n"
        assert cli("group", "reset", read, "-t", topic, "--to-earliest").code == 0
        assert cli("group", "reset", read, "--from-csv", str(file)).code == 0
        assert self.offsets(cli, read) == {0: 40, 1: 10, 2: 0}
        assert cli("group", "reset", read, "--from-csv", "-", stdin=f"{topic},2,7\n".encode()).code == 0
        assert self.offsets(cli, read)[2] == 7
        assert "no topic missing" in cli("group", "reset", read, "--from-csv", "-", stdin=b"missing,0,1\n").err
        absent = cli("group", "reset", read, "--from-csv", "-", stdin=f"{topic},9,1\n".encode())
        assert f"{topic} has no partition 9" in absent.err

    def test_seek(self, cli: Cli, read: str, topic: str) -> None:
        assert cli("group", "seek", read, topic, "1", "33").lines[1].split() == [topic, "1", "10", "33", "skips", "23"]
        assert self.offsets(cli, read) == {0: 40, 1: 33}
        assert cli("group", "seek", read, topic, "1", "earliest").code == 0
        assert self.offsets(cli, read) == {0: 40, 1: 0}

    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            (("-t", "TOPIC"), 2, "exactly one of"),
            (("-t", "TOPIC", "--to-earliest", "--to-latest"), 2, "exactly one of"),
            (("--to-earliest",), 2, "one of --topic"),
            (("--all-topics", "--partition", "0", "--to-earliest"), 2, "--partition needs"),
            (("-t", "TOPIC", "--to-time", "soon"), 2, "--to-time soon"),
            (("-t", "TOPIC", "--by-duration", "P"), 2, "--by-duration P"),
            (("-t", "TOPIC", "-p", "9", "--to-earliest"), 1, "has no partition 9"),
            (("-t", "TOPICx", "--to-earliest"), 1, "there is no topic"),
            (("-t", "TOPIC", "-p", "2", "--shift-by", "1"), 2, "no committed offset"),
        ],
    )
    def test_resets_nobody_can_mean(
        self, cli: Cli, read: str, topic: str, arguments: tuple[str, ...], code: int, told: str
    ) -> None:
        before = self.offsets(cli, read)
        refused = cli("group", "reset", read, *(each.replace("TOPIC", topic) for each in arguments))
        assert (refused.code, told in refused.err) == (code, True), refused.err
        assert self.offsets(cli, read) == before

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_live_group_is_reset_only_by_force(
        self, cli: Cli, bootstrap: str, topic: str, group: str, protocol: str
    ) -> None:
        write(bootstrap, topic, [20, 0, 0])
        settings = {"group.protocol": protocol, "client.id": "till"}
        with Worker(bootstrap, group, [topic], **settings) as worker:
            until(lambda: self.offsets(cli, group).get(0) == 20)
            reset = ("group", "reset", group, "-t", topic, "-p", "0", "--to-offset", "12")
            refused = cli(*reset)
            assert (refused.code, refused.out) == (1, "")
            assert f"group {group} is live: 1 member (till)" in refused.err
            assert "--force" in refused.err
            assert cli(*reset, "--dry-run").code == 0
            assert cli(*reset, "--force").code == 0
            # The member comes back by itself and repeats what it was told to, and nothing else.
            until(lambda: len(worker.seen) >= 28)
            until(lambda: self.offsets(cli, group).get(0) == 20)
        assert worker.seen == [(0, offset) for offset in (*range(20), *range(12, 20))]

    # -- deleting -----------------------------------------------------------------------------------------------------

    def test_delete(self, cli: Cli, read: str) -> None:
        assert cli("group", "delete", read, "-o", "json").json == {"deleted": [{"group": read}]}
        assert read not in cli("group", "list").out
        gone = cli("group", "delete", read)
        assert (gone.code, f"there is no group {read}" in gone.err) == (1, True)

    def test_delete_the_offsets_of_a_topic(self, cli: Cli, bootstrap: str, read: str, topic: str) -> None:
        other = f"{topic}-other"
        cli("topic", "create", other, "-p", "1")
        commit(bootstrap, read, {(other, 0): 0})
        deleted = cli("group", "delete", read, "--topic", topic, "-o", "json").json["deleted"]
        assert deleted == [{"group": read, "partitions": [[topic, 0], [topic, 1]]}]
        left = cli("group", "describe", read, "-o", "json").json["partitions"]
        assert [each["topic"] for each in left] == [other]
        assert "has committed nothing to" in cli("group", "delete", read, "--topic", topic).err

    def test_a_group_with_members_is_not_deleted(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [1])
        with Worker(bootstrap, group, [topic]):
            until(lambda: self.offsets(cli, group).get(0) == 1)
            refused = cli("group", "delete", group)
            assert (refused.code, "has members" in refused.err) == (1, True)
            subscribed = cli("group", "delete", group, "--topic", topic)
            assert (subscribed.code, "are subscribed" in subscribed.err) == (1, True)

    # -- why ----------------------------------------------------------------------------------------------------------

    def test_nothing_wrong(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [5, 5, 5])
        with Worker(bootstrap, group, [topic]), steady_arrivals(bootstrap, topic, {0: 20, 1: 20, 2: 20}):
            until(lambda: self.offsets(cli, group).keys() == {0, 1, 2})
            calm = cli("group", "diagnose", group, "--seconds", "2")
            assert calm.code == 0, calm.out
            assert "ok: nothing_wrong: the group keeps up" in calm.out
            told = cli("group", "diagnose", group, "--seconds", "1.5", "-o", "json").json
        assert (told["healthy"], told["state"]) == (True, "Stable")
        assert told["lag"]["arrival_per_s"] > 10

    def test_nobody_reads(self, cli: Cli, read: str) -> None:
        told = cli("group", "diagnose", read, "--seconds", "1.2", "-o", "json")
        assert (told.code, told.json["healthy"], told.json["lag"]["records"]) == (1, False, 100)
        assert "nobody_reads" in kinds(told.json)

    def test_a_slow_consumer(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [7000, 0, 0])
        with (
            Worker(bootstrap, group, [topic], **{"client.id": "slow", "delay": 0.05}),
            steady_arrivals(bootstrap, topic, {0: 30, 1: 30, 2: 30}),
        ):
            until(lambda: self.offsets(cli, group))
            told = cli("group", "diagnose", group, "--seconds", "3", "-o", "json")
            text = cli("group", "diagnose", group, "--seconds", "2")
        assert (told.code, text.code) == (1, 1)
        (slow,) = [each for each in told.json["findings"] if each["kind"] == "slow_consumer"]
        assert slow["subject"].startswith("slow@")
        assert 0 < slow["evidence"]["processed_per_s"] < 40 < slow["evidence"]["arrival_per_s"]
        assert slow["advice"]
        assert "warning: slow_consumer: slow@127.0.0.1 processes " in text.out
        assert "  do: " in text.out

    def test_a_hot_partition(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        write(bootstrap, topic, [1, 400, 1])
        with (
            Worker(bootstrap, group, [topic], delay=0.02),
            steady_arrivals(bootstrap, topic, {0: 10, 1: 500, 2: 10}),
        ):
            until(lambda: self.offsets(cli, group))
            told = cli("group", "diagnose", group, "--seconds", "3", "-o", "json").json
        (hot,) = [each for each in told["findings"] if each["kind"] == "hot_partition"]
        assert (hot["subject"], hot["severity"], hot["evidence"]["share"] > 0.8) == (f"{topic}-1", "warning", True)

    def test_a_lopsided_assignment(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        """Range deals each topic from the start: of many topics with one partition, the first member gets all."""
        topics = [f"{topic}-{letter}" for letter in "abc"]
        for each in topics:
            cli("topic", "create", each, "-p", "1")
        with Worker(bootstrap, group, topics), Worker(bootstrap, group, topics):
            until(lambda: sorted(len(one["partitions"]) for one in self.members(cli, group)) == [0, 3])
            told = cli("group", "diagnose", group, "--seconds", "1.2", "-o", "json").json
        (lopsided,) = [each for each in told["findings"] if each["kind"] == "lopsided_assignment"]
        assert (lopsided["evidence"]["most"], lopsided["evidence"]["least"]) == (3, 0)

    def test_retention_is_about_to_overtake(self, cli: Cli, bootstrap: str, topic: str, group: str) -> None:
        cli("config", "set", "retention.ms=7200000", "--topic", topic)
        write(bootstrap, topic, [50], at_ms=now_ms() - HOUR_MS)
        commit(bootstrap, group, {(topic, 0): 5})
        told = cli("group", "diagnose", group, "--seconds", "1.2", "-o", "json").json
        (overtakes,) = [each for each in told["findings"] if each["kind"] == "retention_overtakes"]
        assert overtakes["severity"] == "critical"
        assert 0.9 < overtakes["evidence"]["hours_left"] <= 1.0

    def test_retention_has_overtaken(self, cli: Cli, bootstrap: str, read: str, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (future,) = admin.delete_records([TopicPartition(topic, 0, 70)]).values()
        future.result(15)
        told = cli("group", "diagnose", read, "--seconds", "0", "-o", "json").json
        (lost,) = [each for each in told["findings"] if each["kind"] == "offsets_out_of_range"]
        assert (lost["subject"], lost["evidence"]["records_lost"]) == (f"{topic}-0", 30)

    def test_the_same_from_python(self, bootstrap: str, read: str) -> None:
        from tidelog.observe import diagnose

        diagnosis = diagnose(bootstrap, read, seconds=1.2)
        assert diagnosis.lag.records == 100
        assert diagnosis.lag.trend_per_s == 0.0
        assert "nobody_reads" in {finding.kind for finding in diagnosis.findings}


NO_HISTORY = "no history of nobody: this coordinator keeps no history (only Tidelog's does)"
