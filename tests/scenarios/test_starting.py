"""Starting a broker: where it listens, what it tells clients, where its settings come from, and when it refuses."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.cluster.ports import HeldPort
from tidelog.client.connection import Connection
from tidelog.testing import Broker
from tidelog.wire.messages.admin import DescribeClusterRequest, MetadataRequest

from . import kit

pytest_plugins = ["pytester"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tidelog", "serve", *arguments]


@contextmanager
def serving(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[list[tuple[str, int]]]:
    """`tidelog serve` until the block ends; where it says it listens."""
    with subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"ready on (\[?[^ ]*?\]?):(\d+) ", line)
        if found is None:
            process.kill()
            raise AssertionError(f"{line!r} {process.communicate()[1]}")
        try:
            yield [(found[1].strip("[]"), int(found[2]))]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.returncode == 0


def refusal(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What a broker that does not start prints; its exit code is not 0 and there is no traceback."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode in (1, 2), done
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def told(host: str, port: int) -> tuple[str, int]:
    """The address a client that came in there is told, by Metadata and by DescribeCluster alike."""
    with Connection(host, port) as connection:
        (broker,) = connection.call(MetadataRequest(topics=None)).brokers
        (again,) = connection.call(DescribeClusterRequest(include_cluster_authorized_operations=False)).brokers
    assert (broker.host, broker.port) == (again.host, again.port)
    return broker.host, broker.port


class TestListeners:
    def test_a_client_is_told_the_address_it_came_by(self, tmp_path: Path) -> None:
        with serving("-p", "0", "-d", str(tmp_path), "--host", "0.0.0.0") as [(_, port)]:
            assert told("127.0.0.1", port) == ("127.0.0.1", port)
            assert told("127.0.0.2", port) == ("127.0.0.2", port)

    def test_both_families_on_one_port(self, tmp_path: Path) -> None:
        """An IPv4 client is told an IPv4 address, although the socket that took it speaks IPv6."""
        with serving("-d", str(tmp_path), "--set", "listeners=PLAINTEXT://:0") as [(_, port)]:
            assert told("127.0.0.1", port) == ("127.0.0.1", port)
            assert told("::1", port) == ("::1", port)

    def test_ipv6(self, tmp_path: Path) -> None:
        with serving("-d", str(tmp_path), "--set", "listeners=PLAINTEXT://[::1]:0") as [(host, port)]:
            assert host == "::1"
            assert told("::1", port) == ("::1", port)
            with pytest.raises(ConnectionRefusedError):
                Connection("127.0.0.1", port)

    def test_localhost_is_whatever_it_means_here(self, tmp_path: Path) -> None:
        with serving("-p", "0", "-d", str(tmp_path), "--host", "localhost") as [(_, port)]:
            for family, *_, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
                host = str(address[0])
                assert told(host, port) == (host, port), family

    def test_two_listeners_each_with_an_address_of_its_own(self, tmp_path: Path) -> None:
        with (
            HeldPort() as inner,
            HeldPort() as outer,
            serving(
                "-d",
                str(tmp_path),
                "--set",
                f"listeners=PLAINTEXT://127.0.0.1:{inner.port},PLAINTEXT://127.0.0.1:{outer.port}",
                "--set",
                "advertised.listeners=PLAINTEXT://inner.example:1111,PLAINTEXT://outer.example:2222",
            ),
        ):
            assert told("127.0.0.1", inner.port) == ("inner.example", 1111)
            assert told("127.0.0.1", outer.port) == ("outer.example", 2222)

    def test_one_advertised_address_for_all(self, tmp_path: Path) -> None:
        with serving(
            "-d", str(tmp_path), "-p", "0", "--set", "advertised.listeners=PLAINTEXT://broker.example:9999"
        ) as [(host, port)]:
            assert told(host, port) == ("broker.example", 9999)


class TestRefusals:
    def test_a_port_in_use_is_named_and_costs_no_clean_shutdown(self, tmp_path: Path) -> None:
        with kit.broker_at(tmp_path) as connection:
            kit.create_topic(connection, "t")
        marker = tmp_path / ".kafka_cleanshutdown"
        assert marker.exists()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            said = refusal("-d", str(tmp_path), "-p", str(port))
        assert f"127.0.0.1:{port}" in said
        assert "in use" in said
        assert marker.exists(), "the next start would scan every log"

    def test_a_data_directory_in_use(self, tmp_path: Path) -> None:
        with serving("-d", str(tmp_path), "-p", "0") as [(host, port)]:
            said = refusal("-d", str(tmp_path), "-p", "0")
            assert "in use by another broker" in said
            assert "--data-dir" in said
            assert told(host, port), "the first one is unharmed"

    def test_another_brokers_directory(self, tmp_path: Path) -> None:
        with serving("-d", str(tmp_path), "-p", "0", "--node-id", "3", "--set", "cluster.id=mine"):
            pass
        said = refusal("-d", str(tmp_path), "-p", "0", "--node-id", "4")
        assert "is the directory of node 3, and this is node 4" in said
        assert "--node-id 3" in said
        said = refusal("-d", str(tmp_path), "-p", "0", "--node-id", "3", "--set", "cluster.id=yours")
        assert "belongs to cluster mine, and cluster.id is yours" in said
        with serving("-d", str(tmp_path), "-p", "0", "--node-id", "3"):
            pass

    @pytest.mark.parametrize(("clean", "topic"), [(True, 0), (True, 3), (True, 5), (False, 0), (False, 3)])
    def test_a_damaged_metadata_log(self, tmp_path: Path, clean: bool, topic: int) -> None:
        """Going on without the topics behind the damage would hide them; the second attempt must not do so either."""
        with kit.broker_at(tmp_path) as connection:
            for number in range(6):
                kit.create_topic(connection, f"t-{number}")
        (log,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
        data = bytearray(log.read_bytes())
        data[data.index(b"t-%d" % topic)] ^= 1
        log.write_bytes(data)
        if not clean:
            (tmp_path / ".kafka_cleanshutdown").unlink()
            (tmp_path / "recovery-point-offset-checkpoint").unlink()
        for _ in range(2):
            said = refusal("-d", str(tmp_path), "-p", "0")
            assert "metadata log" in said
            assert "damaged" in said
        assert len(list(tmp_path.glob("t-*"))) == 6

    @pytest.mark.parametrize("byte", [0, 3, 7])
    def test_not_because_of_a_flipped_offset_in_a_topic(self, tmp_path: Path, byte: int) -> None:
        """Offsets are outside the checksum, and after a clean stop nothing is scanned. Other topics are served."""
        with kit.broker_at(tmp_path) as connection:
            for name in ("hit", "other"):
                kit.create_topic(connection, name)
                for number in range(3):
                    kit.store(connection, name, b"%d" % number)
        log = tmp_path / "hit-0" / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        data[len(data) // 3 + byte] ^= 0x40
        log.write_bytes(data)
        with kit.broker_at(tmp_path) as connection:
            assert kit.values(kit.read_all(connection, "other")) == [b"0", b"1", b"2"]

    def test_a_directory_that_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a directory")
        assert "file" in refusal("-d", str(tmp_path / "file" / "data"), "-p", "0")

    @pytest.mark.parametrize(
        ("setting", "says"),
        [
            ("log.retention.mss=1", "log.retention.ms"),
            ("log.retention.ms=soon", "log.retention.ms"),
            ("retention.ms=1", "log.retention.ms"),
            ("listeners=PLAINTEXT://nowhere", "listeners"),
            ("num.partitions", "name=value"),
        ],
    )
    def test_settings_that_are_none(self, tmp_path: Path, setting: str, says: str) -> None:
        assert says in refusal("-d", str(tmp_path), "-p", "0", "--set", setting)
        assert not list(tmp_path.iterdir())


def test_flags_beat_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=5\nnum.partitions=2\nlog.segment.bytes=111111\nlog.retention.ms=1\n"
        f"log.dirs={tmp_path / 'from-file'}\nlisteners=PLAINTEXT://127.0.0.1:0\n"
    )
    environment = {"TIDELOG_NUM_PARTITIONS": "3", "TIDELOG_LOG_RETENTION_MS": "2"}
    with (
        serving("-c", str(file), "--set", "log.retention.ms=3", environment=environment) as [(host, port)],
        Connection(host, port) as connection,
    ):
        config = kit.config_of(connection, kit.BROKER, "5")
        names = ("log.segment.bytes", "num.partitions", "log.retention.ms")
        assert [config[name].value for name in names] == ["111111", "3", "3"]
        kit.create_topic(connection, "made", -1)
        (topic,) = connection.call(MetadataRequest(topics=None)).topics
        assert len(topic.partitions) == 3
        assert kit.config_of(connection, kit.TOPIC, "made")["retention.ms"].value == "3"
    assert (tmp_path / "from-file" / "made-2").is_dir()


def test_a_misspelt_setting_in_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=5\n\nnum.partitons=2\n")
    said = refusal("-c", str(file), "-d", str(tmp_path / "data"), "-p", "0")
    assert "line 3" in said
    assert "num.partitions" in said


class TestTestingBroker:
    def test_it_costs_little_more_than_python_itself(self) -> None:
        """In CPU time, which a busy machine does not stretch."""

        def seconds(code: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        bare = min(seconds("import asyncio, socket, json") for _ in range(3))
        whole = min(seconds("from tidelog.testing import Broker\nwith Broker(): pass") for _ in range(3))
        assert whole < 10 * bare, f"{whole:.2f} s; python with a few imports needs {bare:.2f} s"

    def test_nothing_is_left_behind(self) -> None:
        with Broker() as broker:
            directory, port = broker.data_dir, broker.port
            assert directory.is_dir()
        assert not directory.exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)

    def test_a_directory_of_ones_own_stays_and_is_found_again(self, tmp_path: Path) -> None:
        for expected in (0, 1):
            with kit.broker_at(tmp_path) as connection:
                if not expected:
                    kit.create_topic(connection, "kept")
                assert kit.store(connection, "kept", b"x") == expected

    def test_wrong_settings_are_the_tests_error(self) -> None:
        with pytest.raises(Exception, match=r"num\.partitions"):
            Broker({"num.partitons": 2}).start()

    def test_two_at_once(self) -> None:
        with Broker() as one, Broker({"node.id": 2}) as two:
            assert one.port != two.port
            for each, node in ((one, 1), (two, 2)):
                with kit.connect(each) as connection:
                    (broker,) = connection.call(MetadataRequest(topics=None)).brokers
                    assert broker.node_id == node


def test_the_pytest_fixtures(pytester: Any) -> None:
    """In a project that has nothing but a test."""
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Consumer, Producer, TopicPartition

        def test_round_trip(tidelog_broker, tidelog_topic):
            producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
            producer.produce(tidelog_topic, b"hello", b"key")
            assert producer.flush(20) == 0
            consumer = Consumer({"bootstrap.servers": tidelog_broker.bootstrap_servers, "group.id": "g",
                                 "enable.auto.commit": False})
            consumer.assign([TopicPartition(tidelog_topic, 0, 0)])
            message = consumer.poll(20)
            assert (message.key(), message.value()) == (b"key", b"hello")
            consumer.close()

        seen = []

        @pytest.mark.tidelog_partitions(3)
        @pytest.mark.parametrize("turn", [1, 2])
        def test_topics_are_new_each_time(tidelog_broker, tidelog_topic, turn):
            seen.append(tidelog_topic)
            assert len(set(seen)) == turn
            assert (tidelog_broker.data_dir / f"{tidelog_topic}-2").is_dir()
        """
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(passed=3)
