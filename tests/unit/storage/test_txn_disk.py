"""Transactions on disk: the index of what was aborted, and what restarts, lost files and power losses leave of it."""

import errno
from contextlib import suppress
from random import Random

import pytest
from batches import NOW, append, create_log, open_log
from sim_disk import PowerLost, SimDisk
from txn_writer import Writer, read_committed

from tidelog.errors import CorruptMessage, StorageOffline
from tidelog.storage.log import Log
from tidelog.storage.recovery import verify
from tidelog.storage.transaction_index import TXN_ENTRY_SIZE, AbortedTransaction, TransactionIndex

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


def test_the_index_is_kafkas_to_the_byte(disk: SimDisk, log: Log) -> None:
    writer = Writer(log, 258)
    append(log, b"plain")
    writer.write(A, B)
    writer.abort()
    data = disk.read_all(f"{DIRECTORY}/{0:020d}.txnindex")
    assert data.hex() == "0000" + f"{258:016x}{1:016x}{3:016x}{4:016x}"
    assert len(data) == TXN_ENTRY_SIZE == 34


def test_a_marker_that_cannot_be_written_aborts_nothing(disk: SimDisk, log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    for operation in ("create", "write"):
        disk.fail_on[operation] = errno.ENOSPC
        with pytest.raises(StorageOffline):
            writer.abort()
        assert (log.end_offset, txn_index(log), log.last_stable_offset(1)) == (1, [], 0)
    writer.abort()
    assert txn_index(log) == [(1, 0, 1, 2)]
    log.close()
    assert txn_index(open_log(disk, DIRECTORY, recovery_point=2, clean=True)) == [(1, 0, 1, 2)]


def test_a_truncated_marker_leaves_its_transaction_open(log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    log.truncate_to(1)
    assert (txn_index(log), log.last_stable_offset(1)) == ([], 0)
    writer.commit()
    assert read_committed(log) == [(0, *A)]


def test_followers_learn_what_the_leader_knows(disk: SimDisk, log: Log) -> None:
    one, two = Writer(log, 1, coordinator_epoch=4), Writer(log, 2)
    one.write(A)
    two.write(B)
    one.abort()
    follower = create_log(disk, "/data/orders-1")
    piece = log.read(0, 1 << 16, upper=3)
    follower.append_as_follower(piece.file.read(piece.position, piece.length))
    assert txn_index(follower) == txn_index(log) == [(1, 0, 2, 1)]
    assert follower.last_stable_offset(3) == 1
    assert follower.producers.producers[1].coordinator_epoch == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", ["nothing", "snapshot", "txnindex", "both"])
def test_restarts_keep_transactions(disk: SimDisk, log: Log, clean: bool, lost: str) -> None:
    one, two, three = Writer(log, 1), Writer(log, 2, coordinator_epoch=3), Writer(log, 3)
    for end in (one.commit, one.abort):
        one.write(A)
        end()
    two.write(A)
    three.write(B)
    log.roll(NOW)
    two.abort()
    log.flush()
    if clean:
        log.close()
    for name in disk.listdir(DIRECTORY):
        if name.rpartition(".")[2] in ({"snapshot", "txnindex"} if lost == "both" else {lost}):
            disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(disk, DIRECTORY, recovery_point=log.flushed_offset, clean=clean)
    assert txn_index(again) == [(1, 2, 3, 4), (2, 4, 6, 5)]
    assert again.last_stable_offset(7) == 5
    assert again.producers.producers[2].coordinator_epoch == 3
    assert again.producers.transactions.open == {3: 5}
    assert read_committed(again) == [(0, *A)]


def test_a_torn_index_is_made_again(disk: SimDisk, log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    log.roll(NOW)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    for damage in (b"\x00", bytes(TXN_ENTRY_SIZE)):
        before = disk.read_all(path)
        disk.open(path).append(damage)
        again = open_log(disk, DIRECTORY, recovery_point=2, clean=True)
        assert again.recovery.rebuilt == [path]
        assert disk.read_all(path) == before


@pytest.mark.parametrize("seed", range(10))
def test_an_index_made_again_survives_a_power_loss(disk: SimDisk, log: Log, seed: int) -> None:
    """Its segment lies before the recovery point, so nothing will ever read it again to see that it is wrong."""
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    log.roll(NOW)
    append(log, b"plain")
    log.close()
    disk.remove(f"{DIRECTORY}/{0:020d}.txnindex")
    open_log(disk, DIRECTORY, recovery_point=3, clean=True)
    disk.crash(Random(seed))
    assert txn_index(open_log(disk, DIRECTORY, recovery_point=3)) == [(1, 0, 1, 2)]


def test_an_index_lost_while_running_refuses_rather_than_shows_aborted_records(disk: SimDisk, log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    log.segments[0].release()
    disk.remove(f"{DIRECTORY}/{0:020d}.txnindex")
    with pytest.raises(CorruptMessage):
        log.aborted_transactions(0, 2)


@pytest.mark.parametrize("crash_after", range(16))
@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_during_recovery_takes_no_entry_that_was_synced_before_it(seed: int, crash_after: int) -> None:
    """The restart point of before the first crash still vouches for the part of the index that lies below it."""
    disk = SimDisk()
    log = create_log(disk, DIRECTORY)
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    log.flush()
    log.restart_point_bytes = 1
    point = log.begin_restart_point()
    assert point is not None
    point.run()
    log.complete_restart_point(point)
    disk.crash_after = crash_after
    with suppress(PowerLost):
        open_log(disk, DIRECTORY)  # reads it all again, and makes the index anew
    disk.crash(Random(seed))
    assert txn_index(open_log(disk, DIRECTORY, recovery_point=2)) == [(1, 0, 1, 2)]


def test_entries_behind_a_restart_point_are_read_again(disk: SimDisk) -> None:
    index = TransactionIndex(disk, "/data/x.txnindex")
    for marker in (3, 6, 9):
        index.append(AbortedTransaction(1, marker - 1, marker, marker + 1))
    disk.open(index.path).append(b"torn")
    known = TransactionIndex.load_below(disk, index.path, 9)
    assert [entry.last_offset for entry in known] == [3, 6]
    known.write()
    assert len(disk.read_all(index.path)) == 2 * TXN_ENTRY_SIZE


def test_verify_holds_the_index_against_the_markers(disk: SimDisk, log: Log) -> None:
    writer = Writer(log, 1)
    writer.write(A)
    writer.abort()
    writer.write(B)
    writer.commit()
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    assert verify(disk, DIRECTORY).sound
    truth = disk.read_all(path)
    for wrong in (
        truth[:9] + b"\x02" + truth[10:],  # another producer
        truth[:25] + b"\x03" + truth[26:],  # the marker that commits
        truth[:25] + b"\x09" + truth[26:],  # no marker at all
        truth[:-1],
    ):
        disk.write_atomic(path, wrong)
        (problem,) = verify(disk, DIRECTORY).problems
        assert problem.file == f"{0:020d}.txnindex"
