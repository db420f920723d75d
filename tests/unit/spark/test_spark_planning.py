"""Slices, admission, positions and pushed filters: plain functions that decide what is read."""

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tidelog.ids import TopicId, TopicPartition
from tidelog.spark.admission import admit
from tidelog.spark.filters import Narrowed
from tidelog.spark.positions import Position, Positions, lag
from tidelog.spark.slices import TASK_BYTES_MAX, TASK_BYTES_MIN, ReadTask, Slice, plan

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000), st.integers(0, 5000)), max_size=6)
MAYBE = st.none() | st.integers(1, 40)


def ranges_of(drawn) -> list[Slice]:
    return [Slice("t", index, start, start + size) for index, (_, start, size) in enumerate(drawn)]


@settings(max_examples=200, deadline=None)
@given(RANGES, MAYBE, st.none() | st.integers(1, 2000), st.sampled_from([None, {"t": 1}, {"t": 100_000}, {}]))
def test_every_offset_is_in_one_task_and_in_order(drawn, least, most, sizes):
    ranges = ranges_of(drawn)
    tasks = plan(ranges, min_partitions=least, max_records=most, record_bytes=sizes)
    pieces = [piece for task in tasks for piece in task.slices]
    for whole in ranges:
        mine = [piece for piece in pieces if piece.at == whole.at]
        assert [offset for piece in mine for offset in (piece.start, piece.end)] == sorted(
            offset for piece in mine for offset in (piece.start, piece.end)
        )
        assert sum(piece.size for piece in mine) == whole.size
        if whole.size:
            assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)
    if least is not None:
        assert len(tasks) >= min(least, sum(whole.size for whole in ranges))
    assert tasks == [] or all(task.slices for task in tasks)


def test_big_ranges_are_divided_and_small_ones_put_together_by_bytes():
    big = Slice("big", 0, 0, 5 * TASK_BYTES_MAX // 100)
    assert len(plan([big], record_bytes={"big": 100})) == 6
    small = [Slice("small", p, 0, 1000) for p in range(12)]
    assert len(plan(small, record_bytes={"small": 100})) == 1
    assert len(plan(small, record_bytes={"small": TASK_BYTES_MIN // 2000})) == 6
    assert len(plan(small, record_bytes={})) == len(plan(small, record_bytes={"other": 5})) == 12


def test_tasks_travel_to_executors():
    task = ReadTask([Slice("t", 1, 5, 9)])
    assert pickle.loads(pickle.dumps(task)).slices == task.slices


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1, max_size=8), st.integers(1, 3000))
def test_admission_takes_as_much_as_it_may_from_all(drawn, most):
    starts = {TopicPartition("t", p): start for p, (start, _) in enumerate(drawn)}
    ends = {TopicPartition("t", p): start + size for p, (start, size) in enumerate(drawn)}
    admitted = admit(starts, ends, most)
    taken = {at: admitted[at] - starts[at] for at in starts}
    assert all(starts[at] <= admitted[at] <= ends[at] for at in starts)
    assert sum(taken.values()) == min(most, sum(size for _, size in drawn))
    assert admit(starts, ends, None) == ends


def test_admission_is_in_proportion():
    starts, ends = {A0: 0, A1: 0, B0: 7}, {A0: 900, A1: 100, B0: 7}
    assert admit(starts, ends, 100) == {A0: 90, A1: 10, B0: 7}


def test_positions_survive_the_checkpoint():
    topic_id = TopicId(__import__("uuid").uuid4())
    places = {A1: Position(5, 2), A0: Position(7)}
    positions = Positions(places, {"a": topic_id}, {"a": 80}, "group", "host:1")
    told = positions.to_json()
    assert Positions.from_json(told) == positions
    assert told["topics"]["a"]["partitions"] == {"0": {"offset": 7, "epoch": -1}, "1": {"offset": 5, "epoch": 2}}


@pytest.mark.parametrize("wrong", [{}, {"orders": {"0": 5}}, {"topics": {"a": {"partitions": {}}}}, {"topics": 5}])
def test_a_checkpoint_of_somebody_else_is_recognised(wrong):
    with pytest.raises(ValueError, match="no position of the tidelog source"):
        Positions.from_json(wrong)


def test_lag_between_positions():
    behind, ahead = Positions({A0: Position(5), A1: Position(9)}), Positions({A0: Position(8), A1: Position(9)})
    assert lag(behind.to_json(), ahead.to_json()) == 3
    assert lag(None, ahead.to_json()) == 0


def test_filters_narrow_what_is_read():
    narrowed = Narrowed()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    kept = narrowed.push(
        [
            EqualTo(("topic",), "a"), In(("partition",), (1, 5)), GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 20), GreaterThanOrEqual(("timestamp",), moment), IsNotNull(("offset",)),
            LessThan(("timestamp",), moment), EqualTo(("key",), b"x"), Not(EqualTo(("topic",), "z")),
            IsNotNull(("value",)), GreaterThan(("partition",), 0),
        ]
    )  # fmt: skip
    assert [type(condition).__name__ for condition in kept] == [
        "GreaterThanOrEqual", "LessThan", "EqualTo", "Not", "IsNotNull", "GreaterThan",
    ]  # fmt: skip
    assert (narrowed.first, narrowed.until) == (10, 21)
    assert narrowed.timestamp_min == int(moment.timestamp() * 1000)
    assert narrowed.allows(A1)
    assert not narrowed.allows(A0)
    assert not narrowed.allows(B0)


def test_one_offset():
    narrowed = Narrowed()
    assert (
        narrowed.push([EqualTo(("offset",), 3), LessThan(("offset",), 100), GreaterThanOrEqual(("offset",), 0)]) == []
    )
    assert (narrowed.first, narrowed.until) == (3, 4)
