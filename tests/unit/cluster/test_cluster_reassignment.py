"""A partition moves: first the new ones catch up, then the old ones go. It may be cancelled or changed meanwhile."""

import pytest
from pictures import TOPIC_ID, only, picture

from tidelog.cluster import elections
from tidelog.cluster.image import NO_LEADER, MetadataImage
from tidelog.errors import ErrorCode, KafkaError


def move(image: MetadataImage, *target: int) -> MetadataImage:
    return image.apply(elections.reassign(image, TOPIC_ID, 0, target))


def cancel(image: MetadataImage) -> MetadataImage:
    return image.apply(elections.cancel_reassignment(image, TOPIC_ID, 0))


def report(image: MetadataImage, *isr: int) -> MetadataImage:
    """Its leader wants this in-sync set."""
    partition = only(image)
    return image.apply(
        elections.alter_isr(
            image,
            TOPIC_ID,
            0,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=[(node, -1) for node in isr],
        )
    )


def test_it_begins_with_both_and_ends_with_the_new() -> None:
    image = move(picture(1, 2, 3), 3, 4)
    begun = only(image)
    assert (begun.replicas, begun.adding, begun.removing) == ((3, 4, 1, 2), (4,), (1, 2))
    assert (begun.leader, begun.leader_epoch, begun.isr) == (1, 3, (3, 1, 2))
    done = only(report(image, 1, 2, 3, 4))
    assert (done.replicas, done.isr, done.adding, done.removing) == ((3, 4), (3, 4), (), ())
    assert (done.leader, done.leader_epoch, done.partition_epoch) == (3, 4, 12)


def test_the_leader_leads_on_if_it_stays_but_in_a_new_epoch_since_somebody_went() -> None:
    done = only(report(move(picture(1, 2, 3), 1, 2, 4), 1, 2, 3, 4))
    assert (done.leader, done.leader_epoch, done.replicas) == (1, 4, (1, 2, 4))


def test_one_that_stays_may_be_away_when_it_ends() -> None:
    image = move(picture(1, 2, 3, isr=(1, 3), away=(2,)), 1, 2, 4)
    done = only(report(image, 1, 3, 4))
    assert (done.replicas, done.isr, done.leader) == ((1, 2, 4), (1, 4), 1)


def test_it_does_not_end_before_all_that_it_adds_are_in_sync() -> None:
    half = only(report(move(picture(1, 2), 3, 4), 1, 2, 3))
    assert (half.adding, half.removing, half.isr) == ((3, 4), (1, 2), (3, 1, 2))


def test_only_removing_ends_at_once_unless_nobody_would_be_in_sync() -> None:
    done = only(move(picture(1, 2, 3), 2, 3))
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((2, 3), (2, 3), 2, 4)
    waits = only(move(picture(1, 2, 3, isr=(1,)), 2, 3))
    assert (waits.replicas, waits.removing, waits.isr, waits.leader) == ((2, 3, 1), (1,), (1,), 1)


def test_another_order_is_no_new_epoch() -> None:
    done = only(move(picture(1, 2, 3), 3, 2, 1))
    assert (done.replicas, done.leader, done.leader_epoch, done.isr) == ((3, 2, 1), 1, 3, (3, 2, 1))


def test_changed_under_way_what_it_no_longer_adds_is_gone_at_once_from_the_in_sync_set_too() -> None:
    image = report(move(picture(1, 2), 4, 5), 1, 2, 4)
    changed = only(move(image, 1, 3))
    assert (changed.replicas, changed.adding, changed.removing) == ((1, 3, 2), (3,), (2,))
    assert (changed.isr, changed.leader, changed.leader_epoch) == ((1, 2), 1, 4)


def test_changed_under_way_it_may_lose_its_leader() -> None:
    image = picture(4, 5, 1, 2, leader=4, isr=(4, 1), adding=(4, 5), removing=(1, 2))
    changed = only(move(image, 1, 2))
    assert (changed.replicas, changed.leader, changed.leader_epoch, changed.isr) == ((1, 2), 1, 4, (1,))


def test_cancelled_it_is_where_it_was() -> None:
    image = report(move(picture(1, 2), 4, 5), 1, 2, 4)
    back = only(cancel(image))
    assert (set(back.replicas), set(back.isr), back.adding, back.removing) == ({1, 2}, {1, 2}, (), ())
    assert (back.leader, back.leader_epoch) == (1, 4)


def test_cancelled_when_one_that_was_added_leads() -> None:
    image = picture(4, 5, 1, 2, leader=4, isr=(4, 2), adding=(4, 5), removing=(1, 2))
    back = only(cancel(image))
    assert (back.replicas, back.leader, back.leader_epoch, back.isr) == ((1, 2), 2, 4, (2,))


def test_cancelled_without_an_available_leader_it_waits_for_one() -> None:
    image = picture(4, 5, 1, 2, leader=4, isr=(4, 2), adding=(4, 5), removing=(1, 2), away=(2,))
    back = only(cancel(image))
    assert (back.leader, back.leader_epoch, back.isr) == (NO_LEADER, 4, (2,))


def test_it_cannot_be_cancelled_when_only_the_added_have_everything() -> None:
    image = picture(4, 5, 1, 2, leader=4, isr=(4,), adding=(4, 5), removing=(1, 2))
    with pytest.raises(KafkaError) as refused:
        cancel(image)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_nothing_to_cancel() -> None:
    assert elections.cancel_reassignment(picture(1, 2), TOPIC_ID, 0) == []


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_an_impossible_target_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(KafkaError) as refused:
        move(picture(1, 2), *target)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_leader_lost_under_way_is_replaced_and_the_move_goes_on() -> None:
    image = move(picture(1, 2), 3, 4)
    image = image.apply(elections.without(image, 1))
    assert (only(image).leader, only(image).adding) == (2, (3, 4))
    done = only(report(image, 2, 3, 4))
    assert (done.replicas, done.leader, done.isr) == ((3, 4), 3, (3, 4))
