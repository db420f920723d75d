"""Assignors on the groups people draw on whiteboards."""

from uuid import UUID

import pytest

from tidelog.groups.assignors import ASSIGNORS, Assignment, MemberSpec, range_, uniform
from tidelog.ids import TopicId

ORDERS, PAYMENTS, CLICKS = (TopicId(UUID(int=n)) for n in (1, 2, 3))


def spec(*topics: TopicId, held: Assignment | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(frozenset(topics), held or {}, instance_id)


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_group_without_members_has_no_target(name: str) -> None:
    assert ASSIGNORS[name]({}, {ORDERS: 3}) == {}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_topic_that_does_not_exist_assigns_nothing(name: str) -> None:
    assert ASSIGNORS[name]({"a": spec(ORDERS)}, {}) == {"a": {}}


def test_uniform_a_third_member_takes_its_share_evenly_from_both() -> None:
    two = uniform({"a": spec(ORDERS), "b": spec(ORDERS)}, {ORDERS: 12})
    three = uniform(
        {"a": spec(ORDERS, held=two["a"]), "b": spec(ORDERS, held=two["b"]), "c": spec(ORDERS)}, {ORDERS: 12}
    )
    assert {one: size(held) for one, held in three.items()} == {"a": 4, "b": 4, "c": 4}
    assert three["a"][ORDERS] < two["a"][ORDERS]
    assert three["b"][ORDERS] < two["b"][ORDERS]


def test_uniform_a_member_gives_from_the_topic_it_has_most_of() -> None:
    held = {ORDERS: frozenset(range(6)), PAYMENTS: frozenset(range(2))}
    target = uniform({"a": spec(ORDERS, PAYMENTS, held=held), "b": spec(ORDERS, PAYMENTS)}, {ORDERS: 6, PAYMENTS: 2})
    assert {topic: len(numbers) for topic, numbers in target["a"].items()} == {ORDERS: 2, PAYMENTS: 2}


def test_uniform_new_partitions_do_not_move_old_ones() -> None:
    before = uniform({"a": spec(ORDERS), "b": spec(ORDERS)}, {ORDERS: 4})
    after = uniform({one: spec(ORDERS, held=before[one]) for one in before}, {ORDERS: 6})
    assert all(before[one][ORDERS] < after[one][ORDERS] for one in before)


def test_uniform_balances_through_a_member_in_between() -> None:
    """`a` and `c` share no topic; what `a` has too much reaches `c` only because `b` hands something on."""
    held = {"a": {ORDERS: frozenset(range(5))}, "b": {PAYMENTS: frozenset(range(3))}}
    members = {
        "a": spec(ORDERS, held=held["a"]),
        "b": spec(ORDERS, PAYMENTS, held=held["b"]),
        "c": spec(PAYMENTS),
    }
    target = uniform(members, {ORDERS: 5, PAYMENTS: 3})
    assert sorted(size(one) for one in target.values()) == [2, 3, 3]


def test_uniform_leaves_alone_what_only_one_member_can_have() -> None:
    members = {"a": spec(ORDERS), "b": spec(CLICKS), "c": spec(ORDERS)}
    target = uniform(members, {ORDERS: 2, CLICKS: 9})
    assert {one: size(held) for one, held in target.items()} == {"a": 1, "b": 9, "c": 1}


def test_range_joins_partitions_of_equal_topics_on_one_member() -> None:
    target = range_({one: spec(ORDERS, PAYMENTS) for one in "ab"}, {ORDERS: 5, PAYMENTS: 5})
    assert target["a"] == {ORDERS: frozenset({0, 1, 2}), PAYMENTS: frozenset({0, 1, 2})}
    assert target["b"] == {ORDERS: frozenset({3, 4}), PAYMENTS: frozenset({3, 4})}


def test_range_a_static_member_keeps_its_range_under_a_new_member_id() -> None:
    topics = {ORDERS: 4}
    before = range_({"zz": spec(ORDERS, instance_id="i1"), "mm": spec(ORDERS, instance_id="i2")}, topics)
    after = range_({"aa": spec(ORDERS, instance_id="i2"), "mm": spec(ORDERS, instance_id="i1")}, topics)
    assert (before["zz"], before["mm"]) == (after["mm"], after["aa"])
