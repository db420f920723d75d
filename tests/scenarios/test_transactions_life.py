"""Transactions over the wire, where they meet the rest of the broker: topics, groups, retention, administration."""

import time
from pathlib import Path

import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.record_batch import CONTROL, iter_batches

from . import kit
from .transactions import (
    COMMITTED,
    FIRST,
    GROUP,
    SECOND,
    Protocol,
    Txn,
    committed_offset,
    find_coordinator,
    hold_markers,
    let_markers_go,
    listed,
    producers_of,
    read_committed,
    stable_offset,
    state_of,
    until_over,
    write_marker,
)

both = pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
OK = ErrorCode.NONE


def begun(connection: Connection, name: str, protocol: Protocol, partitions: int = 1, **config: object) -> Txn:
    """A producer, and a topic of the same name."""
    kit.create_topic(connection, name, partitions, **config)
    txn = Txn(connection, name, protocol)
    assert txn.init() == OK
    return txn


@both
def test_nothing_was_written(connection: Connection, protocol: Protocol) -> None:
    txn = begun(connection, f"empty-{protocol.end}", protocol)
    epoch = txn.epoch
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE
    assert txn.abort() == (OK if protocol.second else ErrorCode.INVALID_TXN_STATE)
    assert txn.epoch == epoch + protocol.second
    txn.write(txn.name, b"x")
    assert txn.commit() == OK


