"""A retried batch is one batch (invariants 25-27), over the wire and through every kind of ending."""

from pathlib import Path
from typing import Any

import pytest
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.configs import DescribeProducersRequest, DescribeProducersRequestTopic

from . import kit


class Sender:
    """Batches of two records, so that sequences and offsets are not the same numbers."""

    def __init__(self, connection: Connection, topic: str, producer_id: int | None = None) -> None:
        self.connection = connection
        self.topic = topic
        self.producer_id = kit.new_producer_id(connection) if producer_id is None else producer_id

    def send(self, sequence: int, epoch: int = 0, acks: int = -1) -> Any:
        pair = (b"%d" % sequence, b"%d" % (sequence + 1))
        return kit.produce(
            self.connection, self.topic, kit.batch_of(*pair, producer=(self.producer_id, epoch, sequence)), acks=acks
        )


def test_any_of_the_last_five_is_recognised(connection: Connection) -> None:
    kit.create_topic(connection, "window")
    kit.store(connection, "window", b"somebody else's")
    sender = Sender(connection, "window")
    offsets = {sequence: sender.send(sequence).base_offset for sequence in range(0, 20, 2)}
    for acks in (-1, 1):
        for sequence in range(10, 20, 2):
            answer = sender.send(sequence, acks=acks)
            assert (answer.error_code, answer.base_offset) == (0, offsets[sequence])
    assert sender.send(0).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(kit.read_all(connection, "window")) == 21


def test_a_gap_stores_nothing(connection: Connection) -> None:
    kit.create_topic(connection, "gap")
    sender = Sender(connection, "gap")
    assert sender.send(0).error_code == 0
    for sequence in (1, 3, 4, 100):
        assert sender.send(sequence).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sender.send(2).base_offset == 2
    assert len(kit.read_all(connection, "gap")) == 4


def test_an_old_epoch_is_fenced(connection: Connection) -> None:
    kit.create_topic(connection, "fence")
    sender = Sender(connection, "fence")
    assert sender.send(0).error_code == 0
    assert sender.send(5, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sender.send(0, epoch=1).base_offset == 2
    assert sender.send(2, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert sender.send(0, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(kit.read_all(connection, "fence")) == 4


def test_sequences_wrap(connection: Connection) -> None:
    kit.create_topic(connection, "wrap")
    sender = Sender(connection, "wrap")
    last = 2**31 - 2
    assert sender.send(last).error_code == 0, "a producer nobody knows may begin anywhere"
    assert sender.send(0).base_offset == 2
    assert sender.send(last).base_offset == 0
    assert sender.send(2).base_offset == 4


def test_retries_in_flight_together(broker: Broker, connection: Connection) -> None:
    """The retry overtakes the sync of the original, on another connection."""
    kit.create_topic(connection, "race")
    sender = Sender(connection, "race")
    with kit.connect(broker) as other:
        for sequence in range(0, 100, 2):
            batch = kit.batch_of(b"a", b"b", producer=(sender.producer_id, 0, sequence))
            for each in (connection, other):
                each.send(kit.produce_request("race", batch), kit.NAMES)
            answers = [each.receive().responses[0].partition_responses[0] for each in (connection, other)]
            assert {(each.error_code, each.base_offset) for each in answers} == {(0, sequence)}
    assert len(kit.read_all(connection, "race")) == 100


@pytest.mark.parametrize("ending", ["clean stop", "kill -9", "kill -9 without snapshots"])
def test_a_retry_after_a_restart(tmp_path: Path, ending: str) -> None:
    with Server(tmp_path) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "again", segment_bytes=200)  # a segment a batch: state comes from many
            sender = Sender(connection, "again")
            for sequence in range(0, 16, 2):
                assert sender.send(sequence).base_offset == sequence
        if ending == "clean stop":
            assert server.stop() == 0
        else:
            server.kill()
        if ending == "kill -9 without snapshots":
            for path in (tmp_path / "again-0").glob("*.snapshot"):
                path.unlink()
        server.start()
        with server.connect() as connection:
            sender = Sender(connection, "again", sender.producer_id)
            for sequence in range(6, 16, 2):
                assert sender.send(sequence).base_offset == sequence, "a retry was stored twice"
            assert sender.send(20).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert sender.send(16).base_offset == 16
            assert len(kit.read_all(connection, "again")) == 18


def test_a_retry_after_compaction_and_retention(tmp_path: Path) -> None:
    """The batches may be gone; what is known of their producer is not."""
    settings = {"log.retention.check.interval.ms": "20"}
    with Server(tmp_path, settings=settings) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "short", segment_bytes=200)
            sender = Sender(connection, "short")
            for sequence in range(0, 10, 2):
                sender.send(sequence)
            assert kit.delete_records(connection, "short", 10).low_watermark == 10
            kit.eventually(lambda: len(list((tmp_path / "short-0").glob("*.log"))) == 1, "segments are gone")
        server.kill()
        server.start()
        with server.connect() as connection:
            sender = Sender(connection, "short", sender.producer_id)
            assert sender.send(8).base_offset == 8
            assert sender.send(12).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert sender.send(10).base_offset == 10


def test_describe_producers(connection: Connection) -> None:
    kit.create_topic(connection, "seen")
    sender = Sender(connection, "seen")
    for sequence in (0, 2):
        sender.send(sequence, epoch=3)
    asked = DescribeProducersRequestTopic(name="seen", partition_indexes=(0, 9))
    known, unknown = connection.call(DescribeProducersRequest(topics=(asked,))).topics[0].partitions
    (state,) = known.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (sender.producer_id, 3, 3)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
