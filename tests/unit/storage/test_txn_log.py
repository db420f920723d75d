"""Transactions in a log: who may write, who is fenced, what readers of committed records see and for how long."""

import pytest
from batches import NOW, append, create_log, open_log
from sim_disk import SimDisk
from txn_writer import Writer, read_committed

from tidelog.config import TopicConfig
from tidelog.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from tidelog.storage.log import Log
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.control import Marker, build_marker, read_marker
from tidelog.wire.record_batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    crc_of,
    iter_batches,
    iter_records,
    read_header,
)

DIRECTORY = "/data/orders-0"
A, B = (b"a", b"1"), (b"b", b"2")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return create_log(disk, DIRECTORY)


def txn_index(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.transactions.index]


# -- markers -----------------------------------------------------------------------------------------------------------


def test_a_marker_is_the_batch_kafka_writes() -> None:
    batch = build_marker(Marker(True, 7), producer_id=5, producer_epoch=2, timestamp=NOW)
    header = read_header(batch)
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    assert (header.records_count, header.last_offset_delta, crc_of(batch)) == (1, 0, header.crc)
    (record,) = iter_records(batch)
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    assert read_marker(batch) == (True, 7)
    assert read_marker(build_marker(Marker(False, -1), producer_id=5, producer_epoch=2, timestamp=NOW)) == (False, -1)


def test_other_control_records_end_nothing() -> None:
    def control(key: bytes, value: bytes = b"\x00" * 6) -> bytes:
        return build_batch([Record(0, NOW, key, value)], attributes=CONTROL)

    assert read_marker(control(b"\x00\x00\x00\x02")) is None
    with pytest.raises(CorruptMessage):
        read_marker(control(b"\x00\x00"))
    with pytest.raises(CorruptMessage):
        read_marker(control(b"\x00\x00\x00\x01", b"\x00\x00"))


def test_a_marker_takes_an_offset_and_the_append_time(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(message_timestamp_type="LogAppendTime"))
    writer = Writer(log, 1)
    writer.write(A, now_ms=NOW + 1)
    assert writer.end(True, now_ms=NOW + 9) == (1, 1, NOW + 9, False)
    piece = log.read(1, 1 << 16, upper=2)
    ((header, batch),) = iter_batches(piece.file.read(piece.position, piece.length))
    assert (header.base_offset, header.max_timestamp) == (1, NOW + 9)
    assert header.attributes == TRANSACTIONAL | CONTROL | LOG_APPEND_TIME
    assert crc_of(batch) == header.crc


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_old_epochs_end_nothing(log: Log) -> None:
    writer = Writer(log, 1, epoch=3, coordinator_epoch=5)
    writer.write(A)
    with pytest.raises(InvalidProducerEpoch):
        log.append_marker(1, 2, committed=True, coordinator_epoch=5, leader_epoch=0, now_ms=NOW)
    writer.commit()
    with pytest.raises(TransactionCoordinatorFenced):
        writer.end(True, coordinator_epoch=4)
    writer.end(True, coordinator_epoch=6)
    assert log.producers.producers[1].coordinator_epoch == 6
    assert log.end_offset == 3


def test_a_markers_newer_epoch_fences_the_producer(log: Log) -> None:
    writer = Writer(log, 1, epoch=3)
    writer.write(A)
    log.append_marker(1, 4, committed=False, coordinator_epoch=0, leader_epoch=0, now_ms=NOW)
    assert log.last_stable_offset(log.end_offset) == 2
    assert not log.needs_verification(read_header(writer.batch(B))), "there is nothing to ask: it is refused"
    with pytest.raises(InvalidProducerEpoch):
        writer.write(B)
    writer.epoch, writer.sequence = 4, 1
    with pytest.raises(OutOfOrderSequence):
        writer.write(B)
    writer.sequence = 0
    assert writer.write(B).base_offset == 2


