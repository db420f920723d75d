"""What people type: times, offsets, lines, addresses, flags of serve."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from tidelog.cli.connecting import addresses
from tidelog.cli.positions import Start, parse_start, parse_time
from tidelog.cli.problems import Problem
from tidelog.cli.produce import Line, lines
from tidelog.cli.serve import broker_config
from tidelog.config import Source
from tidelog.errors import InvalidConfig

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW_MS - 600_000),
        ("1.5h ago", NOW_MS - 5_400_000),
        ("250ms", NOW_MS - 250),
        ("1769860800000", 1_769_860_800_000),
        ("2026-01-31T12:00:00+00:00", NOW_MS),
        ("2026-01-31T12:00:00Z", NOW_MS),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "12", "10 parsecs", "2026-13-01", "9" * 12 + "d"])
def test_times_nobody_can_mean(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--from-time"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("0", Start("offset", 0)),
        ("42", Start("offset", 42)),
        ("-5", Start("tail", 5)),
        ("beginning", Start("beginning")),
        ("latest", Start("end")),
    ],
)
def test_offsets(offset: str, expected: Start) -> None:
    assert parse_start(from_beginning=False, offset=offset, from_time=None, now=NOW) == expected


def test_only_one_place_to_start() -> None:
    assert parse_start(from_beginning=False, offset=None, from_time=None, now=NOW) == Start("end")
    assert parse_start(from_beginning=True, offset=None, from_time=None, now=NOW) == Start("beginning")
    with pytest.raises(typer.BadParameter, match="only one"):
        parse_start(from_beginning=True, offset="1", from_time=None, now=NOW)
    with pytest.raises(typer.BadParameter, match="expected a number"):
        parse_start(from_beginning=False, offset="x", from_time=None, now=NOW)


def test_lines_become_records() -> None:
    stream = [b"a:1\n", b":2\r\n", b"b:\n", b"c:NULL\n", b"d:x:y"]
    assert list(lines(stream, ":", "NULL")) == [
        Line(b"a", b"1"),
        Line(b"", b"2"),
        Line(b"b", b""),
        Line(b"c", None),
        Line(b"d", b"x:y"),
    ]
    assert list(lines([b"\xff\n"], None, None)) == [Line(None, b"\xff")]


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(Problem, match="line 2 has no ':'"):
        list(lines([b"a:1\n", b"b\n"], ":", None))


def test_addresses() -> None:
    assert addresses("a:1, [::1]:2,b") == [("a", 1), ("::1", 2), ("b", 9092)]
    assert addresses("[::1]") == [("::1", 9092)]
    for wrong in ("a:x", "a:70000", ",", ""):
        with pytest.raises(Problem):
            addresses(wrong)


class TestServe:
    def test_flags_beat_everything(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_text("node.id=5\nlisteners=PLAINTEXT://0.0.0.0:1000\nlog.retention.hours=3\n")
        environment = {"TIDELOG_NODE_ID": "6", "TIDELOG_LOG_DIRS": "/env"}
        config = broker_config(
            port=2000,
            data_dir=Path("/flag"),
            config_file=file,
            assignments=["num.partitions=4"],
            environment=environment,
        )
        assert config.listeners == ("PLAINTEXT://0.0.0.0:2000",)  # the host is still the file's
        assert (config.node_id, config.log_dirs, config.num_partitions) == (6, ("/flag",), 4)
        assert config.log_retention_hours == 3
        assert config.source_of("log.dirs") is Source.STATIC_BROKER_CONFIG

    def test_host_alone_keeps_the_port(self) -> None:
        assert broker_config(host="::", environment={}).listeners == ("PLAINTEXT://[::]:9092",)

    def test_two_ways_to_say_one_thing(self) -> None:
        with pytest.raises(typer.BadParameter, match="give only one"):
            broker_config(port=1, assignments=["listeners=PLAINTEXT://a:1"], environment={})

    def test_a_mistake_in_the_file_is_named_by_file_and_line(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.properties"
        file.write_text("# mine\nnum.partition=3\n")
        with pytest.raises(InvalidConfig, match=r"mine\.properties line 2: .* did you mean num\.partitions\?"):
            broker_config(config_file=file, environment={})

    def test_a_file_that_is_not_text(self, tmp_path: Path) -> None:
        file = tmp_path / "x"
        file.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(Problem, match="is not text"):
            broker_config(config_file=file, environment={})
