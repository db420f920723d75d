"""Kafka's bytes in `__transaction_state`, written out by hand from its message tables."""

import pytest
from msgspec.structs import replace
from txn_sim import P0, P1

from tidelog.errors import MalformedMessage
from tidelog.ids import TopicPartition
from tidelog.transactions.records import TransactionRecord, decode_record, encode_record
from tidelog.transactions.state import NEXT, Event, InvalidTransactionState, State, after
from tidelog.transactions.transaction import Transaction

KEY = bytes.fromhex("0000 0008") + b"orders-1"

EMPTY = Transaction(
    transactional_id="orders-1",
    producer_id=1000,
    producer_epoch=0,
    previous_producer_id=1000,
    timeout_ms=60_000,
    update_ms=1_700_000_000_000,
)
EMPTY_BYTES = bytes.fromhex(
    "0001"  # version
    "00000000000003e8"  # producer id
    "0000"  # epoch
    "0000ea60"  # timeout
    "00"  # Empty
    "00"  # no partitions: null
    "0000018bcfe56800"  # last update
    "ffffffffffffffff"  # not started
    "01"  # one tagged field
    "00 08 00000000000003e8"  # previous producer id
)

PREPARED = Transaction(
    transactional_id="orders-1",
    producer_id=1000,
    producer_epoch=32767,
    previous_producer_id=1000,
    next_producer_id=1001,
    timeout_ms=60_000,
    update_ms=1_700_000_000_001,
    start_ms=1_700_000_000_000,
    state=State.PREPARE_COMMIT,
    partitions=frozenset({P1, P0, TopicPartition("a", 7)}),
    client_version=2,
)
PREPARED_BYTES = bytes.fromhex(
    "0001 00000000000003e8 7fff 0000ea60"
    "02"  # PrepareCommit
    "03"  # two topics
    "02 61 02 00000007 00"
    "04 6f7574 03 00000000 00000001 00"
    "0000018bcfe56801 0000018bcfe56800"
    "03"
    "00 08 00000000000003e8"
    "01 08 00000000000003e9"
    "02 02 0002"
)

VERSION_0_BYTES = bytes.fromhex(
    "0000 00000000000003e8 0003 0000ea60"
    "01"  # Ongoing
    "00000001 0003 6f7574 00000002 00000000 00000001"
    "0000018bcfe56801 0000018bcfe56800"
)


@pytest.mark.parametrize(("transaction", "value"), [(EMPTY, EMPTY_BYTES), (PREPARED, PREPARED_BYTES)])
def test_as_kafka_writes_it(transaction: Transaction, value: bytes) -> None:
    assert encode_record(transaction.record()) == (KEY, value)
    record = decode_record(KEY, value)
    assert record is not None
    assert record.value is not None
    assert Transaction.restored(record.transactional_id, record.value) == transaction


def test_the_version_of_brokers_before_kip_890() -> None:
    record = decode_record(KEY, VERSION_0_BYTES)
    assert record is not None
    assert record.value is not None
    assert Transaction.restored("orders-1", record.value) == Transaction(
        transactional_id="orders-1",
        producer_id=1000,
        producer_epoch=3,
        timeout_ms=60_000,
        update_ms=1_700_000_000_001,
        start_ms=1_700_000_000_000,
        state=State.ONGOING,
        partitions=frozenset({P0, P1}),
    )


def test_a_tagged_field_of_the_future_is_read_over() -> None:
    value = EMPTY_BYTES.replace(b"\x01\x00\x08", b"\x02\x00\x08") + bytes.fromhex("03 02 0005")
    assert decode_record(KEY, value) == TransactionRecord("orders-1", EMPTY.record().value)


def test_deletion_and_what_is_not_ours() -> None:
    assert encode_record(TransactionRecord("orders-1", None)) == (KEY, None)
    assert decode_record(KEY, None) == TransactionRecord("orders-1", None)
    assert decode_record(b"\x00\x01" + KEY[2:], b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\x00", None), (KEY[:-1], None), (KEY, b""), (KEY, b"\x00"), (KEY, EMPTY_BYTES[:-1])],
)
def test_torn_records(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


def test_an_unknown_state_is_not_guessed_at() -> None:
    value = replace(EMPTY.record().value, transaction_status=9)
    with pytest.raises(MalformedMessage, match="unknown state 9"):
        Transaction.restored("orders-1", value)


def test_a_fence_that_was_not_carried_out() -> None:
    value = replace(PREPARED.record().value, transaction_status=State.PREPARE_EPOCH_FENCE.number)
    assert Transaction.restored("orders-1", value).state is State.ONGOING


def test_the_table_has_kafkas_transitions_and_no_others() -> None:
    rest = {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    before = {state: {here for (here, _), there in NEXT.items() if there is state} for state in State}
    assert before == {
        State.EMPTY: rest,
        State.ONGOING: {State.ONGOING, *rest},
        State.PREPARE_COMMIT: {State.ONGOING},
        State.PREPARE_ABORT: {State.ONGOING, State.PREPARE_EPOCH_FENCE, *rest},
        State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
        State.COMPLETE_ABORT: {State.PREPARE_ABORT},
        State.DEAD: rest,
        State.PREPARE_EPOCH_FENCE: {State.ONGOING},
    }
    with pytest.raises(InvalidTransactionState, match="PrepareCommit cannot be aborted"):
        after(State.PREPARE_COMMIT, Event.ABORTED)