def test_with_an_epoch_a_transaction_a_late_marker_ends_nothing(log: Log) -> None:
    writer = Writer(log, 1, epoch=3)
    writer.write(A)

    def mark(epoch: int) -> None:
        log.append_marker(
            1, epoch, committed=True, coordinator_epoch=0, leader_epoch=0, now_ms=NOW, transaction_version=2
        )

    with pytest.raises(InvalidProducerEpoch):
        mark(3)
    mark(4)
    mark(4)  # its answer was lost: written again, to no effect
    writer.epoch, writer.sequence = 4, 0
    writer.write(B)
    with pytest.raises(InvalidProducerEpoch):
        mark(4)
    assert log.producers.transactions.open == {1: 3}


def test_a_marker_without_a_transaction_is_written_and_aborts_nothing(log: Log) -> None:
    Writer(log, 1).abort()
    assert (log.end_offset, log.last_stable_offset(1), txn_index(log)) == (1, 1, [])
    assert log.producers.producers[1].epoch == 0


# -- verification ------------------------------------------------------------------------------------------------------


def test_only_the_first_batch_of_a_transaction_needs_the_coordinators_word(log: Log) -> None:
    writer = Writer(log, 1)
    first = writer.batch(A)
    assert log.needs_verification(read_header(first))
    with pytest.raises(InvalidTxnState):
        log.append(first, leader_epoch=0, now_ms=NOW)
    assert log.end_offset == 0
    writer.write(A)
    assert not log.needs_verification(read_header(writer.batch(B)))
    writer.write(B)
    writer.commit()
    assert log.needs_verification(read_header(writer.batch(B)))


def test_a_retry_needs_no_word_because_it_writes_nothing(log: Log) -> None:
    writer = Writer(log, 1)
    retry = writer.batch(A)
    writer.write(A)
    writer.commit()
    assert not log.needs_verification(read_header(retry))
    assert log.append(retry, leader_epoch=0, now_ms=NOW) == (0, 0, -1, True)


def test_a_late_word_does_not_let_a_write_into_the_next_transaction(log: Log) -> None:
    """Verified, then aborted, then verified for another transaction: the first word is worth nothing."""
    writer = Writer(log, 1)
    delayed = writer.batch(A)
    late = log.begin_verification(read_header(delayed))
    writer.abort()
    with pytest.raises(InvalidTxnState):
        log.append(bytearray(delayed), leader_epoch=0, now_ms=NOW, verification=late)
    fresh = log.begin_verification(read_header(delayed))
    with pytest.raises(InvalidTxnState):
        log.append(bytearray(delayed), leader_epoch=0, now_ms=NOW, verification=late)
    assert log.append(bytearray(delayed), leader_epoch=0, now_ms=NOW, verification=fresh).base_offset == 1


def test_of_batches_verified_side_by_side_the_first_goes_first(log: Log) -> None:
    writer = Writer(log, 1)
    first = writer.batch(A)
    writer.sequence = 1
    second = writer.batch(B)
    word = log.begin_verification(read_header(second))
    assert log.begin_verification(read_header(first)) is word
    with pytest.raises(OutOfOrderSequence):
        log.append(second, leader_epoch=0, now_ms=NOW, verification=word)
    log.append(first, leader_epoch=0, now_ms=NOW, verification=word)
    log.append(second, leader_epoch=0, now_ms=NOW, verification=word)
    assert log.end_offset == 2


def test_with_an_epoch_a_transaction_an_unknown_producer_begins_at_zero(log: Log) -> None:
    writer = Writer(log, 1, sequence=4)
    batch = writer.batch(A)
    word = log.begin_verification(read_header(batch), every_epoch_is_new=True)
    with pytest.raises(OutOfOrderSequence):
        log.append(batch, leader_epoch=0, now_ms=NOW, verification=word)