@both
def test_a_successor_waits_for_what_was_decided(connection: Connection, broker: Broker, protocol: Protocol) -> None:
    txn = begun(connection, f"taken-{protocol.end}", protocol)
    txn.write(txn.name, b"kept")
    hold_markers(connection, txn.name)
    assert txn.commit() == OK
    with kit.connect(broker) as other:
        successor = Txn(other, txn.name, protocol)
        began = time.monotonic()
        request = InitProducerIdRequest(transactional_id=txn.name, transaction_timeout_ms=60_000)
        answer = other.call(request, protocol.init)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert time.monotonic() - began < 5
        let_markers_go(connection, txn.name)
        assert successor.init() == OK
        assert successor.epoch > txn.epoch
    assert read_committed(connection, txn.name) == [b"kept"]
    fenced = txn.produce(txn.name, b"late")
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@both
def test_a_silent_transaction_is_aborted(connection: Connection, protocol: Protocol) -> None:
    name = f"silent-{protocol.end}"
    kit.create_topic(connection, name)
    txn = Txn(connection, name, protocol)
    assert txn.init(timeout_ms=2000) == OK
    kit.store(connection, name, b"before")
    txn.write(name, b"lost")
    kit.store(connection, name, b"behind")
    assert stable_offset(connection, name) == 1
    assert read_committed(connection, name) == [b"before"]
    kit.eventually(lambda: stable_offset(connection, name) == 4, "the end of a silent transaction")
    assert read_committed(connection, name) == [b"before", b"behind"]
    assert txn.produce(name, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    code = txn.commit()
    assert code == (ErrorCode.TRANSACTION_ABORTABLE if protocol.second else ErrorCode.PRODUCER_FENCED)
    if protocol.second:
        assert txn.abort() == OK
    else:
        assert txn.init(keep=True) == OK
    txn.write(name, b"again")
    assert txn.commit() == OK
    until_over(connection, name)
    assert read_committed(connection, name)[-1] == b"again"


@both
def test_a_topic_goes_in_the_middle(connection: Connection, protocol: Protocol) -> None:
    """What is left of the transaction is committed; a new topic of that name has nothing to do with it."""
    txn = begun(connection, f"stays-{protocol.end}", protocol)
    gone = f"goes-{protocol.end}"
    kit.create_topic(connection, gone)
    txn.write(gone, b"deleted")
    txn.write(txn.name, b"stays")
    kit.delete_topic(connection, gone)
    assert txn.commit() == OK
    until_over(connection, txn.name)
    assert read_committed(connection, txn.name) == [b"stays"]

    kit.create_topic(connection, gone)
    txn.sequences.pop((gone, 0), None)
    txn.write(gone, b"new")
    kit.delete_topic(connection, gone)
    kit.create_topic(connection, gone)
    txn.write(txn.name, b"too")
    assert txn.commit() == OK
    until_over(connection, txn.name)
    assert read_committed(connection, gone) == []
    assert stable_offset(connection, gone) == kit.offset_at(connection, gone, kit.LATEST)
    assert read_committed(connection, txn.name) == [b"stays", b"too"]


def test_a_topic_goes_while_its_markers_are_held_back(connection: Connection) -> None:
    txn = begun(connection, "held-and-deleted", SECOND)
    txn.write(txn.name, b"x")
    hold_markers(connection, txn.name)
    assert txn.commit() == OK
    kit.delete_topic(connection, txn.name)
    until_over(connection, txn.name)


def test_a_hanging_transaction_is_ended_by_hand(connection: Connection) -> None:
    """As `kafka-transactions.sh abort` does: with what DescribeProducers tells."""
    txn = begun(connection, "hanging", FIRST, 2)
    txn.write(txn.name, b"hangs")
    (state,) = producers_of(connection, txn.name)
    assert (state.producer_id, state.current_txn_start_offset) == (txn.producer_id, 0)
    place = (txn.name, 0)
    assert write_marker(connection, txn.producer_id, txn.epoch, False, place, ("nowhere", 0)) == {
        place: OK,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert stable_offset(connection, txn.name) == 2
    assert read_committed(connection, txn.name) == []
    assert producers_of(connection, txn.name)[0].current_txn_start_offset == -1
    # Its producer goes on where it was cut off: what it writes now begins anew there.
    txn.write(txn.name, b"on")
    assert stable_offset(connection, txn.name) == 2
    assert txn.commit() == OK
    until_over(connection, txn.name)
    assert read_committed(connection, txn.name) == [b"on"]


def test_markers_of_an_older_epoch_are_refused(connection: Connection) -> None:
    txn = begun(connection, "old-markers", SECOND)
    txn.write(txn.name, b"one")
    assert txn.commit() == OK
    until_over(connection, txn.name)
    txn.write(txn.name, b"two")
    place = (txn.name, 0)
    stale = write_marker(connection, txn.producer_id, txn.epoch - 1, False, place)
    assert stale == {place: ErrorCode.INVALID_PRODUCER_EPOCH}
    same = write_marker(connection, txn.producer_id, txn.epoch, False, place, version=2)
    assert same == {place: ErrorCode.INVALID_PRODUCER_EPOCH}, "it belongs to the transaction before"
    assert txn.commit() == OK
    until_over(connection, txn.name)
    assert read_committed(connection, txn.name) == [b"one", b"two"]


def test_lists(connection: Connection) -> None:
    running = begun(connection, "listed-running", FIRST)
    running.write(running.name, b"x")
    over = begun(connection, "listed-over", SECOND)
    over.write(over.name, b"x")
    assert over.commit() == OK
    until_over(connection, over.name)

    def names(**filters: object) -> set[str]:
        answer = listed(connection, **filters)
        assert answer.error_code == 0
        found = {each.transactional_id for each in answer.transaction_states}
        return {name for name in found if name.startswith("listed-")}

    assert names() == {"listed-running", "listed-over"}
    assert names(state_filters=("Ongoing",)) == {"listed-running"}
    assert names(state_filters=("CompleteCommit",)) == {"listed-over"}
    assert names(producer_id_filters=(running.producer_id,)) == {"listed-running"}
    assert names(duration_filter=60_000) == set()
    kit.eventually(lambda: names(duration_filter=5) == {"listed-running"}, "a transaction of 5 ms")
    assert names(transactional_id_pattern="listed-o.*") == {"listed-over"}
    assert names(transactional_id_pattern="ver") == set(), "the whole name must match"
    assert listed(connection, state_filters=("Ongoing", "Lost")).unknown_state_filters == ("Lost",)
    assert listed(connection, transactional_id_pattern="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    described = state_of(connection, "listed-running")
    assert described.transaction_timeout_ms == 60_000
    assert [(each.topic, each.partitions) for each in described.topics] == [("listed-running", (0,))]
    assert state_of(connection, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert running.abort() == OK


@both
def test_offsets_are_pending_until_the_end(connection: Connection, protocol: Protocol) -> None:
    txn = begun(connection, f"offsets-{protocol.end}", protocol)
    group = f"group-{protocol.end}"
    find_coordinator(connection, group, GROUP)
    for number, committed in ((5, True), (9, False)):
        txn.write_offset(group, txn.name, number)
        assert committed_offset(connection, group, txn.name) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        before = committed_offset(connection, group, txn.name, stable=False)
        assert before == ((-1, OK) if committed else (5, OK))
        assert txn.end(committed) == OK
        until_over(connection, txn.name)
        assert committed_offset(connection, group, txn.name) == (5, OK)
    assert txn.add_offsets(group) == OK
    assert txn.commit_offset(group, txn.name, 7, generation_id=3, member_id="gone") == ErrorCode.UNKNOWN_MEMBER_ID
    assert txn.commit_offset(group, "nowhere", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.abort() == OK


def test_offsets_that_were_not_added(connection: Connection) -> None:
    txn = begun(connection, "not-added", FIRST)
    find_coordinator(connection, "not-added-group", GROUP)
    assert txn.commit_offset("not-added-group", txn.name, 1) == ErrorCode.INVALID_TXN_STATE
    assert committed_offset(connection, "not-added-group", txn.name) == (-1, OK)


def test_retention_leaves_what_is_undecided(tmp_path: Path) -> None:
    settings = {"log_retention_check_interval_ms": 50, "log_cleaner_backoff_ms": 50}
    with kit.broker_at(tmp_path, **settings) as connection:
        old = 1_000_000
        txn = begun(connection, "expires", FIRST, segment_bytes=300, retention_ms=60_000)
        kit.store(connection, txn.name, b"before", timestamp=old)
        txn.write(txn.name, b"open")
        for _ in range(6):
            kit.store(connection, txn.name, b"y" * 100, timestamp=old)
        time.sleep(0.4)
        assert kit.offset_at(connection, txn.name, kit.EARLIEST) <= 1, "what is open holds back what is behind it"
        assert stable_offset(connection, txn.name) == 1
        assert txn.commit() == OK
        until_over(connection, txn.name)
        assert b"open" in read_committed(connection, txn.name, start=1)


def test_two_hundred_partitions(connection: Connection) -> None:
    txn = begun(connection, "wide", SECOND, 200)
    for partition in range(200):
        txn.write("wide", b"%d" % partition, partition=partition)
    began = time.monotonic()
    assert txn.commit() == OK
    until_over(connection, "wide")
    assert time.monotonic() - began < 30
    for partition in (0, 77, 199):
        assert read_committed(connection, "wide", partition) == [b"%d" % partition]
        assert stable_offset(connection, "wide", partition) == 2


def test_aborted_ones_across_segments_and_restarts(tmp_path: Path) -> None:
    """Transactions that lie across each other, in segments of a few batches, read in small steps and again after a
    restart."""
    expected: list[bytes] = []
    with kit.broker_at(tmp_path) as connection:
        kit.create_topic(connection, "woven", segment_bytes=400)
        producers = [Txn(connection, f"woven-{i}", FIRST if i % 2 else SECOND) for i in range(3)]
        for txn in producers:
            assert txn.init() == OK
        kept: dict[int, bytes] = {}
        for turn in range(12):
            written = {}
            for i, txn in enumerate(producers):
                if (turn + i) % 4:
                    value = b"%d-%d" % (turn, i)
                    written[i] = (txn.write("woven", value), value)
            plain = kit.store(connection, "woven", b"plain %d" % turn)
            kept[plain] = b"plain %d" % turn
            for i, txn in enumerate(producers):
                committed = (turn * 7 + i) % 3 == 0
                if i in written:
                    assert txn.end(committed) == OK
                    if committed:
                        kept[written[i][0]] = written[i][1]
        until_over(connection, *(txn.name for txn in producers))
        expected = [kept[offset] for offset in sorted(kept)]
        assert read_committed(connection, "woven") == expected
        assert read_committed(connection, "woven", max_bytes=200) == expected
    with kit.broker_at(tmp_path) as connection:
        assert read_committed(connection, "woven") == expected
        assert read_committed(connection, "woven", max_bytes=200) == expected
        answer = kit.fetch(connection, "woven", 0, isolation_level=COMMITTED)
        assert answer.aborted_transactions
        assert any(header.attributes & CONTROL for header, _ in iter_batches(answer.records))


def test_an_unused_transactional_id_is_forgotten(tmp_path: Path) -> None:
    settings = {
        "transactional_id_expiration_ms": 200,
        "transaction_remove_expired_transaction_cleanup_interval_ms": 50,
    }
    with kit.broker_at(tmp_path, **settings) as connection:
        txn = begun(connection, "forgotten", FIRST)
        other = Txn(connection, "busy", FIRST)
        assert other.init() == OK
        other.write("forgotten", b"open")
        gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        kit.eventually(lambda: state_of(connection, "forgotten").error_code == gone, "the id is forgotten")
        assert state_of(connection, "busy").transaction_state == "Ongoing", "not while a transaction is open"
        assert txn.add("forgotten", 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        before = txn.producer_id
        assert txn.init() == OK
        assert txn.producer_id > before
        assert other.commit() == OK
    with kit.broker_at(tmp_path, **settings) as connection:
        assert read_committed(connection, "forgotten") == [b"open"]
