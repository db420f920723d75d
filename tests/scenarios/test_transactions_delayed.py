"""What arrives after its producer gave it up never touches a later transaction (invariant 28, KAFKA-17754)."""

from collections.abc import Iterator

import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker

from . import kit
from .transactions import FIRST, GROUP, SECOND, Protocol, Txn, committed_offset, find_coordinator, is_in, until_over

both = pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
OK = ErrorCode.NONE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def lines(broker: Broker) -> Iterator[tuple[Connection, Connection]]:
    """Two connections of one client: the one it gave up, and the one it turned to."""
    with kit.connect(broker) as old, kit.connect(broker) as new:
        yield old, new


def test_offsets_of_the_first_protocol(lines: tuple[Connection, Connection]) -> None:
    """The request has neither a sequence nor an epoch of its own: the connection is what tells."""
    old, new = lines
    kit.create_topic(new, "in")
    find_coordinator(new, "late-group", GROUP)
    txn = Txn(old, "late-offsets", FIRST)
    assert txn.init() == OK
    assert txn.add_offsets("late-group") == OK
    txn.connection = new
    assert txn.commit_offset("late-group", "in", 10) == OK
    assert txn.abort() == OK
    until_over(new, "late-offsets")

    assert txn.add_offsets("late-group") == OK
    assert txn.commit_offset("late-group", "in", 5) == OK
    txn.connection = old
    assert txn.commit_offset("late-group", "in", 10) == ErrorCode.INVALID_TXN_STATE
    txn.connection = new
    assert txn.commit() == OK
    until_over(new, "late-offsets")
    assert committed_offset(new, "late-group", "in") == (5, OK)


def test_an_older_epoch_is_called_so_by_whatever_connection(lines: tuple[Connection, Connection]) -> None:
    old, new = lines
    find_coordinator(new, "old-epoch-group", GROUP)
    zombie = Txn(old, "old-epoch", FIRST)
    owner = Txn(new, "old-epoch", FIRST)
    kit.create_topic(new, "old-epoch-in")
    assert zombie.init() == OK
    assert owner.init() == OK
    owner.write_offset("old-epoch-group", "old-epoch-in", 1)
    assert zombie.commit_offset("old-epoch-group", "old-epoch-in", 7) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert owner.commit() == OK
    until_over(new, "old-epoch")
    assert committed_offset(new, "old-epoch-group", "old-epoch-in") == (1, OK)


def test_an_addition_and_an_end_of_the_first_protocol(lines: tuple[Connection, Connection]) -> None:
    old, new = lines
    kit.create_topic(new, "late-add", 2)
    txn = Txn(old, "late-add", FIRST)
    assert txn.init() == OK
    assert txn.add("late-add", 0) == OK
    txn.connection = new
    assert txn.abort() == OK
    until_over(new, "late-add")
    txn.connection = old
    assert txn.add("late-add", 1) == ErrorCode.INVALID_TXN_STATE
    assert is_in(new, "late-add", "CompleteAbort")

    txn.connection = new
    txn.write("late-add", b"x")
    txn.connection = old
    assert txn.abort() == ErrorCode.INVALID_TXN_STATE
    assert is_in(new, "late-add", "Ongoing")
    txn.connection = new
    assert txn.commit() == OK


@both
def test_a_write(lines: tuple[Connection, Connection], protocol: Protocol) -> None:
    """Sent in a transaction that was aborted since. In the next one it is not written: not to a partition that is part
    of it, nor to one that is not."""
    old, new = lines
    name = f"late-write-{protocol.produce}"
    kit.create_topic(new, name, 2)
    txn = Txn(new, name, protocol)
    assert txn.init() == OK
    txn.write(name, b"retried", partition=0)
    txn.write(name, b"elsewhere", partition=1)
    late = Txn(old, name, protocol, txn.producer_id, txn.epoch)
    assert txn.abort() == OK
    until_over(new, name)
    refused = ErrorCode.INVALID_PRODUCER_EPOCH if protocol.second else OK  # recognised as the one it is a copy of
    assert late.produce(name, b"retried", partition=0).error_code == refused
    late.sequences[name, 1] = 1
    gone = ErrorCode.INVALID_PRODUCER_EPOCH if protocol.second else ErrorCode.TRANSACTION_ABORTABLE
    assert late.produce(name, b"never before", partition=1).error_code == gone
    txn.write(name, b"mine", partition=0)
    late.sequences[name, 0] = 0
    assert late.produce(name, b"retried", partition=0).error_code == refused
    assert txn.commit() == OK
    until_over(new, name)
    assert kit.values(kit.read_all(new, name))[-2:-1] == [b"mine"]
