"""What commands print without a broker: help, errors, tables, records, reports, offline log files."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tidelog.cli import run
from tidelog.cli.orders import orders
from tidelog.cli.output import count, print_json, print_table, size
from tidelog.cli.problems import Problem, explain
from tidelog.cli.render import json_bytes, printable, when
from tidelog.cli.topic.report import ordering, skew
from tidelog.cli.txn.view import clock
from tidelog.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from tidelog.errors import InvalidConfig
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record

NOWHERE = "127.0.0.1:1"


def test_alone_it_says_what_to_do_next(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "tidelog serve" in capfd.readouterr().out


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    script = (
        "import sys; from tidelog.cli import run; run(['--help']);"
        "heavy = ('confluent_kafka', 'rich', 'uvloop', 'asyncio', 'pydantic', 'tidelog.wire');"
        "print([module for module in heavy if module in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")
    for command in ("demo", "serve", "topic", "produce", "consume", "config", "log", "version"):
        assert f"\n  {command} " in out


def test_versions(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert "librdkafka" in capfd.readouterr().out
    assert run(["--version"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "-p", "2"],
        ["topic", "delete", "t", "-y"],
        ["topic", "locate", "t", "k"],
        ["produce", "t"],
        ["consume", "t"],
        ["config", "get", "retention.ms", "-t", "t"],
        ["config", "set", "retention.ms=1", "-t", "t"],
        ["config", "unset", "retention.ms", "-t", "t"],
        ["config", "list", "--broker", "1"],
    ],
    ids=" ".join,
)
def test_no_broker_is_one_line_and_a_next_step(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    assert run([*command, "-b", NOWHERE]) == 1
    assert time.monotonic() - started < 5
    out, err = capfd.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first == f"error: no broker at {NOWHERE}"
    assert "tidelog serve" in second


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["nonsense"], "No such command"),
        (["topic", "create"], "TOPIC"),
        (["config", "get", "retention.ms"], "--topic TOPIC, --group GROUP or --broker ID"),
        (["config", "set", "a=b", "-t", "t", "--broker", "1"], "--topic TOPIC, --group GROUP or --broker ID"),
        (["config", "get", "retention.ms", "--group", ""], "--topic TOPIC, --group GROUP or --broker ID"),
        (["group", "reset", "", "--topic", "t", "--to-latest"], "the group's id is empty"),
        (["topic", "alter", "t"], "nothing to change"),
        (["topic", "alter", "t", "-p", "100001"], "range"),
        (["topic", "create", "t", "-p", "100001"], "range"),
        (["topic", "create", "t", "-r", "10001"], "range"),
        (["consume", "t", "--offset", "1", "--from-beginning"], "give only one"),
        (["produce", "t", "-K", ""], "must not be empty"),
        (["produce", "t", "--acks", "2"], "acks"),
        (["produce", "t", "-H", "nameless"], "--header nameless: expected NAME=VALUE"),
        (["produce", "t", "-p", str(2**31)], "range"),
        (["demo", "--rate", "0"], "rate"),
    ],
)
def test_usage_errors_exit_2(command: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    err = capfd.readouterr().err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["serve", "--set", "log.retension.ms=1"], "did you mean log.retention.ms?"),
        (["serve", "--set", "nonsense"], "name=value"),
        (["serve", "--set", "num.partitions=0"], "a whole number at least 1"),
        (["serve", "--config", "/does/not/exist"], "/does/not/exist: No such file"),
        (["topic", "create", "t", "-c", "retention.ms", "-b", NOWHERE], "name=value"),
        (["topic", "list", "-b", "a:b:c"], "not a broker address"),
        (["serve", "--data-dir", __file__], f"{__file__} is not a directory"),
        (["log", "dump", "/does/not/exist"], "does not exist"),
        (["log", "verify", "/does/not/exist"], "is not a directory"),
    ],
)
def test_refusals_exit_1(command: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 1
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert words in err


def test_errors_are_explained() -> None:
    assert explain(Problem("a", "b")) == ["error: a", "  next: b"]
    assert explain(InvalidConfig("a\nb"))[:2] == ["error: a", "error: b"]
    assert explain(FileNotFoundError(2, "No such file", "/x")) == ["error: /x: No such file"]
    assert explain(TimeoutError())[0] == "error: no answer in time"
    assert explain(TimeoutError("n1:9092: timed out"))[0] == "error: n1:9092: timed out"
    assert "is not text" in explain(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))[0]
    assert "\\udcff' is not UTF-8" in explain(UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates"))[0]
    assert "bug" in explain(ZeroDivisionError("x"))[1]


def test_settings_are_all_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "-o", "json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    assert listed["broker"].keys() == BROKER_SETTINGS.keys()
    assert listed["topic"].keys() == TOPIC_SETTINGS.keys()
    assert listed["group"].keys() == GROUP_SETTINGS.keys()
    assert run(["config", "list"]) == 0
    assert "flush.on.ack = true" in capfd.readouterr().out


def test_reference_pages_are_up_to_date() -> None:
    generate = Path(__file__).resolve().parents[3] / "docs" / "generate.py"
    done = subprocess.run([sys.executable, str(generate), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr} run: python docs/generate.py"


class TestRendering:
    def test_a_terminal_is_never_steered_by_a_record(self) -> None:
        assert printable(b"\x1b[2Jhi\n\x00") == "\\x1b[2Jhi\\n\\x00"
        assert printable(b"\xff tea") == "\\xff tea"
        assert printable("Tee mit Zitröne ☕".encode()) == "Tee mit Zitröne ☕"
        assert printable(None) == "(null)"

    def test_json_keeps_every_byte(self) -> None:
        assert json_bytes(b"tea") == "tea"
        assert json_bytes(b"\xff\x00") == {"base64": "/wA="}
        assert json_bytes(None) is None

    def test_a_time_that_no_calendar_has_is_shown_as_its_number(self) -> None:
        assert when(1) == "1970-01-01 00:00:00.001"
        assert (when(10**15), when(2**63 - 1)) == (str(10**15), str(2**63 - 1))
        assert clock(2**63 - 1) == str(2**63 - 1)

    def test_numbers(self) -> None:
        assert (count(1, "record"), count(2000, "record")) == ("1 record", "2,000 records")
        assert (size(0), size(1536), size(3 << 40)) == ("0 B", "1.5 KiB", "3.0 TiB")

    def test_tables_into_a_pipe_are_never_cut(self, capfd: pytest.CaptureFixture[str]) -> None:
        print_table(("A", "B"), [("x" * 300, "[bold]y"), (None, 1)])
        out = capfd.readouterr().out
        assert "x" * 300 + "  [bold]y" in out
        assert len(out.splitlines()) == 3


class TestReports:
    def test_tables_in_a_narrow_terminal_are_folded_and_not_cut(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "30")
        print_table(("ID", "ADDRESS"), [("a" * 40, "broker-1.example:9092")])
        out = capsys.readouterr().out
        assert out.count("a") == 41  # and the one of the address
        assert "…" not in out

    def test_skew(self) -> None:
        assert skew([10, 10, 10]) == 1.0
        assert skew([30, 0, 0]) == 3.0
        assert skew([0, 0]) is None

    def test_ordering(self) -> None:
        assert "whole log" in ordering(1)
        assert "per key" in ordering(2)


class TestDemo:
    def test_orders_of_a_seed_are_the_same_and_skewed(self) -> None:
        first, again = orders(Random(1), 0), orders(Random(1), 0)
        some = [next(first) for _ in range(500)]
        assert some == [next(again) for _ in range(500)]
        order = json.loads(some[0].value)
        assert order["customer"].encode() == some[0].key
        assert order.keys() == {"order", "customer", "item", "quantity", "cents", "at"}
        assert len({each.key for each in some}) < 400


class TestLogFiles:
    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        for partition in (0, 10, 2):
            directory = tmp_path / f"orders-{partition}"
            directory.mkdir()
            records = [Record(i, 1_700_000_000_000, b"k%d" % i, b"\xff", (("h", b"1"),)) for i in range(3)]
            batch = build_batch(records, codec=3, leader_epoch=0)
            (directory / f"{0:020d}.log").write_bytes(batch)
            (directory / f"{0:020d}.index").touch()
            (directory / f"{0:020d}.timeindex").touch()
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n0\n")
        return tmp_path

    def test_dump(self, data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run(["log", "dump", str(data_dir), "--records"]) == 0
        out = capfd.readouterr().out
        assert [line[-26 - 9 :].split("/")[-2] for line in out.splitlines() if line.startswith("/")] == [
            "orders-0",
            "orders-2",
            "orders-10",
        ]
        assert "offsets 0..2  3 records" in out
        assert "lz4" in out
        assert "k1  \\xff  h=1" in out

    def test_dump_as_json(self, data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run(["log", "dump", str(data_dir / "orders-2"), "-r", "-o", "json"]) == 0
        (line,) = capfd.readouterr().out.splitlines()
        batch = json.loads(line)
        assert (batch["base_offset"], batch["last_offset"], batch["compression"]) == (0, 2, "lz4")
        assert batch["records"][1]["value"] == {"base64": "/w=="}

    def test_verify(self, data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run(["log", "verify", str(data_dir)]) == 0
        assert capfd.readouterr().out.count(": sound, offsets 0..3, 3 records") == 3

    def test_damage_is_shown_and_nothing_is_changed(self, data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
        segment = data_dir / "orders-2" / f"{0:020d}.log"
        damaged = bytearray(segment.read_bytes())
        damaged[-1] ^= 1
        segment.write_bytes(damaged)
        before = sorted((path, path.read_bytes()) for path in data_dir.rglob("*") if path.is_file())
        assert run(["log", "dump", str(data_dir)]) == 1
        assert "checksum" in capfd.readouterr().out
        assert run(["log", "verify", str(data_dir), "-o", "json"]) == 1
        out, err = capfd.readouterr()
        assert [report["sound"] for report in json.loads(out)] == [True, False, True]
        assert "1 partition of 3 damaged" in err
        assert sorted((path, path.read_bytes()) for path in data_dir.rglob("*") if path.is_file()) == before

    def test_what_to_do_next_is_something_that_works(self, data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
        segment = data_dir / "orders-2" / f"{0:020d}.log"
        segment.write_bytes(b"#" * 100)
        assert run(["log", "dump", str(segment)]) == 1
        out, err = capfd.readouterr()
        assert "no batch of records is here" in out
        assert f"`tidelog log verify {segment.parent}`" in err
        assert run(["log", "dump", str(segment.with_suffix(".index"))]) == 1
        assert "is not a .log file" in capfd.readouterr().err

    def test_a_directory_without_logs(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run(["log", "dump", str(tmp_path)]) == 1
        assert run(["log", "verify", str(tmp_path)]) == 1
        assert capfd.readouterr().err.count("orders-0") == 2


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m tidelog config list | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_lines_of_several_threads_stay_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """A pipeline's batches and its events come from threads of their own."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: print_json({"number": number}), range(2000)))
    finally:
        sys.setswitchinterval(usual)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(json.loads(line)["number"] for line in lines) == list(range(2000))
