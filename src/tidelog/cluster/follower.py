"""A follower's side of a partition: its log becomes the leader's, batch by batch.

Before it takes anything it makes sure that what it has is the leader's: it says which epoch its last record is of, and
a leader whose history differs answers where they part. Cutting there, and never at the high watermark, is what keeps
two failovers in a row from losing or doubling records (KIP-101, KIP-279).
"""

from typing import NamedTuple

from tidelog.cluster.replica import Replica


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


def take(replica: Replica, records: bytes | memoryview, leader_epoch: int, now_ms: int) -> bool:
    """Append what the leader of that epoch sent. False if it is not about what we are waiting for any more."""
    if replica.is_leader or replica.leader_epoch != leader_epoch or not records:
        return False
    replica.log.append_as_follower(records, now_ms=now_ms)
    return True


def hear(replica: Replica, leader_epoch: int, high_watermark: int, log_start_offset: int) -> None:
    """What the leader says about its own log. Readers may see what is safe there and here."""
    if replica.is_leader or replica.leader_epoch != leader_epoch:
        return
    log = replica.log
    if log_start_offset > log.start_offset:
        replica.advance_start_offset(min(log_start_offset, log.end_offset))
    replica.raise_watermark(min(high_watermark, replica.safe_offset))


def part(replica: Replica, leader_epoch: int, diverging_epoch: int, diverging_end: int) -> int:
    """The histories differ: everything after the last thing in common goes. Returns the new end."""
    if replica.is_leader or replica.leader_epoch != leader_epoch:
        return replica.log.end_offset
    log = replica.log
    epoch, end = log.epochs.end_offset_for(diverging_epoch, log.end_offset)
    if epoch == diverging_epoch:
        end = min(end, diverging_end)
    elif epoch < 0:
        end = min(diverging_end, log.end_offset)
    cut(replica, end)
    return log.end_offset


def cut(replica: Replica, end: int) -> None:
    log = replica.log
    log.truncate_to(max(end, log.start_offset))
    replica.lower_watermark(log.end_offset)


def begin_anew(replica: Replica, leader_epoch: int, leader_start: int, leader_end: int, now_ms: int) -> None:
    """The leader has nothing at the offset that was asked for: it begins later, or ends earlier."""
    if replica.is_leader or replica.leader_epoch != leader_epoch:
        return
    log = replica.log
    if leader_end < log.end_offset:
        cut(replica, leader_end)
    if log.end_offset < leader_start:
        log.restart_at(leader_start, now_ms)
        replica.lower_watermark(leader_start)
        replica.raise_watermark(leader_start)
