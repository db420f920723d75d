"""A follower's log becomes its leader's: what it asks, believes and cuts, and what of that survives a power loss."""

import sys
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch, create_log, open_log, read_values
from sim_disk import PowerLost, SimDisk

from tidelog.cluster import follower
from tidelog.cluster.follower import Wish
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.recovery import verify

DIRECTORY = "/data/orders-0"
SMALL = TopicConfig(segment_bytes=200)


def log_of(*epochs: int, base: int = 0, disk: SimDisk | None = None, config: TopicConfig | None = None) -> Log:
    """One record per epoch named, all flushed."""
    log = create_log(disk or SimDisk(), DIRECTORY, config or TopicConfig(), start_offset=base)
    for epoch in epochs:
        log.append(batch(b"%d@%d" % (log.end_offset, epoch)), leader_epoch=epoch, now_ms=NOW)
    log.flush()
    return log


def leading(*epochs: int, epoch: int, base: int = 0) -> Replica:
    one = Replica(log_of(*epochs, base=base), UUID(int=1), -1, 0)
    one.lead(epoch, node_id=1, partition_epoch=0, replicas=(1, 2), isr=(1, 2), monotonic_ms=0)
    return one


def following(log: Log, epoch: int, watermark: int = 0) -> Replica:
    one = Replica(log, UUID(int=1), -1, watermark)
    one.follow(1, epoch, 0)
    return one


def records(one: Replica, offset: int) -> bytes:
    piece = one.read_as_follower(offset, 1 << 20, min_one=True)
    return piece.file.read(piece.position, piece.length)


def catch_up(one: Replica, leader: Replica) -> list[str]:
    """Until nothing is missing; what happened on the way."""
    steps = []
    for _ in range(20):
        one.log.flush()
        wish = follower.wish_of(one)
        parting = leader.parts_at(wish.fetch_offset, wish.last_fetched_epoch)
        if parting is not None:
            steps.append(f"cut {follower.part(one, wish, *parting)}")
            continue
        if not leader.log.start_offset <= wish.fetch_offset <= leader.log.end_offset:
            follower.begin_anew(one, wish, leader.log.start_offset, leader.log.end_offset, NOW)
            steps.append(f"anew {one.log.start_offset}..{one.log.end_offset}")
            continue
        leader.follower_fetched(2, wish.fetch_offset, 0, 0)
        taken = follower.take(one, records(leader, wish.fetch_offset), wish, NOW)
        follower.hear(one, wish.leader_epoch, leader.high_watermark, leader.log.start_offset)
        if not taken:
            return steps
        steps.append(f"took {one.log.end_offset}")
    raise AssertionError(f"never ends: {steps}")


# -- catching up -------------------------------------------------------------------------------------------------------


def test_it_asks_for_what_is_behind_all_that_is_safe_here() -> None:
    one = following(log_of(0, 0, 2), 4)
    assert follower.wish_of(one) == Wish(3, 2, 4, 0)
    one.log.append_as_follower(records(leading(0, 0, 2, 3, epoch=4), 3))
    assert follower.wish_of(one) == Wish(3, 2, 4, 0)
    one.log.flush()
    assert follower.wish_of(one) == Wish(4, 3, 4, 0)


def test_an_empty_log_becomes_the_leaders() -> None:
    leader = leading(0, 0, 2, epoch=3)
    one = following(log_of(), 3)
    assert catch_up(one, leader) == ["took 3"]
    assert read_values(one.log) == read_values(leader.log)
    assert one.log.epochs.entries == [(0, 0), (2, 2)]
    assert leader.high_watermark == 3
    assert one.high_watermark == 3


@pytest.mark.parametrize(
    ("mine", "leaders", "steps"),
    [
        ((0, 0, 1, 1), (0, 0, 0), ["cut 2", "took 3"]),
        ((0, 0, 1), (0, 0, 2), ["cut 2", "took 3"]),
        ((0, 1, 1, 3), (0, 1, 2, 2), ["cut 3", "cut 2", "took 4"]),
        ((0, 2), (0, 1, 1, 1), ["cut 1", "took 4"]),
        ((1, 1), (0, 0), ["cut 0", "took 2"]),
        ((0, 0, 0), (0,), ["cut 1"]),
        ((0, 1, 3, 5), (0, 2, 4), ["cut 2", "cut 1", "took 3"]),
    ],
)
def test_it_is_cut_where_histories_part_and_not_elsewhere(
    mine: tuple[int, ...], leaders: tuple[int, ...], steps: list[str]
) -> None:
    leader = leading(*leaders, epoch=7)
    one = following(log_of(*mine), 7)
    assert catch_up(one, leader)[-len(steps) :] == steps
    assert read_values(one.log) == read_values(leader.log)


