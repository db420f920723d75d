"""Plans: nothing twice on a broker, nothing left where it should leave, a share for everyone, as little as possible."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.cli.cluster.moves import balanced, emptied, plan_from_json, plan_to_json, spread_over
from tidelog.cli.problems import Problem
from tidelog.ids import TopicPartition

P0 = TopicPartition("t", 0)
ROW = '{"topic": "t", "partition": 0, "replicas": [1]}'


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]:
    nodes = list(range(1, draw(st.integers(2, 7)) + 1))
    racks = {node: draw(st.sampled_from([None, "a", "b", "c"])) for node in nodes}
    holders = draw(st.integers(1, len(nodes)))
    placement = {}
    for number in range(draw(st.integers(0, 25))):
        copies = draw(st.integers(1, holders))
        placement[TopicPartition("t", number)] = tuple(draw(st.permutations(nodes[:holders]))[:copies])
    return placement, racks


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_everybody_gets_a_share(given: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]) -> None:
    placement, racks = given
    same = dict.fromkeys(racks)
    after = {**placement, **balanced(placement, same)}
    assert all(len(after[place]) == len(set(after[place])) == len(placement[place]) for place in placement)
    held = Counter(node for replicas in after.values() for node in replicas)
    counts = [held[node] for node in racks]
    assert max(counts) - min(counts) <= 1
    assert balanced(after, same) == {}, "a plan that is carried out leaves nothing to plan"
    with_racks = {**placement, **balanced(placement, racks)}
    for place, replicas in placement.items():
        spread = {racks[node] for node in with_racks[place]}
        assert len(spread) >= len({racks[node] for node in replicas}), "never in fewer racks than before"


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_a_broker_is_emptied(given: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]) -> None:
    placement, racks = given
    stuck = [place for place, replicas in placement.items() if 1 in replicas and len(replicas) == len(racks)]
    if stuck:
        with pytest.raises(Problem, match="no other broker"):
            emptied(placement, racks, 1)
        return
    plan = emptied(placement, racks, 1)
    assert plan.keys() == {place for place, replicas in placement.items() if 1 in replicas}
    for place, replicas in plan.items():
        assert 1 not in replicas
        assert len(replicas) == len(set(replicas)) == len(placement[place])
        assert set(placement[place]) - {1} <= set(replicas), "what may stay stays"


def test_the_heir_stands_in_another_rack_if_there_is_one() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    assert emptied({P0: (2, 1)}, racks, 1)[P0] == (2, 4)
    assert emptied({P0: (1, 2)}, {1: "a", 2: "b", 3: "b"}, 1)[P0] == (3, 2), "better the same rack than none"


def test_fewer_replicas_only_if_that_is_accepted() -> None:
    placement, racks = {P0: (1, 2)}, {1: None, 2: None}
    with pytest.raises(Problem, match="no other broker") as refused:
        emptied(placement, racks, 1)
    assert "--shrink" in str(refused.value.next_step)
    assert emptied(placement, racks, 1, may_shrink=True) == {P0: (2,)}
    with pytest.raises(Problem) as refused:
        emptied({P0: (1,)}, {1: None}, 1, may_shrink=True)
    assert "--shrink" not in str(refused.value.next_step)


def test_leaders_are_shared_without_copying() -> None:
    placement = {TopicPartition("t", number): (1, 2, 3) for number in range(6)}
    plan = balanced(placement, {1: None, 2: None, 3: None})
    after = {**placement, **plan}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}
    assert all(set(replicas) == {1, 2, 3} for replicas in after.values())


def test_brokers_take_turns_at_leading() -> None:
    plan = spread_over("t", [2, 0, 1], [7, 8])
    assert plan == {P0: (7, 8), TopicPartition("t", 1): (8, 7), TopicPartition("t", 2): (7, 8)}


def test_a_plan_is_kafkas_file() -> None:
    text = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    assert plan_from_json(text) == {P0: (1, 2)}
    assert plan_to_json({P0: (1, 2)}) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"partitions": []}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        f'{{"partitions": [{ROW}, {ROW}]}}',
    ],
)
def test_plans_nobody_can_mean(text: str) -> None:
    with pytest.raises(Problem, match="plan"):
        plan_from_json(text)
