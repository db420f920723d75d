"""Fetch as a client meets it: long polls, limits, order, epochs, ids."""

import threading
import time
from uuid import uuid4

import pytest

from tidelog.broker.handlers import fetch
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.admin import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    MetadataRequest,
)
from tidelog.wire.messages.configs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.data import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from tidelog.wire.record_batch import iter_batches

from . import kit


class TestLongPoll:
    def test_it_is_woken_by_a_record(self, broker: Broker, connection: Connection) -> None:
        kit.create_topic(connection, "wake", 3)
        with kit.connect(broker) as reader:
            wishes = [kit.wish(0, partition) for partition in range(3)]
            reader.send(kit.fetch_request("wake", *wishes, max_wait_ms=30_000, min_bytes=1), kit.NAMES)
            began = time.monotonic()
            kit.store(connection, "wake", b"news", partition=2)
            (topic,) = reader.receive().responses
            assert time.monotonic() - began < 5
            found = {each.partition_index: kit.values(kit.records_in(each.records)) for each in topic.partitions}
            assert found == {0: [], 1: [], 2: [b"news"]}

    def test_very_many_partitions_are_waited_for_as_well(
        self, broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A follower of thousands of idle partitions that is told of nothing at once asks again at once, for ever."""
        monkeypatch.setattr(fetch, "AT_ONCE", 2)
        kit.create_topic(connection, "crowded", 5)
        wishes = [kit.wish(0, partition) for partition in range(5)]
        began = time.monotonic()
        connection.call(kit.fetch_request("crowded", *wishes, max_wait_ms=300, min_bytes=1), kit.NAMES)
        assert time.monotonic() - began >= 0.295
        with kit.connect(broker) as gone:
            gone.send(kit.fetch_request("crowded", *wishes, max_wait_ms=30_000, min_bytes=1), kit.NAMES)
        with kit.connect(broker) as reader:
            reader.send(kit.fetch_request("crowded", *wishes, max_wait_ms=30_000, min_bytes=1), kit.NAMES)
            time.sleep(0.1)
            kit.store(connection, "crowded", b"news", partition=1)
            (topic,) = reader.receive().responses
            found = [kit.values(kit.records_in(each.records)) for each in topic.partitions]
            assert found == [[], [b"news"], [], [], []]

    def test_it_waits_for_min_bytes_or_its_time(self, broker: Broker, connection: Connection) -> None:
        kit.create_topic(connection, "patience")
        batch = kit.batch_of(b"x" * 100)
        with kit.connect(broker) as reader:
            request = kit.fetch_request("patience", kit.wish(0), max_wait_ms=20_000, min_bytes=3 * len(batch))
            reader.send(request, kit.NAMES)
            for _ in range(2):
                kit.produce(connection, "patience", batch)
            reader._socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                reader.recv_frame()
            reader._socket.settimeout(10)
            kit.produce(connection, "patience", batch)
            (topic,) = reader.receive().responses
            assert len(kit.records_in(topic.partitions[0].records)) == 3
        began = time.monotonic()
        answer = kit.fetch(connection, "patience", 3, max_wait_ms=300, min_bytes=1)
        assert 0.25 < time.monotonic() - began < 5
        assert (answer.error_code, len(answer.records or b"")) == (0, 0)

    def test_an_error_is_not_kept_waiting(self, connection: Connection) -> None:
        kit.create_topic(connection, "wrong")
        began = time.monotonic()
        answer = kit.fetch(connection, "wrong", 99, max_wait_ms=20_000, min_bytes=1)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert time.monotonic() - began < 5

    def test_answers_come_in_the_order_of_the_requests(self, broker: Broker, connection: Connection) -> None:
        kit.create_topic(connection, "queue")
        with kit.connect(broker) as reader:
            reader.send(kit.fetch_request("queue", kit.wish(0), max_wait_ms=400, min_bytes=1), kit.NAMES)
            reader.send(MetadataRequest(topics=None))
            reader.send(kit.fetch_request("queue", kit.wish(0), max_wait_ms=30_000, min_bytes=1), kit.NAMES)
            reader.send(MetadataRequest(topics=None))
            assert reader.receive().responses  # Connection checks that the correlation ids match
            assert reader.receive().brokers
            kit.store(connection, "queue", b"x")
            assert reader.receive().responses
            assert reader.receive().brokers

    def test_many_requests_at_once(self, broker: Broker, connection: Connection) -> None:
        """More than may be in progress (queued.max.requests=500): the broker pauses reading and drops nothing."""
        kit.create_topic(connection, "pipeline")
        with kit.connect(broker, 30) as client:
            for number in range(700):
                client.send(kit.produce_request("pipeline", kit.batch_of(b"%d" % number)), kit.NAMES)
                client.send(kit.fetch_request("pipeline", kit.wish(0), max_wait_ms=5, min_bytes=1 << 20), kit.NAMES)
            offsets = []
            for _ in range(700):
                offsets.append(client.receive().responses[0].partition_responses[0].base_offset)
                assert client.receive().responses
        assert offsets == list(range(700))

    def test_a_reader_that_left_is_forgotten(self, broker: Broker, connection: Connection) -> None:
        kit.create_topic(connection, "left")
        for _ in range(20):
            with kit.connect(broker) as reader:
                reader.send(kit.fetch_request("left", kit.wish(0), max_wait_ms=2**31 - 1, min_bytes=1), kit.NAMES)
        kit.store(connection, "left", b"x")
        assert kit.values(kit.read_all(connection, "left")) == [b"x"]


class TestLimits:
    def test_bytes_of_a_partition_and_of_the_answer(self, connection: Connection) -> None:
        kit.create_topic(connection, "limits", 3)
        size = len(kit.batch_of(b"x" * 1000))
        for partition in range(3):
            for _ in range(10):
                kit.store(connection, "limits", b"x" * 1000, partition=partition)
        wishes = [kit.wish(0, partition, max_bytes=4 * size) for partition in range(3)]
        (topic,) = connection.call(kit.fetch_request("limits", *wishes, max_bytes=6 * size), kit.NAMES).responses
        counts = [len(list(iter_batches(each.records or b""))) for each in topic.partitions]
        assert counts == [4, 2, 0]

    def test_the_first_batch_comes_however_big(self, connection: Connection) -> None:
        kit.create_topic(connection, "big", 2)
        for partition in range(2):
            kit.store(connection, "big", b"x" * 100_000, partition=partition)
        wishes = [kit.wish(0, partition, max_bytes=10) for partition in range(2)]
        (topic,) = connection.call(kit.fetch_request("big", *wishes, max_bytes=10), kit.NAMES).responses
        counts = [len(list(iter_batches(each.records or b""))) for each in topic.partitions]
        assert counts == [1, 0], "one whole batch, and no more than one"
        alone = connection.call(kit.fetch_request("big", kit.wish(0, 1, max_bytes=0), max_bytes=0), kit.NAMES)
        assert len(kit.records_in(alone.responses[0].partitions[0].records)) == 1

    def test_from_inside_a_batch_the_whole_batch_comes(self, connection: Connection) -> None:
        kit.create_topic(connection, "inside")
        kit.store(connection, "inside", b"0", b"1", b"2")
        assert [each.offset for each in kit.records_in(kit.fetch(connection, "inside", 2).records)] == [0, 1, 2]

    def test_at_the_end_and_behind_it(self, connection: Connection) -> None:
        kit.create_topic(connection, "end")
        kit.store(connection, "end", b"x")
        at_end = kit.fetch(connection, "end", 1)
        assert (at_end.error_code, at_end.high_watermark, len(at_end.records or b"")) == (0, 1, 0)
        for offset in (2, -1, 2**62):
            assert kit.fetch(connection, "end", offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert kit.fetch(connection, "end", 0, partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_the_same(connection: Connection, version: int) -> None:
    name = f"versions-{version}"
    topic_id = kit.create_topic(connection, name)
    kit.store(connection, name, (b"k", b"v"), (None, None))
    topic = topic_id if version >= kit.IDS else name
    for isolation in (0, 1):
        request = kit.fetch_request(topic, kit.wish(0), isolation_level=isolation)
        (partition,) = connection.call(request, version).responses[0].partitions
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        assert [(each.key, each.value) for each in kit.records_in(partition.records)] == [(b"k", b"v"), (None, None)]
        # Kafka tells of aborted transactions only those who asked for committed records.
        assert partition.aborted_transactions == (() if isolation else None)


def test_by_an_unknown_id(connection: Connection) -> None:
    assert kit.fetch(connection, uuid4(), 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID


class TestLeaderEpochs:
    def test_fencing(self, connection: Connection) -> None:
        kit.create_topic(connection, "fenced")
        kit.store(connection, "fenced", b"x")
        for epoch, code in ((-1, ErrorCode.NONE), (0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            request = kit.fetch_request("fenced", kit.wish(0, current_leader_epoch=epoch))
            assert connection.call(request, kit.NAMES).responses[0].partitions[0].error_code == code

    def test_a_reader_with_another_history_is_told_so(self, connection: Connection) -> None:
        kit.create_topic(connection, "diverged")
        kit.store(connection, "diverged", b"x", b"y")

        def ask(offset: int, last_fetched_epoch: int) -> tuple[int, int]:
            request = kit.fetch_request("diverged", kit.wish(offset, last_fetched_epoch=last_fetched_epoch))
            (partition,) = connection.call(request, kit.NAMES).responses[0].partitions
            return partition.error_code, partition.diverging_epoch.end_offset

        assert ask(2, 0) == (0, -1), "the same history"
        assert ask(5, 0) == (0, 2), "it has more of this epoch than there is: back to its end"
        assert ask(2, 7)[0] == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch nobody knows"
        assert kit.delete_records(connection, "diverged", 2).error_code == 0
        assert ask(2, 0) == (0, -1), "also when its records are gone"

    def test_where_an_epoch_ends(self, connection: Connection) -> None:
        kit.create_topic(connection, "epochs")

        def ask(leader_epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
            )
            topic = OffsetForLeaderTopic(topic="epochs", partitions=(asked,))
            found = connection.call(OffsetForLeaderEpochRequest(topics=(topic,))).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert ask(-2) == (0, -1, -1), "nothing was written yet, and there is no such epoch"
        kit.store(connection, "epochs", b"x", b"y")
        assert ask(-2) == (0, -1, -1)
        assert ask(0) == (0, 0, 2)
        assert ask(9) == (0, -1, -1)
        assert ask(0, current=9)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert ask(0, partition=3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_slow_reader_gets_every_byte_while_others_write(broker: Broker, connection: Connection) -> None:
    """Big answers, read in small sips, while the log grows and rolls."""
    kit.create_topic(connection, "sips", segment_bytes=1 << 20)
    for number in range(60):
        kit.store(connection, "sips", b"%03d" % number * 20_000)
    done = threading.Event()

    def write() -> None:
        with kit.connect(broker) as writer:
            while not done.is_set():
                kit.store(writer, "sips", b"z" * 30_000)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        at = 0
        while at < 60:
            answer = kit.fetch(connection, "sips", at)
            for record in kit.records_in(answer.records):
                if record.offset < 60:
                    assert record.value == b"%03d" % record.offset * 20_000
                at = record.offset + 1
            time.sleep(0.01)
    finally:
        done.set()
        writing.join()


def test_describe_topic_partitions_in_pages(connection: Connection) -> None:
    for name, partitions in (("page-a", 3), ("page-b", 4), ("page-c", 2)):
        kit.create_topic(connection, name, partitions)
    names = tuple(DescribeTopicPartitionsRequestTopic(name=f"page-{each}") for each in "abcz")
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    pages = 0
    while True:
        request = DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2, cursor=cursor)
        answer = connection.call(request)
        pages += 1
        for topic in answer.topics:
            assert topic.error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name == "page-z" else 0)
            seen += [(topic.name, each.partition_index) for each in topic.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
        assert pages < 20
    expected = [("page-a", 3), ("page-b", 4), ("page-c", 2)]
    assert seen == [(name, number) for name, count in expected for number in range(count)]
    assert pages >= 5
    nonsense = Cursor(topic_name="page-a", partition_index=-7)
    again = connection.call(DescribeTopicPartitionsRequest(topics=names, cursor=nonsense))
    assert [len(each.partitions) for each in again.topics] == [3, 4, 2, 0]


def test_describe_log_dirs(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "sized", 2)
    kit.store(connection, "sized", b"x" * 5000, partition=1)
    asked = DescribableLogDirTopic(topic="sized", partitions=(0, 1, 7))
    (found,) = connection.call(DescribeLogDirsRequest(topics=(asked,))).results
    assert found.log_dir == str(broker.data_dir)
    assert found.total_bytes >= found.usable_bytes > 0
    sizes = {each.partition_index: each.partition_size for each in found.topics[0].partitions}
    assert set(sizes) == {0, 1}
    assert sizes[0] == 0
    assert sizes[1] == (broker.data_dir / "sized-1" / f"{0:020}.log").stat().st_size
    (everything,) = connection.call(DescribeLogDirsRequest(topics=None)).results
    assert "sized" in {each.name for each in everything.topics}