def test_a_former_leader_that_wrote_nothing_takes_older_records_where_its_epoch_began() -> None:
    """It began epoch 3 at offset 1; but the next leader has records of epoch 0 there, which it never had."""
    disk = SimDisk()
    one = following(log_of(0, disk=disk), 0)
    one.lead(3, node_id=2, partition_epoch=1, replicas=(1, 2), isr=(1, 2), monotonic_ms=0)
    assert one.log.epochs.entries == [(0, 0), (3, 1)]
    one.follow(1, 4, 2)
    leader = leading(0, 0, epoch=4)
    assert catch_up(one, leader) == ["took 2"]
    assert read_values(one.log) == read_values(leader.log)
    assert one.log.epochs.entries == [(0, 0)]
    one.log.abandon("killed")
    assert read_values(open_log(disk, DIRECTORY)) == read_values(leader.log)


def test_what_follows_a_cut_survives_a_kill_also_if_it_is_of_an_earlier_epoch() -> None:
    """Without a flush: the page cache keeps it, and a recovery must not take it for damage."""
    disk = SimDisk()
    config = TopicConfig(flush_on_ack=False)
    one = following(log_of(0, 3, disk=disk, config=config), 4)
    follower.part(one, follower.wish_of(one), 0, 2)
    assert follower.take(one, records(leading(0, 0, epoch=4), 1), follower.wish_of(one), NOW)
    one.log.abandon("killed")
    assert read_values(open_log(disk, DIRECTORY)) == [(0, b"0@0"), (1, b"1@0")]


def test_a_leader_that_begins_later_is_joined_where_it_begins() -> None:
    leader = leading(5, 5, base=100, epoch=6)
    one = following(log_of(0, 0, config=SMALL), 6)
    assert catch_up(one, leader) == ["anew 100..100", "took 102"]
    assert one.log.start_offset == 100
    assert read_values(one.log) == read_values(leader.log)


@pytest.mark.parametrize("deleted_inside", [False, True])
def test_a_leader_that_ends_before_all_that_is_here_is_joined_where_it_begins(deleted_inside: bool) -> None:
    """Elected although it was not in sync: it never had what was not deleted here meanwhile."""
    leader = leading(1, 1, 1, epoch=3)
    here = log_of(2, 2, 2, 2, base=0 if deleted_inside else 5)
    here.advance_start_offset(4 if deleted_inside else 5)
    one = following(here, 3)
    catch_up(one, leader)
    assert read_values(one.log) == read_values(leader.log)
    assert (one.log.start_offset, one.log.end_offset) == (0, 3)
    one.log.flush()
    one.log.abandon("killed")
    assert read_values(open_log(here.disk, DIRECTORY, recovery_point=0)) == read_values(leader.log)


def test_a_leader_that_begins_inside_a_batch_is_joined_there() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=NOW)
    log.append(batch(b"d"), leader_epoch=0, now_ms=NOW)
    log.flush()
    log.advance_start_offset(2)
    leader = Replica(log, UUID(int=1), -1, 0)
    leader.lead(1, node_id=1, partition_epoch=0, replicas=(1, 2), isr=(1, 2), monotonic_ms=0)
    one = following(log_of(), 1)
    assert catch_up(one, leader) == ["anew 2..2", "took 4"]
    assert one.log.start_offset == 2
    assert read_values(one.log) == [(2, b"c"), (3, b"d")]


def test_that_is_possible_also_after_a_power_loss_in_the_middle_of_it() -> None:
    """Going back from offset 2 to the beginning of the batch left a segment for each, and nothing in them."""
    disk = SimDisk()
    create_log(disk, DIRECTORY, start_offset=1).abandon("power lost")
    disk.open(f"{DIRECTORY}/{2:020}.log", create=True)
    log = open_log(disk, DIRECTORY, recovery_point=2)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1, 2, 0)
    one = following(log, 1)
    leader = create_log(SimDisk(), DIRECTORY, start_offset=1)
    leader.append(batch(b"b", b"c"), leader_epoch=0, now_ms=NOW)
    piece = leader.read(1, 1 << 20, upper=3)
    assert follower.take(one, piece.file.read(piece.position, piece.length), follower.wish_of(one), NOW)
    assert read_values(one.log) == [(2, b"c")]


def test_what_the_leader_deleted_is_deleted_here() -> None:
    leader = leading(0, 0, 0, epoch=1)
    leader.advance_start_offset(2)
    one = following(log_of(0, 0), 1)
    follower.hear(one, 1, 0, leader.log.start_offset)
    assert one.log.start_offset == 2
    follower.hear(one, 1, 0, 3)
    assert one.log.start_offset == 2  # not beyond what is here


# -- what is not believed ----------------------------------------------------------------------------------------------


def test_answers_that_come_late_or_twice_change_nothing() -> None:
    leader = leading(0, 0, 0, epoch=5)
    one = following(log_of(0, 3, 3), 5)
    first = follower.wish_of(one)
    assert leader.parts_at(first.fetch_offset, first.last_fetched_epoch) == (0, 3)
    assert follower.part(one, first, 0, 3) == 1
    wish = follower.wish_of(one)
    answer = records(leader, wish.fetch_offset)
    assert follower.take(one, answer, wish, NOW)
    assert not follower.take(one, answer, wish, NOW)
    one.log.flush()
    assert one.log.end_offset == first.fetch_offset  # as long as when it was cut, and now the leader's
    assert follower.part(one, first, 0, 1) == 3
    follower.begin_anew(one, first, 50, 60, NOW)
    assert read_values(one.log) == read_values(leader.log)


