"""A replica leads, follows, and leads again: what it may show and promise in each role."""

import errno
import sys
from pathlib import Path
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch, create_log
from sim_disk import SimDisk

from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.log import Log

DIRECTORY = "/data/orders-0"


def replica(config: TopicConfig | None = None, disk: SimDisk | None = None) -> Replica:
    log = create_log(disk or SimDisk(), DIRECTORY, config or TopicConfig())
    return Replica(log, UUID(int=1), -1, 0)


def lead(
    one: Replica,
    epoch: int = 0,
    *,
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    at: int = 0,
) -> None:
    one.lead(epoch, node_id=1, partition_epoch=version, replicas=replicas, isr=isr, monotonic_ms=at)


def write(one: Replica, *values: bytes, acks: int = -1, flush: bool = True) -> int:
    offset = one.append(batch(*values), acks=acks, now_ms=NOW).last_offset + 1
    if flush:
        one.log.flush()
        one.advance_watermark()
    return offset


def fetched(one: Replica, node: int, offset: int, *, epoch: int = 0, at: int = 0) -> None:
    one.follower_fetched(node, offset, epoch, at)


def refused(code: ErrorCode, call: object) -> None:
    with pytest.raises(KafkaError) as error:
        call()  # type: ignore[operator]
    assert error.value.code is code


def test_the_watermark_waits_for_everybody_in_sync_and_for_the_own_disk() -> None:
    one = replica()
    lead(one)
    write(one, b"a", b"b", flush=False)
    for node in (2, 3):
        fetched(one, node, 2)
    assert one.high_watermark == 0
    one.log.flush()
    one.advance_watermark()
    assert one.high_watermark == 2


def test_alone_what_is_safe_is_visible() -> None:
    one = replica()
    lead(one, replicas=(1,), isr=(1,))
    write(one, b"a")
    assert one.high_watermark == 1
    assert one.in_sync == 1


def test_each_epoch_asks_followers_anew() -> None:
    one = replica()
    lead(one)
    write(one, b"a")
    for node in (2, 3):
        fetched(one, node, 1)
    lead(one, 1, version=1)
    write(one, b"b")
    fetched(one, 2, 2)
    assert one.high_watermark == 1
    fetched(one, 3, 2)
    assert one.high_watermark == 2


def test_a_new_set_in_the_same_epoch_keeps_what_is_known() -> None:
    one = replica()
    lead(one)
    write(one, b"a")
    fetched(one, 2, 1)
    assert one.high_watermark == 0
    lead(one, version=1, isr=(1, 2))
    assert one.high_watermark == 1


def test_an_image_that_says_nothing_new_does_not_answer_what_was_asked_for() -> None:
    """The controller may still grant it; until then the one that wants to join holds the watermark back."""
    one = replica()
    lead(one, version=4, isr=(1, 2))
    write(one, b"a")
    assert one.followers is not None
    one.followers.asked = frozenset({1, 2, 3})
    for version in (4, 3):
        lead(one, version=version, isr=(1, 2))
        assert one.followers.asked == {1, 2, 3}
    fetched(one, 2, 1)
    assert one.high_watermark == 0
    lead(one, version=5, isr=(1, 2))
    assert one.followers.asked is None
    assert one.high_watermark == 1


def test_with_fewer_in_sync_than_the_minimum_nothing_is_taken_and_nothing_becomes_visible() -> None:
    one = replica(TopicConfig(min_insync_replicas=2))
    lead(one)
    write(one, b"a")
    lead(one, version=1, isr=(1,))
    assert one.high_watermark == 0
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: write(one, b"b"))
    write(one, b"b", acks=1)
    assert one.high_watermark == 0
    fetched(one, 2, 2)
    lead(one, version=2, isr=(1, 2))
    assert one.high_watermark == 2


def test_a_leader_whose_followers_are_silent_refuses_until_one_is_heard() -> None:
    one = replica(TopicConfig(min_insync_replicas=2))
    lead(one, 1, version=1)
    assert not one.listen(100, 50)
    assert one.listen(100, 101)
    assert not one.listen(100, 102), "told once"
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: write(one, b"a"))
    assert write(one, b"a", acks=1) == 1
    fetched(one, 3, 0, at=103)
    assert not one.listen(100, 104)
    assert write(one, b"b") == 2
    assert one.listen(100, 204)
    one.follow(2, 2, 2)
    assert not one.is_deserted