def test_no_plain_batch_of_a_producer_inside_its_transaction(log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    with pytest.raises(InvalidTxnState):
        writer.write(B, transactional=False)
    writer.commit()
    writer.write(B, transactional=False)
    append(log, b"nobody's")
    assert log.end_offset == 4


def test_a_coordinators_own_batches_have_no_sequence(log: Log) -> None:
    def batch(epoch: int) -> bytearray:
        return bytearray(
            build_batch([Record(0, NOW, b"k", b"v")], producer_id=1, producer_epoch=epoch, attributes=TRANSACTIONAL)
        )

    with pytest.raises(InvalidRecord):
        log.append(batch(1), leader_epoch=0, now_ms=NOW)
    word = log.begin_verification(read_header(batch(1)))
    log.append(batch(1), leader_epoch=0, now_ms=NOW, from_coordinator=True, verification=word)
    log.append(batch(1), leader_epoch=0, now_ms=NOW, from_coordinator=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append(batch(0), leader_epoch=0, now_ms=NOW, from_coordinator=True)
    assert log.producers.transactions.open == {1: 0}


# -- the last stable offset and what was aborted -----------------------------------------------------------------------


def test_the_oldest_open_transaction_holds_readers_back_until_its_marker_is_visible(log: Log) -> None:
    one, two = Writer(log, 1), Writer(log, 2)
    append(log, b"plain")
    one.write(A)
    two.write(B)
    assert log.last_stable_offset(3) == 1
    two.commit()
    assert log.last_stable_offset(4) == 1
    one.abort()
    assert log.last_stable_offset(4) == 1, "its marker is at 4, which nobody sees yet"
    assert log.last_stable_offset(5) == 5
    assert log.aborted_transactions(0, 5) == [(1, 1)]
    assert txn_index(log) == [(1, 1, 4, 5)]
    assert read_committed(log) == [(0, b"k0", b"plain"), (2, *B)]


def test_deleting_records_lets_readers_past_what_is_gone(log: Log) -> None:
    Writer(log, 1).write(A, A, A)
    log.advance_start_offset(2)
    assert log.last_stable_offset(3) == 2


def test_the_aborted_list_is_bounded_by_what_was_read(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(index_interval_bytes=0))
    writer = Writer(log, 1)
    for _ in range(20):
        writer.write(A)
        writer.abort()
    piece = log.read(10, 300, upper=log.end_offset)
    assert log.aborted_in(10, piece) in ([(1, 10), (1, 12)], [(1, 10), (1, 12), (1, 14)])
    assert log.aborted_transactions(11, 12) == [(1, 10)]
    assert log.aborted_transactions(0, 40) == [(1, first) for first in range(0, 40, 2)]


def test_an_aborted_transaction_over_several_segments_is_found_from_each(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    one, two = Writer(log, 1), Writer(log, 2)
    one.write(A)
    two.write(A)
    two.abort()
    log.roll(NOW)
    append(log, b"between")
    log.roll(NOW)
    one.write(B)
    one.abort()
    assert log.aborted_transactions(0, 1) == [(1, 0)]
    assert log.aborted_transactions(0, 3) == [(2, 1), (1, 0)]
    assert log.aborted_transactions(3, 4) == [(1, 0)]
    assert read_committed(log) == [(3, b"k0", b"between")]


def test_retention_waits_for_an_open_transaction(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(retention_ms=1))
    append(log, b"old")
    log.roll(NOW)
    writer = Writer(log, 1)
    writer.write(A)
    log.roll(NOW)
    writer.write(B)
    late = NOW + 10_000
    assert [segment.base_offset for segment in log.expire(late, log.end_offset)] == [0]
    assert log.expire(late, log.end_offset) == []
    writer.commit()
    assert [segment.base_offset for segment in log.expire(late, log.end_offset)] == [1, 2]


def test_a_producer_with_an_open_transaction_is_never_forgotten(log: Log) -> None:
    one, two = Writer(log, 1), Writer(log, 2)
    one.write(A)
    two.write(A)
    two.commit()
    assert log.expire_producers(NOW + 100, 1) == 1
    assert list(log.producers.producers) == [1]


def test_going_on_elsewhere_leaves_no_transaction_open_whose_marker_cannot_come(log: Log, disk: SimDisk) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    log.roll(NOW)  # with a snapshot that knows of the open transaction
    writer.write(B)
    log.restart_at(10, NOW)
    assert not log.producers.transactions.open
    log.flush()
    log.abandon("killed")
    again = open_log(disk, DIRECTORY, recovery_point=0)
    assert not again.producers.transactions.open
    assert again.last_stable_offset(again.end_offset) == again.end_offset == 10
