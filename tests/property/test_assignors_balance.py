"""Assignors over random groups: complete, disjoint, balanced, sticky."""

from itertools import pairwise
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.groups.assignors import ASSIGNORS, Assignment, MemberSpec, range_, uniform
from tidelog.ids import TopicId

TOPICS = [TopicId(UUID(int=n)) for n in range(1, 6)]
Slot = tuple[TopicId, int]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
names = st.lists(st.sampled_from([f"m{n}" for n in range(8)]), min_size=1, max_size=8, unique=True)


def slots(assignment: Assignment) -> set[Slot]:
    return {(topic, n) for topic, numbers in assignment.items() for n in numbers}


def moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """How many partitions a living member lost to another."""
    return sum(len(slots(held) - slots(after[one])) for one, held in before.items() if one in after)


def group(
    members: list[str], topics: dict[TopicId, int], current: dict[str, Assignment] | None = None
) -> dict[str, MemberSpec]:
    return {one: MemberSpec(frozenset(topics), (current or {}).get(one, {})) for one in members}


@st.composite
def any_group(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[TopicId, int]]:
    """Members with their own subscriptions and whatever they may have held before, stale and doubly held included."""
    topics = draw(counts)
    held = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 10), max_size=6))
    spec = st.builds(MemberSpec, topics=st.frozensets(st.sampled_from(TOPICS)), current=held)
    return {one: draw(spec) for one in draw(names)}, topics


@settings(max_examples=400, deadline=None)
@given(any_group(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_of_a_subscribed_topic_has_exactly_one_owner(
    case: tuple[dict[str, MemberSpec], dict[TopicId, int]], name: str
) -> None:
    members, topics = case
    target = ASSIGNORS[name](members, topics)
    assert target.keys() == members.keys()
    owned = [slot for assignment in target.values() for slot in slots(assignment)]
    assert len(owned) == len(set(owned))
    subscribed = frozenset().union(*(spec.topics for spec in members.values()))
    assert set(owned) == {(topic, n) for topic, count in topics.items() if topic in subscribed for n in range(count)}
    for member_id, assignment in target.items():
        assert assignment.keys() <= members[member_id].topics
        assert all(assignment.values()), "a topic without partitions is not assigned"


@settings(max_examples=400, deadline=None)
@given(any_group())
def test_uniform_leaves_no_member_two_above_another_that_could_take_over(
    case: tuple[dict[str, MemberSpec], dict[TopicId, int]],
) -> None:
    members, topics = case
    target = uniform(members, topics)
    for heavy in target.values():
        for light in target:
            if heavy.keys() & members[light].topics:
                assert len(slots(heavy)) <= len(slots(target[light])) + 1


@settings(max_examples=200, deadline=None)
@given(any_group())
def test_uniform_is_settled_by_its_own_answer(case: tuple[dict[str, MemberSpec], dict[TopicId, int]]) -> None:
    members, topics = case
    target = uniform(members, topics)
    again = {one: MemberSpec(spec.topics, target[one]) for one, spec in members.items()}
    assert uniform(again, topics) == target


@settings(max_examples=200, deadline=None)
@given(any_group(), st.sampled_from(sorted(ASSIGNORS)))
def test_the_order_of_members_and_topics_does_not_matter(
    case: tuple[dict[str, MemberSpec], dict[TopicId, int]], name: str
) -> None:
    members, topics = case
    turned = dict(reversed(members.items())), dict(reversed(topics.items()))
    assert ASSIGNORS[name](*turned) == ASSIGNORS[name](members, topics)


@settings(max_examples=300, deadline=None)
@given(names, counts)
def test_uniform_counts_differ_by_at_most_one(members: list[str], topics: dict[TopicId, int]) -> None:
    sizes = [len(slots(one)) for one in uniform(group(members, topics), topics).values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=300, deadline=None)
@given(names, counts, st.lists(st.booleans(), max_size=12))
def test_uniform_moves_only_what_it_must(members: list[str], topics: dict[TopicId, int], steps: list[bool]) -> None:
    """A member that joins takes its share and nothing else moves; one that leaves moves only what it had."""
    living = sorted(members)
    target = uniform(group(living, topics), topics)
    total = sum(topics.values())
    for number, join in enumerate(steps):
        if join:
            living = [*living, f"new-{number}"]
        elif len(living) > 1:
            living = living[1:]
        after = uniform(group(living, topics, target), topics)
        if join:
            assert moved(target, after) == len(slots(after[living[-1]]))
            assert total // len(living) <= len(slots(after[living[-1]])) <= -(-total // len(living))
        else:
            assert moved(target, after) == 0
        target = after


@settings(max_examples=200, deadline=None)
@given(names, counts)
def test_uniform_spreads_each_topic_of_a_new_group(members: list[str], topics: dict[TopicId, int]) -> None:
    """Otherwise one member would hold all of the busy topic and another all of the quiet one."""
    target = uniform(group(members, topics), topics)
    for topic in topics:
        held = [len(one.get(topic, ())) for one in target.values()]
        assert max(held) - min(held) <= 2


@settings(max_examples=300, deadline=None)
@given(names, counts)
def test_range_gives_contiguous_ranges_and_joins_equal_topics(members: list[str], topics: dict[TopicId, int]) -> None:
    target = range_(group(members, topics), topics)
    for assignment in target.values():
        for numbers in assignment.values():
            assert all(after == before + 1 for before, after in pairwise(sorted(numbers)))
    for one, count in topics.items():
        for other, other_count in topics.items():
            if count == other_count:
                assert [a.get(one) for a in target.values()] == [a.get(other) for a in target.values()]
    for topic in topics:
        sizes = [len(one.get(topic, ())) for one in target.values()]
        assert max(sizes) - min(sizes) <= 1
