"""What is old or too much goes, readers are told, and what went stays gone."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker

from . import kit

HOUR = 3_600_000
EAGER = {"log.retention.check.interval.ms": "30"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(EAGER) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected


def start_of(connection: Connection, topic: str) -> int:
    return kit.offset_at(connection, topic, kit.EARLIEST)


def test_old_records_go_and_readers_are_told(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "aging", segment_bytes=1000)
    for number in range(20):
        kit.store(connection, "aging", b"%03d" % number * 100, timestamp=kit.now_ms() - 2 * HOUR)
    for number in range(20, 30):
        kit.store(connection, "aging", b"%03d" % number * 100)
    # Only now: a look at half of them would end segments elsewhere, and two of them fit into one.
    assert kit.alter_config(connection, kit.TOPIC, "aging", {"retention.ms": str(HOUR)}).error_code == 0
    kit.eventually(lambda: start_of(connection, "aging") == 20, "old segments went")
    assert kit.values(kit.read_all(connection, "aging"))[0] == b"020" * 100
    told = kit.fetch(connection, "aging", 0)
    assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    # A client that acts on it: from before the start it is sent to the start.
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("aging", 0, 3)])
    first = consumer.poll(20)
    assert first is not None
    assert (first.error(), first.offset()) == (None, 20)
    consumer.close()


def _bytes_of(directory: Path) -> int:
    sizes = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes


def test_too_many_bytes_go(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "fat", segment_bytes=1000, retention_bytes=3000)
    for _ in range(50):
        kit.store(connection, "fat", b"x" * 400)
    kit.eventually(lambda: start_of(connection, "fat") > 38, "the surplus went")
    # Files go a moment later, in a thread.
    kit.eventually(lambda: 3000 <= _bytes_of(broker.data_dir / "fat-0") <= 4000, "as much is left as was asked for")
    assert kit.offset_at(connection, "fat", kit.LATEST) == 50


def test_retention_may_empty_a_log_and_offsets_go_on(connection: Connection) -> None:
    kit.create_topic(connection, "empty", retention_ms=HOUR)
    kit.store(connection, "empty", b"old", timestamp=kit.now_ms() - 2 * HOUR)
    kit.eventually(lambda: start_of(connection, "empty") == 1, "the active segment went too")
    assert kit.read_all(connection, "empty") == []
    assert kit.store(connection, "empty", b"new") == 1
    assert kit.values(kit.read_all(connection, "empty")) == [b"new"]


def test_a_setting_changed_at_run_time_takes_effect(connection: Connection) -> None:
    kit.create_topic(connection, "late", segment_bytes=1000)
    for _ in range(10):
        kit.store(connection, "late", b"x" * 400, timestamp=kit.now_ms() - 2 * HOUR)
    assert start_of(connection, "late") == 0
    assert kit.alter_config(connection, kit.TOPIC, "late", {"retention.ms": str(HOUR)}).error_code == 0
    kit.eventually(lambda: start_of(connection, "late") == 10, "everything went")


def test_a_reader_in_the_middle_of_a_deleted_segment_finishes_it(connection: Connection, broker: Broker) -> None:
    """The answer is promised; the files behind it stay open until it has been sent."""
    kit.create_topic(connection, "held", segment_bytes=1 << 20)
    for _ in range(24):
        kit.store(connection, "held", b"x" * 300_000)
    with kit.connect(broker) as slow:
        for _ in range(8):
            slow.send(kit.fetch_request("held", kit.wish(0)), kit.NAMES)
        slow.recv_frame()
        assert kit.delete_records(connection, "held", kit.LATEST).low_watermark == 24
        kit.eventually(lambda: len(list((broker.data_dir / "held-0").glob("*.log"))) == 1, "segments are deleted")
        sizes = {len(slow.recv_frame()) for _ in range(7)}
        assert len(sizes) <= 2, "an answer was cut short"


class TestDeleteRecords:
    def test_it_moves_the_start_and_frees_space(self, broker: Broker, connection: Connection) -> None:
        kit.create_topic(connection, "cut", segment_bytes=1000)
        for _ in range(20):
            kit.store(connection, "cut", b"x" * 400)
        files = len(list((broker.data_dir / "cut-0").glob("*.log")))
        answer = kit.delete_records(connection, "cut", 15)
        assert (answer.error_code, answer.low_watermark) == (0, 15)
        assert kit.read_all(connection, "cut")[0].offset == 15
        assert kit.fetch(connection, "cut", 14).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        kit.eventually(lambda: len(list((broker.data_dir / "cut-0").glob("*.log"))) < files - 5, "files are gone")

    def test_what_it_refuses(self, connection: Connection) -> None:
        kit.create_topic(connection, "kept")
        kit.create_topic(connection, "table", cleanup_policy="compact")
        kit.store(connection, "kept", b"x")
        assert kit.delete_records(connection, "kept", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert kit.delete_records(connection, "kept", -5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert kit.delete_records(connection, "table", 0).error_code == ErrorCode.POLICY_VIOLATION
        unknown = kit.delete_records(connection, "kept", 0, partition=4)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(kit.read_all(connection, "kept")) == 1

    @pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
    def test_what_went_stays_gone(self, tmp_path: Path, ending: str) -> None:
        with Server(tmp_path) as server:
            with server.connect() as connection:
                kit.create_topic(connection, "cut", 2)
                for partition in range(2):
                    for number in range(10):
                        kit.store(connection, "cut", b"%d" % number, partition=partition)
                assert kit.delete_records(connection, "cut", 7).low_watermark == 7
                assert kit.delete_records(connection, "cut", kit.LATEST, partition=1).low_watermark == 10
            if ending == "clean stop":
                assert server.stop() == 0
            else:
                server.kill()
            server.start()
            with server.connect() as connection:
                assert kit.values(kit.read_all(connection, "cut")) == [b"7", b"8", b"9"]
                assert kit.read_all(connection, "cut", 1) == []
                assert kit.store(connection, "cut", b"next", partition=1) == 10
