"""Torn frames, garbage, absurd lengths, slow and silent peers: only they suffer, everybody else is answered in time."""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.frames import encode_request
from tidelog.wire.messages.admin import ApiVersionsRequest, MetadataRequest
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.schema import encode

from .load import Load
from .server import Server, produce

ANSWER_WITHIN_S = 5.0
"""Far from what a sync to a disk that others use may take, and from what eight gigabytes of answers would."""
METADATA = encode_request(3, 5, 1, "hostile", encode(MetadataRequest(topics=None), 5))
API_VERSIONS = encode_request(18, 0, 1, "hostile", encode(ApiVersionsRequest(), 0))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile") / "data") as running:
        Load(running.bootstrap, "victim", partitions=1).create_topic()
        yield running


@pytest.fixture
def others(server: Server) -> Iterator[None]:
    """Someone was connected before the trouble and someone comes after it; both are answered, and records get in."""
    with server.connect() as before:
        produce(before, "victim", b"before")
        yield
        assert server.alive
        with server.connect() as after:
            for connection in (before, after):
                began = time.monotonic()
                assert produce(connection, "victim", b"x" * 100).error_code == ErrorCode.NONE
                assert connection.call(MetadataRequest(topics=None), 5).topics
                assert time.monotonic() - began < ANSWER_WITHIN_S


def raw(server: Server, timeout: float = 10) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout)


def answer(connection: socket.socket) -> bytes:
    """One frame, or b"" when the broker hung up."""
    try:
        head = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""
    except ConnectionResetError:
        return b""


@pytest.mark.usefixtures("others")
def test_a_request_that_arrives_byte_by_byte_is_answered(server: Server) -> None:
    with raw(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in METADATA + API_VERSIONS:
            connection.sendall(bytes([byte]))
            time.sleep(0.002)
        assert answer(connection)[:4] == answer(connection)[:4] == (1).to_bytes(4, "big")


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 2**30, 0, 1, 7])
def test_an_absurd_length_ends_that_connection_only(server: Server, length: int) -> None:
    memory = server.rss_mb
    with raw(server) as connection:
        connection.sendall(struct.pack(">i", length) + b"\0" * 32)
        assert answer(connection) == b""
    assert server.rss_mb - memory < 20


@pytest.mark.usefixtures("others")
def test_random_bytes_never_hurt_the_broker(server: Server) -> None:
    dice = random.Random(7)
    for _ in range(150):
        with raw(server) as connection:
            body = dice.randbytes(dice.randrange(1, 400))
            if dice.random() < 0.8:  # a proper frame, and often a proper header, around nonsense
                header = struct.pack(">hhih", dice.randrange(0, 80), dice.randrange(0, 14), 5, -1)
                body = (header if dice.random() < 0.8 else b"") + body
                body = struct.pack(">i", len(body)) + body
            connection.sendall(body)
            with suppress(OSError):  # the broker may have hung up already
                connection.shutdown(socket.SHUT_WR)
            while answer(connection):
                pass


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("count", [2**31 - 1, 10**6, -2])
def test_an_absurd_count_is_refused_before_memory_is_taken(server: Server, count: int) -> None:
    memory = server.rss_mb
    with raw(server) as connection:
        connection.sendall(encode_request(3, 5, 1, "hostile", struct.pack(">i", count) + b"\0" * 50))
        assert answer(connection) == b""
    assert server.rss_mb - memory < 20


@pytest.mark.usefixtures("others")
def test_unknown_apis_and_versions(server: Server) -> None:
    with raw(server) as connection:
        connection.sendall(encode_request(18, 99, 42, "hostile", b""))
        body = answer(connection)
        assert body[:4] == (42).to_bytes(4, "big")
        assert struct.unpack(">h", body[4:6])[0] == ErrorCode.UNSUPPORTED_VERSION
        connection.sendall(API_VERSIONS)
        assert answer(connection)[4:6] == b"\0\0", "the client retries with a version it now knows to be served"
    for header in (struct.pack(">hhih", 999, 0, 1, -1), struct.pack(">hhih", 3, 99, 1, -1)):
        with raw(server) as connection:
            connection.sendall(struct.pack(">i", len(header)) + header)
            body = answer(connection)
            assert body == b"" or struct.unpack(">h", body[4:6])[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.usefixtures("others")
def test_a_thousand_idle_connections_and_half_sent_requests(server: Server) -> None:
    memory = server.rss_mb
    with ExitStack() as stack:
        for i in range(1000):
            connection = stack.enter_context(raw(server))
            if i % 2:
                connection.sendall(METADATA[: 1 + i % (len(METADATA) - 1)])
        time.sleep(0.2)
        with server.connect() as other:
            began = time.monotonic()
            assert produce(other, "victim", b"x").error_code == ErrorCode.NONE
            assert time.monotonic() - began < ANSWER_WITHIN_S
        assert server.rss_mb - memory < 150


@pytest.mark.usefixtures("others")
def test_a_promise_of_a_large_frame_takes_no_memory(server: Server) -> None:
    """100 MB are announced twenty times and a few bytes sent: memory follows what arrived, not what was announced."""
    memory = server.rss_mb
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(raw(server)).sendall(struct.pack(">i", 100_000_000) + b"\0\0\0\x09" + b"x" * 1000)
        time.sleep(0.3)
        assert server.rss_mb - memory < 100


@pytest.mark.usefixtures("others")
def test_a_reader_that_never_reads_stops_only_itself(server: Server) -> None:
    load = Load(server.bootstrap, f"big-{os.getpid()}", partitions=1)
    load.create_topic()
    with server.connect() as connection:
        for _ in range(40):
            assert produce(connection, load.topic, b"x" * 1_000_000).error_code == ErrorCode.NONE
    memory = server.rss_mb
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic=load.topic, partitions=(partition,)),))
    with ExitStack() as stack:
        lazy = [stack.enter_context(Connection("127.0.0.1", server.port)) for _ in range(10)]
        for connection in lazy:
            for _ in range(20):  # 8 GB of answers are asked for, and none is taken
                connection.send(fetch, 10)
        time.sleep(0.5)
        with server.connect() as other:
            for _ in range(5):
                began = time.monotonic()
                assert produce(other, "victim", b"x").error_code == ErrorCode.NONE
                assert time.monotonic() - began < ANSWER_WITHIN_S
        assert server.rss_mb - memory < 150
        # It was slow, not broken: when it reads at last, everything is there.
        records = lazy[0].receive().responses[0].partitions[0].records
        assert records is not None
        assert len(records) > 39_000_000


@pytest.mark.usefixtures("others")
def test_peers_that_vanish_in_the_middle_of_everything(server: Server) -> None:
    for _ in range(100):
        connection = raw(server)
        connection.sendall(METADATA * 20)
        # RST instead of FIN, with answers on their way.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def test_out_of_descriptors_the_broker_keeps_serving_whom_it_has(tmp_path: Path) -> None:
    limit = ["prlimit", "--nofile=150:150"]
    with Server(tmp_path / "data", prefix=limit) as server:
        Load(server.bootstrap, "few", partitions=1).create_topic()
        with server.connect() as connection, ExitStack() as stack:
            assert produce(connection, "few", b"before").error_code == ErrorCode.NONE
            for _ in range(250):
                stack.enter_context(raw(server))
            for _ in range(3):
                began = time.monotonic()
                assert produce(connection, "few", b"during").error_code == ErrorCode.NONE
                assert time.monotonic() - began < ANSWER_WITHIN_S
        time.sleep(0.5)
        with server.connect() as late:
            assert produce(late, "few", b"after").error_code == ErrorCode.NONE
