"""A follower's side of a partition: its log becomes the leader's, batch by batch.

Before it takes anything it makes sure that what it has is the leader's: it says which epoch its last record is of, and
a leader whose history differs answers where they part. Cutting there, and never at the high watermark, is what keeps
two failovers in a row from losing or doubling records (KIP-101, KIP-279).
"""

from typing import NamedTuple

from tidelog.cluster.replica import Replica
from tidelog.wire.record_batch import HEADER_SIZE, read_header


class Wish(NamedTuple):
    """What to ask the leader for."""

    fetch_offset: int
    """All before it is safe here, so that asking for it says so."""
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


def wish_of(replica: Replica) -> Wish:
    log = replica.log
    return Wish(
        replica.safe_offset, log.epochs.epoch_of(replica.safe_offset - 1), replica.leader_epoch, log.start_offset
    )


def is_current(replica: Replica, wish: Wish) -> bool:
    """Whether an answer to this wish says something about the log as it is now. The offset and the epoch of the record
    before it name everything before, so an answer that comes late or twice is told from one to the same question."""
    return (
        not replica.is_leader
        and replica.log.end_offset == wish.fetch_offset == replica.safe_offset
        and wish_of(replica)[:3] == wish[:3]
    )


def take(replica: Replica, records: bytes | bytearray | memoryview, wish: Wish, now_ms: int) -> bool:
    """What the leader has at the wish's offset, nothing included: then the log is the leader's so far. True if
    something was appended; False also if the answer is not about what we are waiting for any more."""
    if not is_current(replica, wish):
        return False
    log = replica.log
    if len(records) >= HEADER_SIZE:
        start = log.end_offset
        first = read_header(records).base_offset
        if first < start and log.size_bytes == 0:
            # The leader's log begins inside a batch, and only whole batches are sent.
            log.restart_at(first, now_ms)
        log.append_as_follower(records, now_ms=now_ms)
        if first < start:
            log.advance_start_offset(start)
    replica.agreed_offset = log.end_offset
    return log.end_offset > wish.fetch_offset


def hear(replica: Replica, leader_epoch: int, high_watermark: int, log_start_offset: int) -> None:
    """What the leader says about its own log. Readers may see what is safe there and here, as far as the two logs are
    known to be the same."""
    if replica.is_leader or replica.leader_epoch != leader_epoch:
        return
    log = replica.log
    if log_start_offset > log.start_offset:
        replica.advance_start_offset(min(log_start_offset, log.end_offset))
    replica.raise_watermark(min(high_watermark, replica.safe_offset, replica.agreed_offset))
    if replica.high_watermark >= high_watermark:
        replica.missing_before = 0  # all that readers see is here, whatever once was


def part(replica: Replica, wish: Wish, diverging_epoch: int, diverging_end: int) -> int:
    """The histories differ: everything after the last thing in common goes. Returns the new end. As after every cut, a
    checkpoint of recovery points must be written before anything is taken."""
    log = replica.log
    if not is_current(replica, wish):
        return log.end_offset
    epoch, end = log.epochs.end_offset_for(diverging_epoch, log.end_offset)
    if epoch == diverging_epoch:
        end = min(end, diverging_end)
    elif epoch < 0:
        end = min(diverging_end, log.end_offset)
    cut(replica, end)
    return log.end_offset


def cut(replica: Replica, end: int) -> None:
    """Also before its start, if that was moved meanwhile by a leader whose history is not this one's."""
    log = replica.log
    log.truncate_to(end)
    replica.lower_watermark(log.end_offset)


def begin_anew(replica: Replica, wish: Wish, leader_start: int, leader_end: int, now_ms: int) -> None:
    """The leader has nothing at the offset that was asked for: it begins later, or ends earlier."""
    if not is_current(replica, wish):
        return
    log = replica.log
    if leader_end < log.end_offset:
        cut(replica, leader_end)
    if not leader_start <= log.end_offset <= leader_end:
        log.restart_at(leader_start, now_ms)
        replica.lower_watermark(leader_start)
        replica.raise_watermark(leader_start)
