"""Every command of the CLI that talks to a cluster, as cases for whichever Kafka the `bootstrap` fixture names."""

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from tidelog.cli import run


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Result]
CLIENTS_OF_OTHERS = re.compile(r"^%\d\|[\d.]+\|(?:FAIL|ERROR)\|rdkafka#.*\n?", re.MULTILINE)
"""What librdkafka says to the same stderr about brokers that earlier tests have stopped."""


class CliCases:
    @pytest.fixture
    def cli(self, bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
        def call(*arguments: str, stdin: bytes = b"") -> Result:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            capfd.readouterr()
            code = run([*arguments, "-b", bootstrap])
            out, err = capfd.readouterr()
            return Result(code, out, CLIENTS_OF_OTHERS.sub("", err))

        return call

    @pytest.fixture
    def topic(self, cli: Cli) -> str:
        name = f"cli-{uuid4().hex[:10]}"
        assert cli("topic", "create", name, "--partitions", "3").code == 0
        return name

    def test_create_list_delete(self, cli: Cli) -> None:
        name = f"cli-{uuid4().hex[:10]}"
        made = cli("topic", "create", name, "-p", "4", "-c", "retention.ms=60000", "-o", "json")
        assert made.json == {"topic": name, "partitions": 4, "created": True}
        assert {"topic": name, "partitions": 4, "replication_factor": 1} in cli("topic", "list", "-o", "json").json
        assert any(line.split() == [name, "4", "1"] for line in cli("topic", "list").lines)

        again = cli("topic", "create", name)
        assert again.code == 1
        assert "already exists" in again.err
        assert "next:" in again.err
        assert cli("topic", "create", name, "--if-not-exists", "-o", "json").json["created"] is False

        assert cli("topic", "delete", name, name, "-o", "json").json == {"deleted": [name]}
        gone = cli("topic", "describe", name)
        assert (gone.code, gone.err.splitlines()[0].startswith(f"error: there is no topic {name}")) == (1, True)

    def test_partitions_default_to_the_brokers(self, cli: Cli) -> None:
        name = f"cli-{uuid4().hex[:10]}"
        assert cli("topic", "create", name).out == f"created topic {name} with 1 partition\n"
        described = cli("topic", "describe", name)
        assert "the whole log is in order" in described.out

    def test_invalid_settings_are_the_brokers_to_refuse(self, cli: Cli) -> None:
        refused = cli("topic", "create", f"cli-{uuid4().hex[:10]}", "-c", "retenton.ms=1")
        assert refused.code == 1
        assert "retenton.ms" in refused.err
        assert "tidelog config list" in refused.err

    def test_describe(self, cli: Cli, topic: str) -> None:
        assert cli("produce", topic, "-K", ":", stdin=b"".join(b"k%d:v%d\n" % (i, i) for i in range(300))).code == 0
        report = cli("topic", "describe", topic, "-o", "json").json
        assert report["records"] == 300
        assert report["ordering"].startswith("in order per partition")
        assert 1.0 <= report["skew"] < 1.5
        assert [each["partition"] for each in report["partitions"]] == [0, 1, 2]
        for each in report["partitions"]:
            assert each["end_offset"] - each["start_offset"] == each["records"]
            assert each["size_bytes"] > 300
            assert each["leader"] in each["in_sync_replicas"]
        assert f"{topic}: 3 partitions, 300 records" in cli("topic", "describe", topic).out

    def test_alter(self, cli: Cli, topic: str) -> None:
        changed = cli("topic", "alter", topic, "-p", "5", "-c", "retention.ms=120000")
        assert changed.lines == [f"{topic}: retention.ms is now 120000", f"{topic}: 3 → 5 partitions"]
        report = cli("topic", "describe", topic, "-o", "json").json
        assert len(report["partitions"]) == 5
        assert report["configs"]["retention.ms"] == {"value": "120000", "source": "topic"}
        assert cli("topic", "alter", topic, "--unset", "retention.ms").code == 0
        assert "retention.ms" not in cli("topic", "describe", topic, "-o", "json").json["configs"]
        assert cli("topic", "alter", topic, "-p", "5").out == f"{topic}: has 5 partitions already\n"
        shrunk = cli("topic", "alter", topic, "-p", "2", "-c", "retention.ms=1")
        assert (shrunk.code, "cannot shrink" in shrunk.err) == (1, True)
        assert "retention.ms" not in cli("topic", "describe", topic, "-o", "json").json["configs"]

    def test_a_key_is_found_where_locate_says(self, cli: Cli, topic: str) -> None:
        for key in ("apple", "pear", "quince", "42"):
            home = cli("topic", "locate", topic, key, "-o", "json").json["partition"]
            cli("produce", topic, "-K", "=", stdin=f"{key}=x\n".encode())
            read = cli("consume", topic, "--from-beginning", "-e", "-o", "json").lines
            assert {each["partition"] for each in map(json.loads, read) if each["key"] == key} == {home}
        assert "partition" in cli("topic", "locate", topic, "apple").out
        assert "any partition" in cli("topic", "locate", topic, "").out
        assert cli("topic", "locate", topic, "\udcff", "-o", "json").json["key"] == {"base64": "/w=="}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_what_is_produced_is_consumed(self, cli: Cli, topic: str, codec: str) -> None:
        lines = b"a:1\nb:\xff\xfe\nc:NULL\n:empty key\n"
        sent = cli(
            "produce", topic, "-K", ":", "--null-marker", "NULL", "-H", "from=test", "-z", codec, "-p", "1",
            "-o", "json", stdin=lines,
        )  # fmt: skip
        assert (sent.json["delivered"], sent.json["failed"]) == (4, 0)
        read = [json.loads(line) for line in cli("consume", topic, "--from-beginning", "-e", "-o", "json").lines]
        assert [(each["key"], each["value"]) for each in read] == [
            ("a", "1"),
            ("b", {"base64": "//4="}),
            ("c", None),
            ("", "empty key"),
        ]
        assert {each["partition"] for each in read} == {1}
        assert read[0]["headers"] == [{"name": "from", "value": "test"}]
        assert read[0]["timestamp_type"] == "CreateTime"

    @pytest.mark.parametrize("acks", ["all", "1", "0"])
    def test_acks(self, cli: Cli, topic: str, acks: str) -> None:
        assert cli("produce", topic, "--acks", acks, "-o", "json", stdin=b"x\n" * 50).json["delivered"] == 50
        deadline = time.monotonic() + 30  # acks=0 is answered by nobody: the records are on their way
        while cli("topic", "describe", topic, "-o", "json").json["records"] < 50:
            assert time.monotonic() < deadline

    def test_consume_shapes_and_places(self, cli: Cli, topic: str) -> None:
        cli("produce", topic, "-p", "0", "-K", ":", stdin=b"".join(b"k:%d\n" % i for i in range(10)))
        everything = ("consume", topic, "-e", "-p", "0")
        assert cli(*everything, "--from-beginning", "-o", "value").lines == [str(i) for i in range(10)]
        assert cli(*everything, "--offset", "7", "-o", "value").lines == ["7", "8", "9"]
        assert cli(*everything, "--offset", "1000", "-o", "value").out == ""
        assert cli(*everything, "--offset", "-2", "-o", "key-value").lines == ["k\t8", "k\t9"]
        assert cli(*everything, "--from-time", "1h", "-n", "1", "-o", "value").lines == ["0"]
        assert cli(*everything, "--from-time", "2100-01-01", "-o", "value").out == ""
        assert cli(*everything).out == ""
        text = cli(*everything, "--offset", "3", "-n", "1").out
        assert text.startswith("0@3  ")
        assert text.endswith("  k  3\n")

    def test_consuming_what_is_not_there(self, cli: Cli, topic: str) -> None:
        missing = cli("consume", f"{topic}x", "-e")
        assert (missing.code, f"did you mean {topic}?" in missing.err) == (1, True)
        assert "has no partition 9" in cli("consume", topic, "-p", "9", "-e").err

    def test_too_large_a_record_is_reported(self, cli: Cli) -> None:
        name = f"cli-{uuid4().hex[:10]}"
        cli("topic", "create", name, "-c", "max.message.bytes=1000")
        refused = cli("produce", name, stdin=b"x" * 5000 + b"\n")
        assert refused.code == 1
        assert "1 record of 1 not delivered" in refused.err
        assert "max.message.bytes" in refused.err

    def test_lines_before_one_that_cannot_be_sent_are_sent(self, cli: Cli, topic: str) -> None:
        refused = cli("produce", topic, stdin=b"first\n" + b"x" * 2_000_000 + b"\nafter\n")
        assert refused.code == 1
        assert "line 2 cannot be sent" in refused.err
        assert "message.max.bytes" in refused.err
        assert cli("consume", topic, "--from-beginning", "-e", "-o", "value").lines == ["first"]

    def test_a_partition_that_is_not_there(self, cli: Cli, topic: str) -> None:
        refused = cli("produce", topic, "-p", "9", stdin=b"x\n")
        assert (refused.code, "tidelog topic describe" in refused.err) == (1, True)

    def test_headers_are_sent_as_they_were_typed(self, cli: Cli, topic: str) -> None:
        cli("produce", topic, "-H", "a=1", "-H", "a= 2 ", "-H", "b=\udcff", stdin=b"x\n")
        (line,) = cli("consume", topic, "--from-beginning", "-e", "-o", "json").lines
        assert json.loads(line)["headers"] == [
            {"name": "a", "value": "1"},
            {"name": "a", "value": " 2 "},
            {"name": "b", "value": {"base64": "/w=="}},
        ]

    def test_topic_settings(self, cli: Cli, topic: str) -> None:
        where = ("--topic", topic)
        before = cli("config", "get", "retention.ms", *where).out
        assert before == "604800000\n"
        assert cli("config", "set", "retention.ms=5000", "cleanup.policy=compact", *where).code == 0
        assert cli("config", "get", "retention.ms", *where, "-o", "json").json == {
            "name": "retention.ms",
            "value": "5000",
            "source": "topic",
        }
        listed = cli("config", "list", *where, "-o", "json").json
        assert listed["cleanup.policy"] == {"value": "compact", "source": "topic"}
        assert cli("config", "unset", "retention.ms", "cleanup.policy", *where).code == 0
        assert cli("config", "get", "retention.ms", *where).out == before
        for command in ("get", "unset"):
            wrong = cli("config", command, "retention.m", *where)
            assert (wrong.code, "did you mean retention.ms?" in wrong.err) == (1, True)
        refused = cli("config", "set", "retention.ms=soon", *where)
        assert (refused.code, "retention.ms" in refused.err) == (1, True)

    def test_broker_settings(self, cli: Cli) -> None:
        assert cli("config", "get", "node.id", "--broker", "1").out == "1\n"
        assert cli("config", "set", "log.retention.bytes=123456", "--broker", "1").code == 0
        assert cli("config", "get", "log.retention.bytes", "--broker", "1", "-o", "json").json == {
            "name": "log.retention.bytes",
            "value": "123456",
            "source": "broker, at run time",
        }
        assert cli("config", "unset", "log.retention.bytes", "--broker", "1").code == 0
        assert cli("config", "get", "log.retention.bytes", "--broker", "1").out == "-1\n"
        assert cli("config", "set", "node.id=7", "--broker", "1").code == 1
        missing = cli("config", "get", "node.id", "--broker", "7")
        assert (missing.code, missing.err) == (1, "error: there is no broker 7\n  next: those there are: 1\n")

    def test_client_settings(self, cli: Cli) -> None:
        assert cli("topic", "list", "-X", "client.id=somebody").code == 0
        assert "CONFIGURATION.md" in cli("topic", "list", "-X", "nonsense").err
        wrong = cli("topic", "list", "-X", "no.such.setting=1")
        assert (wrong.code, "no.such.setting" in wrong.err, "Traceback" in wrong.err) == (1, True, False)

    def test_following_ends_quietly_with_ctrl_c(self, cli: Cli, topic: str, bootstrap: str) -> None:
        import signal

        command = [
            sys.executable,
            "-m",
            "tidelog",
            "consume",
            topic,
            "--from-beginning",
            "-o",
            "value",
            "-b",
            bootstrap,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            assert follower.stderr is not None
            for text in (b"one\n", b"two\n"):
                cli("produce", topic, stdin=text)
                assert follower.stdout.readline() == text
            follower.send_signal(signal.SIGINT)
            assert follower.wait(30) == 0
            assert follower.stderr.read() == b""

    def test_a_closed_stdin_is_one_with_nothing_in_it(self, topic: str, bootstrap: str) -> None:
        produce = f"{sys.executable} -m tidelog produce {topic} -o json -b {bootstrap} <&-"
        done = subprocess.run(["bash", "-c", produce], capture_output=True, timeout=30, check=True)
        assert json.loads(done.stdout)["delivered"] == 0

    def test_following_ends_when_its_reader_leaves(self, cli: Cli, topic: str, bootstrap: str) -> None:
        cli("produce", topic, stdin=b"one\ntwo\n")
        consume = f"{sys.executable} -m tidelog consume {topic} --from-beginning -o value -b {bootstrap}"
        done = subprocess.run(["bash", "-c", f"{consume} | head -1"], capture_output=True, timeout=30, check=True)
        assert done.stdout in (b"one\n", b"two\n")
