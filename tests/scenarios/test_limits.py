"""When the machine runs out of something, what works goes on working, and the rest works again afterwards."""

import resource
import socket
import struct
import time
from pathlib import Path

import pytest
from tests.chaos.server import Server

from tidelog.errors import ErrorCode
from tidelog.wire.messages.admin import CreatableTopic, CreateTopicsRequest, MetadataRequest

from . import kit


def open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def limit_files(server: Server, soft: int) -> None:
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))


def test_partitions_that_could_not_be_created_are_created_later(tmp_path: Path) -> None:
    with Server(tmp_path) as server, server.connect() as connection:
        kit.create_topic(connection, "before")
        kit.store(connection, "before", b"x")
        limit_files(server, open_files(server) + 20)
        wide = CreatableTopic(name="wide", num_partitions=60, replication_factor=1, assignments=(), configs=())
        (answer,) = connection.call(CreateTopicsRequest(topics=(wide,))).topics
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Too many open files" in answer.error_message
        kit.store(connection, "before", b"y")
        assert {each.name for each in connection.call(MetadataRequest(topics=None)).topics} == {"before", "wide"}
        limit_files(server, 1000)
        missing = kit.batch_of(b"late")
        kit.eventually(
            lambda: kit.produce(connection, "wide", missing, 59).error_code == 0, "the last partition is there"
        )
        for partition in range(60):
            kit.store(connection, "wide", b"x", partition=partition)
        server.kill()
        server.start()
        with server.connect() as again:
            assert kit.values(kit.read_all(again, "wide", 59))[-1] == b"x"


def test_without_descriptors_newcomers_are_refused_and_the_others_served(tmp_path: Path) -> None:
    """The log keeps some for itself: it must be able to roll and to sync its directories."""
    with Server(tmp_path) as server, server.connect() as connection:
        kit.create_topic(connection, "served", segment_bytes=2000)
        kit.create_topic(connection, "wide", 100)  # whose files take descriptors
        limit_files(server, open_files(server) + 20)
        newcomers = [kit.connect(server.port) for _ in range(40)]
        for _ in range(10):
            kit.store(connection, "served", b"x" * 1000)
        assert len(kit.read_all(connection, "served")) == 10
        for each in newcomers:
            with pytest.raises(ConnectionError):
                each.call(MetadataRequest(topics=None), 5)
            each.close()
        limit_files(server, 1000)
        with server.connect() as admitted:
            assert admitted.call(MetadataRequest(topics=None), 5).topics


def test_a_sync_that_finds_no_descriptor_waits_and_costs_nothing(tmp_path: Path) -> None:
    """It says nothing about the disk, so the directory must not be given up for it."""
    with Server(tmp_path) as server, server.connect() as connection:
        kit.create_topic(connection, "patient", segment_bytes=2000)
        for _ in range(4):
            kit.store(connection, "patient", b"x" * 1000)
        limit_files(server, open_files(server))
        request = kit.produce_request("patient", kit.batch_of(b"y" * 100))
        connection.send(request, kit.NAMES)
        connection.send(kit.produce_request("patient", kit.batch_of(b"z" * 1500)), kit.NAMES)  # has to roll
        time.sleep(0.3)
        limit_files(server, 1000)
        codes = [connection.receive().responses[0].partition_responses[0].error_code for _ in range(2)]
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        kit.store(connection, "patient", b"after")
        kit.create_topic(connection, "and-topics-too")
        stored = kit.values(kit.read_all(connection, "patient"))
        assert len(stored) == 5 + codes.count(0)


def test_many_promises_of_large_frames_take_little_memory(tmp_path: Path) -> None:
    """Eight bytes each, promising megabytes. Those who keep their promise are served meanwhile."""
    with Server(tmp_path) as server, server.connect() as connection:
        kit.create_topic(connection, "served")
        before = server.rss_mb
        promises = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(150)]
        for each in promises:
            each.sendall(struct.pack(">ihh", 4 << 20, 3, 5))
        for _ in range(3):
            kit.store(connection, "served", b"x" * 900_000)
        assert len(kit.read_all(connection, "served")) == 3
        assert server.rss_mb - before < 150
        for each in promises:
            each.close()


def test_max_connections(tmp_path: Path) -> None:
    with Server(tmp_path, settings={"max.connections": "3"}) as server:

        def admitted() -> bool:
            try:
                with kit.connect(server.port) as newcomer:
                    newcomer.call(MetadataRequest(topics=None), 5)
                return True
            except ConnectionError:
                return False

        kept = []
        for _ in range(3):
            kit.eventually(admitted, "whoever left is noticed")
            kept.append(kit.connect(server.port))
            kept[-1].call(MetadataRequest(topics=None), 5)
        refused = kit.connect(server.port)
        try:
            refused.call(MetadataRequest(topics=None), 5)
            raise AssertionError("a fourth connection was served")
        except ConnectionError:
            refused.close()
        kept.pop().close()
        kit.eventually(admitted, "a place became free")
        for each in kept:
            each.close()
