"""The CLI on Tidelog: every command, the demo as a person runs it, serve from start to Ctrl-C, the pytest fixtures."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.cli_cases import CliCases

from tidelog.cli import run
from tidelog.cli.cluster.ports import HeldPort, taken
from tidelog.testing import Broker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bootstrap(tidelog_broker: Broker) -> str:
    return tidelog_broker.bootstrap_servers


class TestCliOnTidelog(CliCases):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports_from() -> int:
    """The first of the ports that three brokers would have."""
    while taken([*range(port := free_port(), port + 3), *range(port + 100, port + 103)]):
        pass
    return port


class TestDemo:
    def test_a_broker_is_killed_and_every_number_adds_up(self, tmp_path: Path) -> None:
        port = free_ports_from()
        command = [sys.executable, "-m", "tidelog", "demo", "--no-spark", "--seconds", "8", "--port", str(port)]
        command += ["-d", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            assert demo.stdout.readline().startswith("started 3 brokers at ")
            assert "tidelog cluster break 2 --how kill" in demo.stdout.readline()
            assert demo.stdout.readline().startswith("produced ")
            assert run(["cluster", "break", "2", "--how", "kill", "-d", str(tmp_path)]) == 0
            out, err = demo.communicate(timeout=120)
        assert (demo.returncode, err) == (0, ""), out
        told = dict(re.findall(r"^ok +([\d,]+)  (.+)$", out, re.MULTILINE))
        assert len(told) >= 2  # counts of events, and of cents
        assert "cents billed" in told.values()
        assert "NO " not in out
        assert f"tidelog cluster start --port {port} -d {tmp_path}" in out
        with socket.socket() as gone:
            assert gone.connect_ex(("127.0.0.1", port)) != 0
        assert run(["log", "verify", str(tmp_path / "node-1" / "data")]) == 0

    def test_it_uses_a_broker_that_is_there_and_ends_with_ctrl_c(self, tidelog_broker: Broker) -> None:
        command = [sys.executable, "-m", "tidelog", "demo", "--no-spark", "--port", str(tidelog_broker.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            assert "using the broker" in demo.stdout.readline()
            assert demo.stdout.readline().startswith("produced ")
            demo.send_signal(signal.SIGINT)
            out, err = demo.communicate(timeout=90)
        assert (demo.returncode, err) == (0, ""), out
        assert "tidelog topic describe orders" in out

    def test_a_broker_that_cannot_start_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "node-1").mkdir()
        (tmp_path / "node-1" / "data").write_text("in the way")
        command = [sys.executable, "-m", "tidelog", "demo", "--brokers", "1", "-p", str(free_ports_from())]
        done = subprocess.run([*command, "-d", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("error: node 1 did not start: ")
        assert str(tmp_path / "node-1" / "log.txt") in done.stderr


def test_serve_says_where_it_is_and_stops_cleanly(tmp_path: Path) -> None:
    held = HeldPort()
    port = held.port
    command = [sys.executable, "-m", "tidelog", "serve", "-p", str(port), "-d", str(tmp_path / "data")]
    with held, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert f"127.0.0.1:{port}" in server.stdout.readline()
        assert run(["topic", "create", "t", "-b", f"127.0.0.1:{port}"]) == 0
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=20)
    assert server.returncode == 0
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (
            ["-p", "{port}"],
            "cannot listen on 127.0.0.1:{port}: Address already in use\n  next: a broker may be running",
        ),
        (["-p", "{port}", "--host", "nowhere.invalid"], "cannot listen on nowhere.invalid:{port}: "),
    ],
)
def test_serve_says_where_it_cannot_listen(
    tidelog_broker: Broker, tmp_path: Path, where: list[str], words: str
) -> None:
    port = tidelog_broker.bootstrap_servers.rpartition(":")[2]
    command = [
        sys.executable,
        "-m",
        "tidelog",
        "serve",
        "-d",
        str(tmp_path),
        *(each.format(port=port) for each in where),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tidelog: cannot start: {words.format(port=port)}")


def test_the_example_runs(tidelog_broker: Broker) -> None:
    environment = {**os.environ, "TIDELOG_BOOTSTRAP": tidelog_broker.bootstrap_servers}
    command = [sys.executable, str(ROOT / "examples" / "orders.py"), "250"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert done.stdout == "250 of 250 orders acknowledged\n"


class TestFixtures:
    @pytest.mark.tidelog_partitions(4)
    def test_a_marker_says_how_many_partitions(self, tidelog_broker: Broker, tidelog_topic: str) -> None:
        assert self._partitions(tidelog_broker, tidelog_topic) == 4

    @pytest.mark.parametrize("tidelog_topic", [2], indirect=True)
    def test_so_does_a_parameter(self, tidelog_broker: Broker, tidelog_topic: str) -> None:
        assert self._partitions(tidelog_broker, tidelog_topic) == 2

    def test_one_is_the_default(self, tidelog_broker: Broker, tidelog_topic: str) -> None:
        assert self._partitions(tidelog_broker, tidelog_topic) == 1
        assert tidelog_broker.data_dir.joinpath(f"{tidelog_topic}-0").is_dir()

    def _partitions(self, broker: Broker, topic: str) -> int:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        return len(admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def test_loading_the_plugin_loads_nothing_heavy(self) -> None:
        script = "import pytest, sys, tidelog.testing.plugin; print([m for m in %r if m in sys.modules])"
        heavy = ("confluent_kafka", "uvloop", "tidelog.broker", "typer", "msgspec")
        out = subprocess.run(
            [sys.executable, "-c", script % (heavy,)], capture_output=True, text=True, check=True
        ).stdout
        assert out == "[]\n"