def test_a_minimum_above_the_number_of_replicas_keeps_nothing_from_being_visible() -> None:
    one = replica(TopicConfig(min_insync_replicas=3))
    lead(one, replicas=(1, 2), isr=(1, 2))
    write(one, b"a", acks=1)
    fetched(one, 2, 1)
    assert one.high_watermark == 1


def test_a_follower_takes_nothing_and_promises_nothing() -> None:
    one = replica()
    lead(one)
    write(one, b"a", flush=False)
    one.follow(2, 1, 5)
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: write(one, b"b"))
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, one.check_leader)
    one.log.flush()
    one.advance_watermark()
    assert one.high_watermark == 0
    assert one.wanted_isr(100, 10_000) is None


def test_who_has_no_replica_may_not_move_the_watermark() -> None:
    one = replica()
    lead(one)
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: fetched(one, 4, 0))


def test_followers_of_other_epochs_are_told_so() -> None:
    one = replica()
    lead(one, 3)
    one.check_follower_epoch(3)
    refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: one.check_follower_epoch(2))
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: one.check_follower_epoch(4))
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: one.check_follower_epoch(-1))


def test_the_set_that_a_leader_wants() -> None:
    one = replica()
    lead(one, isr=(1, 2))
    write(one, b"a")
    assert one.wanted_isr(100, 50) is None
    fetched(one, 3, 1, at=60)
    assert one.wanted_isr(100, 60) == {1, 2, 3}
    assert one.wanted_isr(100, 101) == {1, 3}
    assert one.followers is not None
    one.followers.asked = frozenset({1, 3})
    assert one.wanted_isr(100, 101) is None


def test_a_follower_that_has_not_reached_this_epoch_does_not_join() -> None:
    """This leader's watermark lags behind what the one before it let readers see."""
    one = replica()
    one.log.append_as_follower(numbered(b"a", b"b"))
    one.log.flush()
    lead(one, 1, isr=(1,), replicas=(1, 2, 3))
    one.high_watermark = 1
    fetched(one, 2, 1)
    assert one.wanted_isr(1000, 0) is None
    fetched(one, 2, 2)
    assert one.wanted_isr(1000, 0) == {1, 2}


def numbered(*values: bytes, base: int = 0, epoch: int = 0) -> bytes:
    """As a leader sends them: one batch each."""
    log = create_log(SimDisk(), DIRECTORY, start_offset=base)
    for value in values:
        log.append(batch(value), leader_epoch=epoch, now_ms=NOW)
    piece = log.read(base, 1 << 20, upper=log.end_offset)
    return piece.file.read(piece.position, piece.length)


def test_a_disk_that_fails_when_an_epoch_begins_leaves_a_follower() -> None:
    disk = SimDisk()
    one = replica(disk=disk)
    one.follow(2, 0, 0)
    disk.fail_on["rename"] = errno.EIO
    refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: lead(one, 1, version=1))
    assert (one.is_leader, one.leader_epoch, one.leader, one.followers) == (False, 0, 2, None)
    assert one.log.epochs.latest == -1
    lead(one, 1, version=1)
    assert one.is_leader
    assert one.log.epochs.entries == [(1, 0)]


def test_where_histories_part() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    for epoch in (0, 0, 2, 2):
        log.append(batch(b"x"), leader_epoch=epoch, now_ms=NOW)
    one = Replica(log, UUID(int=1), 2, 0)
    assert one.parts_at(4, 2) is None
    assert one.parts_at(2, 0) is None
    assert one.parts_at(3, 0) == (0, 2)
    assert one.parts_at(3, 1) == (0, 2)
    assert one.parts_at(5, 2) == (2, 4)
    assert one.parts_at(9, -1) is None
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: one.parts_at(4, 3))


def test_a_watermark_that_was_remembered_is_not_believed_beyond_the_log() -> None:
    log: Log = create_log(SimDisk(), DIRECTORY)
    log.append(batch(b"a", b"b"), leader_epoch=0, now_ms=NOW)
    assert Replica(log, UUID(int=1), 0, 99).high_watermark == 2
    assert Replica(log, UUID(int=1), 0, 1).high_watermark == 1
    assert Replica(log, UUID(int=1), 0).high_watermark == 2
