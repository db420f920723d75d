"""Many consumers wait at the same place: each gets what it would have got alone, to the byte."""

import errno
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tidelog.client.connection import Connection
from tidelog.storage.disk import RealFile
from tidelog.testing import Broker
from tidelog.wire.messages.data import FetchRequest

from . import kit

COPIES = 4


def alone(broker: Broker, request: FetchRequest, version: int) -> bytes:
    with kit.connect(broker) as reader:
        reader.send(request, version)
        return frame_of(reader)


def frame_of(connection: Connection) -> bytes:
    """An answer without its correlation id, which is the only thing that should differ."""
    return bytes(connection.recv_frame())[4:]


def shapes(name: str, topic_id: object, at: int) -> Iterator[tuple[int, dict[str, int], object, list[int]]]:
    """(version, options, topic, offsets by partition) of requests that differ in one thing from each other."""
    for version in (4, 5, 7, 10, 11, 12, 13, 16, 18):
        topic = name if version <= kit.NAMES else topic_id
        yield version, {}, topic, [at]
        yield version, {"isolation_level": 1}, topic, [at]
        yield version, {"max_bytes": 10}, topic, [at]
        yield version, {}, topic, [at, 0]


@pytest.mark.parametrize("size", [10, 3_000, 40_000, 200_000])
def test_a_record_for_everybody(broker: Broker, connection: Connection, size: int) -> None:
    name = f"crowd-{size}"
    topic_id = kit.create_topic(connection, name, 2)
    with ExitStack() as stack:
        for at in range(2):
            waiting: list[tuple[int, Connection, FetchRequest]] = []
            for version, options, topic, offsets in shapes(name, topic_id, at):
                wishes = [kit.wish(offset, partition) for partition, offset in enumerate(offsets)]
                patient = kit.fetch_request(topic, *wishes, max_wait_ms=30_000, min_bytes=1, **options)
                at_once = kit.fetch_request(topic, *wishes, max_wait_ms=0, min_bytes=1, **options)
                for _ in range(COPIES):
                    reader = stack.enter_context(kit.connect(broker))
                    reader.send(patient, version)
                    waiting.append((version, reader, at_once))
            kit.store(connection, name, b"r" * size)
            for version, reader, at_once in waiting:
                assert frame_of(reader) == alone(broker, at_once, version)


def test_those_who_want_more_go_on_waiting(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "more")
    batch = kit.batch_of(b"x" * 100)
    few = kit.fetch_request("more", kit.wish(0), max_wait_ms=30_000, min_bytes=1)
    many = kit.fetch_request("more", kit.wish(0), max_wait_ms=30_000, min_bytes=2 * len(batch))
    with ExitStack() as stack:
        modest = [stack.enter_context(kit.connect(broker)) for _ in range(COPIES)]
        greedy = [stack.enter_context(kit.connect(broker)) for _ in range(COPIES)]
        for mine, other in zip(modest, greedy, strict=True):
            mine.send(few, kit.NAMES)
            other.send(many, kit.NAMES)
        for expected, readers in ((1, modest), (2, greedy)):
            kit.produce(connection, "more", batch)
            for reader in readers:
                (topic,) = reader.receive().responses
                assert len(kit.records_in(topic.partitions[0].records)) == expected


def test_time_is_up_for_all(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "quiet")
    request = kit.fetch_request("quiet", kit.wish(0), max_wait_ms=3000, min_bytes=1)
    with ExitStack() as stack:
        readers = [stack.enter_context(kit.connect(broker)) for _ in range(20)]
        began = time.monotonic()
        for reader in readers:
            reader.send(request, kit.NAMES)
        expected = alone(broker, kit.fetch_request("quiet", kit.wish(0)), kit.NAMES)
        assert time.monotonic() - began < 3
        assert frame_of(readers[0]) == expected
        assert time.monotonic() - began >= 2.995  # never early: consumers count on it for their own pace
        assert all(frame_of(reader) == expected for reader in readers[1:])
        assert time.monotonic() - began < 15
    kit.store(connection, "quiet", b"they have left")
    assert len(kit.read_all(connection, "quiet")) == 1


def test_of_many_who_wait_some_leave(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "leaving")
    request = kit.fetch_request("leaving", kit.wish(0), max_wait_ms=30_000, min_bytes=1)
    with ExitStack() as stack:
        readers = [stack.enter_context(kit.connect(broker)) for _ in range(300)]
        for reader in readers:
            reader.send(request, kit.NAMES)
        for reader in readers[::3]:
            reader.close()
        kit.store(connection, "leaving", b"x")
        for number, reader in enumerate(readers):
            if number % 3:
                (topic,) = reader.receive().responses
                assert len(kit.records_in(topic.partitions[0].records)) == 1


def test_what_cannot_be_read_for_all_is_read_for_each(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that fails once costs nobody the answer: those behind it would have counted as woken ever after."""
    kit.create_topic(connection, "unread")
    request = kit.fetch_request("unread", kit.wish(0), max_wait_ms=30_000, min_bytes=1)
    failed: list[int] = []

    def read_cached(file: RealFile, position: int, length: int) -> bytes | None:
        if file.path.endswith(".log") and not failed:
            failed.append(position)
            raise OSError(errno.EIO, "the device does not answer")
        return file.read(position, length)

    with ExitStack() as stack:
        readers = [stack.enter_context(kit.connect(broker)) for _ in range(COPIES)]
        for reader in readers:
            reader.send(request, kit.NAMES)
        monkeypatch.setattr(RealFile, "read_cached", read_cached)
        for value in (b"once", b"and again"):
            kit.store(connection, "unread", value)
        for reader in readers:
            (topic,) = reader.receive().responses
            assert kit.records_in(topic.partitions[0].records)
    assert failed