def test_answers_of_another_epoch_change_nothing() -> None:
    leader = leading(0, 0, epoch=5)
    one = following(log_of(0), 5)
    wish = follower.wish_of(one)
    one.follow(1, 6, 1)
    assert not follower.take(one, records(leader, 1), wish, NOW)
    follower.hear(one, 5, 1, 0)
    assert follower.part(one, wish, 0, 0) == 1
    follower.begin_anew(one, wish, 7, 9, NOW)
    assert (one.log.end_offset, one.high_watermark) == (1, 0)


def test_a_leader_takes_no_answers() -> None:
    one = following(log_of(0), 5)
    wish = follower.wish_of(one)
    one.lead(6, node_id=2, partition_epoch=1, replicas=(1, 2), isr=(1, 2), monotonic_ms=0)
    assert not follower.take(one, records(leading(0, 0, epoch=5), 1), wish, NOW)
    assert follower.part(one, wish, 0, 0) == 1
    follower.hear(one, 6, 1, 0)
    assert one.high_watermark == 0


def test_nothing_is_shown_before_the_logs_are_known_to_be_the_same() -> None:
    """What is at offset 1 here is not what the leader let its readers see there."""
    one = following(log_of(0, 3), 5, watermark=1)
    follower.hear(one, 5, 2, 0)
    assert one.high_watermark == 1
    leader = leading(0, 4, epoch=5)
    assert catch_up(one, leader) == ["cut 1", "took 2"]
    assert one.high_watermark == 2


def test_nothing_is_shown_before_it_is_safe_here() -> None:
    leader = leading(0, 0, epoch=1)
    one = following(log_of(), 1)
    follower.take(one, records(leader, 0), follower.wish_of(one), NOW)
    follower.hear(one, 1, 2, 0)
    assert one.high_watermark == 0
    one.log.flush()
    follower.hear(one, 1, 2, 0)
    assert one.high_watermark == 2


def test_a_cut_takes_the_watermark_with_it() -> None:
    one = following(log_of(0, 1, 1), 5, watermark=3)
    follower.part(one, follower.wish_of(one), 0, 1)
    assert (one.high_watermark, one.last_stable_offset, one.agreed_offset) == (1, 1, 1)


# -- power loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_that_begins_survives_with_its_first_flushed_record_and_harms_nothing_before(seed: int) -> None:
    for step in range(12):
        disk = SimDisk()
        log = log_of(0, 0, disk=disk)
        disk.crash_after = step
        flushed = 2
        try:
            log.begin_epoch(4)
            log.append(batch(b"2@4"), leader_epoch=4, now_ms=NOW)
            log.flush()
            flushed = 3
        except PowerLost:
            pass
        log.abandon("power lost")
        disk.crash(Random(seed))
        log = open_log(disk, DIRECTORY, recovery_point=2)
        assert log.end_offset >= flushed
        assert read_values(log) == [(0, b"0@0"), (1, b"1@0"), (2, b"2@4")][: log.end_offset]
        assert log.epochs.entries == [(0, 0), (4, 2)][: log.end_offset - 1]
        assert not log.recovery.corrupt


@pytest.mark.parametrize("seed", range(6))
def test_going_on_elsewhere_survives_once_it_was_flushed_and_before_that_leaves_some_beginning(seed: int) -> None:
    step = 0
    finished = False
    while not finished:
        disk = SimDisk()
        log = log_of(0, 0, 1, 1, 1, disk=disk, config=SMALL)
        old = read_values(log)
        disk.crash_after = step
        try:
            log.restart_at(100, NOW)
            assert (log.start_offset, log.end_offset, log.epochs.entries) == (100, 100, [])
            assert log.flushed_offset < 100  # nobody may be told yet that nothing is missing
            log.flush()
            assert log.flushed_offset == 100
            finished = True
        except PowerLost:
            step += 1
        log.abandon("power lost")
        disk.crash(Random(seed))
        log = open_log(disk, DIRECTORY, SMALL, recovery_point=0)
        if finished or log.start_offset == 100:
            assert (log.start_offset, log.end_offset, read_values(log)) == (100, 100, [])
        else:
            assert read_values(log) == old[log.start_offset : log.end_offset]
        assert verify(disk, DIRECTORY).problems == []
        end = log.end_offset
        log.append(batch(b"next"), leader_epoch=9, now_ms=NOW)
        assert log.end_offset == end + 1
    assert step > 5


def test_going_on_elsewhere_forgets_producers_and_indexes() -> None:
    log = create_log(SimDisk(), DIRECTORY, SMALL)
    for sequence in range(5):
        log.append(batch(b"x", producer=(7, 0, sequence)), leader_epoch=0, now_ms=NOW)
    log.restart_at(50, NOW)
    assert log.producers.producers == {}
    assert [segment.base_offset for segment in log.segments] == [50]
    log.append_as_follower(records(leading(3, 3, base=50, epoch=4), 50))
    log.flush()
    assert (log.start_offset, log.end_offset, log.flushed_offset) == (50, 52, 52)
    assert log.epochs.entries == [(3, 50)]
