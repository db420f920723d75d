"""What a leader knows of its followers, and how far the watermark may go by it."""

import pytest

from tidelog.cluster.progress import NOTHING, Followers
from tidelog.errors import ErrorCode, KafkaError


def followers(isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> Followers:
    """Led by 1, at time 0."""
    return Followers(1, replicas, isr, 0)


def fetch(known: Followers, node: int, offset: int, *, end: int = 10, at: int = 0, epoch: int = 0) -> None:
    known.fetched(node, offset, end, epoch or node * 10, at)


# -- the watermark -----------------------------------------------------------------------------------------------------


def test_nothing_is_safe_before_every_member_was_heard_of() -> None:
    known = followers()
    assert known.safe_offset(10) == NOTHING
    fetch(known, 2, 10)
    assert known.safe_offset(10) == NOTHING
    fetch(known, 3, 7)
    assert known.safe_offset(10) == 7
    assert known.safe_offset(5) == 5


def test_who_is_not_in_sync_holds_nothing_back() -> None:
    known = followers(isr=(1, 2))
    fetch(known, 2, 8)
    fetch(known, 3, 4)
    assert known.safe_offset(10) == 8


def test_whom_the_controller_may_have_granted_counts_already() -> None:
    known = followers(isr=(1, 2))
    fetch(known, 2, 10)
    fetch(known, 3, 4)
    known.asked = frozenset({1, 2, 3})
    assert known.safe_offset(10) == 4
    known.asked = frozenset({1})  # and whom it may not have let go yet
    assert known.safe_offset(10) == 10
    fetch(known, 2, 6)
    assert known.safe_offset(10) == 6
    known.update((1, 2, 3), (1,), 0)
    assert known.asked is None
    assert known.safe_offset(10) == 10


def test_a_member_without_a_replica_here_holds_everything_back() -> None:
    known = followers(isr=(1, 9))
    assert known.safe_offset(10) == NOTHING


def test_what_is_known_of_those_who_stay_is_kept_and_of_those_who_go_forgotten() -> None:
    known = followers()
    fetch(known, 2, 8)
    fetch(known, 3, 9)
    known.update((1, 2), (1, 2), 5)
    assert 3 not in known
    assert known.end_offset_of(2) == 8
    known.update((1, 2, 3), (1, 2), 6)
    assert known.end_offset_of(3) == NOTHING
    assert known.replica_count == 3


def test_a_process_that_is_no_more_says_nothing() -> None:
    """A fetch that was under way when the disk was replaced."""
    known = followers()
    fetch(known, 2, 8, epoch=20)
    fetch(known, 2, 0, epoch=21)
    with pytest.raises(KafkaError) as refused:
        fetch(known, 2, 8, epoch=20)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert (known.end_offset_of(2), known.broker_epoch_of(2)) == (0, 21)


# -- joining -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "joins"), [(6, False), (7, True), (8, True)])
def test_a_follower_joins_when_it_has_what_was_acknowledged(offset: int, joins: bool) -> None:
    known = followers(isr=(1, 2))
    fetch(known, 3, offset)
    assert known.joinable(7, 3) == ({3} if joins else set())
    assert known.joinable(3, 7) == ({3} if joins else set())  # and has reached the epoch


def test_who_was_not_heard_of_does_not_join() -> None:
    assert followers(isr=(1,)).joinable(0, 0) == frozenset()


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_member_has_the_whole_time_from_the_beginning() -> None:
    known = followers()
    assert known.lagging(10, 100, 100) == frozenset()
    assert known.lagging(10, 100, 101) == {2, 3}


def test_one_that_has_everything_is_in_sync_however_long_ago_it_asked() -> None:
    known = followers()
    fetch(known, 2, 10, end=10, at=5)
    assert known.lagging(10, 100, 10_000) == {3}
    assert known.lagging(11, 100, 10_000) == {2, 3}


def test_one_that_keeps_up_with_a_growing_log_is_in_sync_though_never_at_its_end() -> None:
    known = followers(isr=(1, 2))
    for at in range(0, 1000, 50):
        fetch(known, 2, at - 50, end=at, at=at)
        assert known.lagging(at + 10, 100, at + 40) == frozenset()


def test_one_that_asks_but_falls_behind_leaves() -> None:
    known = followers(isr=(1, 2))
    for at in range(0, 500, 50):
        fetch(known, 2, at // 10, end=at + 100, at=at)
    assert known.lagging(600, 100, 500) == {2}


def test_who_is_outside_does_not_lag() -> None:
    assert followers(isr=(1,)).lagging(10, 100, 1000) == frozenset()


# -- who is there ------------------------------------------------------------------------------------------------------


def test_only_members_that_asked_lately_are_heard_of() -> None:
    known = followers(isr=(1, 2))
    assert known.heard(100, 100) == 2  # a new leader gives everyone the benefit of the doubt
    assert known.heard(100, 101) == 1
    fetch(known, 2, 3, at=90)
    fetch(known, 3, 10, at=90)
    assert known.heard(100, 190) == 2, "the third is there and not in sync"
    assert known.heard(100, 191) == 1
