"""Who leads, and who is in sync: only somebody who has everything, and never nobody for want of a heartbeat."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pictures import TOPIC_ID, only, picture, stopping

from tidelog.cluster import elections
from tidelog.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from tidelog.cluster.records import AnyRecord
from tidelog.errors import ErrorCode, KafkaError

NOWHERE = UUID(int=99)


def after(image: MetadataImage, records: list[AnyRecord]) -> PartitionImage:
    return only(image.apply(records))


# -- brokers that go and come ------------------------------------------------------------------------------------------


def test_when_a_leader_goes_the_next_in_sync_leads_in_a_new_epoch() -> None:
    image = picture(1, 2, 3, isr=(1, 3))
    now = after(image, elections.without(image, 1))
    assert (now.leader, now.leader_epoch, now.isr, now.partition_epoch) == (3, 4, (3,), 11)


def test_when_a_follower_goes_the_leader_leads_on_in_its_epoch() -> None:
    image = picture(1, 2, 3)
    now = after(image, elections.without(image, 2))
    assert (now.leader, now.leader_epoch, now.isr, now.partition_epoch) == (1, 3, (1, 3), 11)


def test_who_is_not_in_sync_goes_unnoticed() -> None:
    assert elections.without(picture(1, 2, 3, isr=(1, 2)), 3) == []
    assert elections.without(picture(1, 2, 3), 4) == []


def test_a_fenced_member_is_not_elected() -> None:
    image = picture(1, 2, 3, away=(2,))
    assert after(image, elections.without(image, 1)).leader == 3


def test_a_stopping_member_is_not_elected() -> None:
    image = stopping(picture(1, 2, 3), 2)
    assert after(image, elections.without(image, 1)).leader == 3


def test_the_last_in_sync_stays_so_and_leads_when_it_is_back() -> None:
    image = picture(1, 2, 3, isr=(1,))
    image = image.apply(elections.without(image, 1))
    assert (only(image).leader, only(image).leader_epoch, only(image).isr) == (NO_LEADER, 4, (1,))
    assert elections.with_back(image, 2) == []  # it does not have everything
    now = after(image, elections.with_back(image, 1))
    assert (now.leader, now.leader_epoch, now.isr) == (1, 5, (1,))


def test_a_lost_disk_leaves_the_set_even_as_the_last() -> None:
    image = picture(1, 2, 3, isr=(1,))
    image = image.apply(elections.without(image, 1, disk_lost=True))
    assert (only(image).leader, only(image).isr) == (NO_LEADER, ())
    assert elections.with_back(image, 1) == []
    assert elections.with_back(image, 2) == []


def test_coming_back_takes_nothing_from_a_leader() -> None:
    assert elections.with_back(picture(1, 2, 3, leader=2), 1) == []


# -- what leaders report -----------------------------------------------------------------------------------------------


def altered(image: MetadataImage, isr: list[tuple[int, int]], **given: Any) -> list[AnyRecord]:
    wish = {"leader": 1, "leader_epoch": 3, "partition_epoch": 10, **given}
    return elections.alter_isr(image, wish.pop("topic_id", TOPIC_ID), wish.pop("number", 0), isr=isr, **wish)


def test_the_set_shrinks_and_grows_in_the_leaders_epoch() -> None:
    image = picture(2, 1, 3, leader=1)
    image = image.apply(altered(image, [(1, 10)]))
    assert (only(image).isr, only(image).leader_epoch, only(image).partition_epoch) == ((1,), 3, 11)
    now = after(image, altered(image, [(3, 30), (1, 10), (2, -1)], partition_epoch=11))
    assert (now.isr, now.leader_epoch, now.partition_epoch) == ((2, 1, 3), 3, 12)


SOME = [(1, 10), (2, 20)]
REFUSALS: list[tuple[ErrorCode, Callable[[], object]]] = [
    (ErrorCode.UNKNOWN_TOPIC_ID, lambda: altered(picture(1, 2), SOME, topic_id=NOWHERE)),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: altered(picture(1, 2), SOME, number=1)),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: altered(picture(1, 2), SOME, number=-1)),
    (ErrorCode.FENCED_LEADER_EPOCH, lambda: altered(picture(1, 2), SOME, leader_epoch=2)),
    (ErrorCode.NOT_CONTROLLER, lambda: altered(picture(1, 2), SOME, leader_epoch=4)),
    (ErrorCode.NOT_CONTROLLER, lambda: altered(picture(1, 2), SOME, partition_epoch=11)),
    (ErrorCode.NOT_CONTROLLER, lambda: altered(picture(1, 2), SOME, leader_epoch=2, partition_epoch=11)),
    (ErrorCode.INVALID_REQUEST, lambda: altered(picture(1, 2), SOME, leader=2)),
    (ErrorCode.INVALID_UPDATE_VERSION, lambda: altered(picture(1, 2), SOME, partition_epoch=9)),
    (ErrorCode.INVALID_REQUEST, lambda: altered(picture(1, 2), [(2, 20)])),
    (ErrorCode.INVALID_REQUEST, lambda: altered(picture(1, 2), [(1, 10), (3, 30)])),
    (ErrorCode.INVALID_REQUEST, lambda: altered(picture(1, 2), [*SOME, (2, 20)])),
    (ErrorCode.INELIGIBLE_REPLICA, lambda: altered(picture(1, 2, isr=(1,), away=(2,)), SOME)),
    (ErrorCode.INELIGIBLE_REPLICA, lambda: altered(stopping(picture(1, 2, isr=(1,)), 2), SOME)),
    (ErrorCode.INELIGIBLE_REPLICA, lambda: altered(picture(1, 2, isr=(1,)), [(1, 10), (2, 19)])),
    (ErrorCode.INELIGIBLE_REPLICA, lambda: altered(picture(1, 6, isr=(1,)), [(1, 10), (6, -1)])),
]


@pytest.mark.parametrize(("code", "wish"), REFUSALS)
def test_refused_with_kafkas_error(code: ErrorCode, wish: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as refused:
        wish()
    assert refused.value.code is code


# -- elections by request ----------------------------------------------------------------------------------------------


def test_the_preferred_leader_leads_if_it_can() -> None:
    image = picture(1, 2, 3, leader=2)
    now = after(image, elections.elect_preferred(image, TOPIC_ID, 0))
    assert (now.leader, now.leader_epoch, now.isr) == (1, 4, (1, 2, 3))


@pytest.mark.parametrize(
    ("code", "image"),
    [
        (ErrorCode.ELECTION_NOT_NEEDED, picture(1, 2)),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, picture(1, 2, leader=2, isr=(2,))),
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, picture(1, 2, leader=2, away=(1,))),
    ],
)
def test_the_preferred_leader_is_not_elected(code: ErrorCode, image: MetadataImage) -> None:
    with pytest.raises(KafkaError) as refused:
        elections.elect_preferred(image, TOPIC_ID, 0)
    assert refused.value.code is code


def test_leaders_go_back_to_where_they_belong() -> None:
    image = picture(1, 2, 3, leader=2)
    assert after(image, elections.preferred_where_possible(image)).leader == 1
    assert elections.preferred_where_possible(picture(1, 2, leader=2, isr=(2,))) == []
    assert elections.preferred_where_possible(picture(1, 2)) == []


def test_an_unclean_leader_is_alone_in_sync() -> None:
    image = picture(1, 2, 3, leader=NO_LEADER, isr=(1,), away=(1,))
    now = after(image, elections.elect_unclean(image, TOPIC_ID, 0))
    assert (now.leader, now.leader_epoch, now.isr) == (2, 4, (2,))


def test_asked_for_an_unclean_election_a_clean_one_is_preferred() -> None:
    image = picture(1, 2, 3, leader=NO_LEADER, isr=(3,), away=(1,))
    now = after(image, elections.elect_unclean(image, TOPIC_ID, 0))
    assert (now.leader, now.isr) == (3, (3,))


@pytest.mark.parametrize(
    ("code", "image"),
    [
        (ErrorCode.ELECTION_NOT_NEEDED, picture(1, 2)),
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, picture(1, 2, leader=NO_LEADER, away=(1, 2))),
    ],
)
def test_an_unclean_election_is_refused(code: ErrorCode, image: MetadataImage) -> None:
    with pytest.raises(KafkaError) as refused:
        elections.elect_unclean(image, TOPIC_ID, 0)
    assert refused.value.code is code
