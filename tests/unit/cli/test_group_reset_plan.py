"""Where a reset takes a partition: every target, clamping, and the texts people give."""

from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.group.reset_plan import Known, Target, To, csv_lines, parse_csv, parse_duration, plan, since
from tidelog.ids import TopicPartition

P0 = TopicPartition("orders", 0)


def known(committed: int | None = 40, at_time: int | None = None) -> Known:
    return Known(partition=P0, start=10, end=100, committed=committed, at_time=at_time)


@pytest.mark.parametrize(
    ("target", "one", "offset", "effect"),
    [
        (Target(To.EARLIEST), known(), 10, "repeats 30"),
        (Target(To.LATEST), known(), 100, "skips 60"),
        (Target(To.LATEST), known(None), 100, "first commit, 0 to read"),
        (Target(To.CURRENT), known(), 40, "stays"),
        (Target(To.CURRENT), known(None), 100, "first commit, 0 to read"),
        (Target(To.OFFSET, 70), known(), 70, "skips 30"),
        (Target(To.TIME, 123), known(at_time=50), 50, "skips 10"),
        (Target(To.TIME, 123), known(at_time=None), 100, "skips 60"),
        (Target(To.SHIFT, -7), known(), 33, "repeats 7"),
        (Target(To.GIVEN, given={P0: 99}), known(), 99, "skips 59"),
    ],
)
def test_targets(target: Target, one: Known, offset: int, effect: str) -> None:
    (change,) = plan(target, [one])
    assert (change.new_offset, change.effect, change.warning) == (offset, effect, None)
    assert (change.where, change.start_offset, change.end_offset) == (P0, 10, 100)


@pytest.mark.parametrize(
    ("target", "offset", "word"),
    [
        (Target(To.OFFSET, 3), 10, "deleted already"),
        (Target(To.OFFSET, 101), 100, "not written yet"),
        (Target(To.SHIFT, -100), 10, "deleted already"),
        (Target(To.SHIFT, 100), 100, "not written yet"),
    ],
)
def test_clamped(target: Target, offset: int, word: str) -> None:
    (change,) = plan(target, [known()])
    assert change.new_offset == offset
    assert change.warning is not None
    assert word in change.warning


@given(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.none() | st.integers(0, 3000),
    st.sampled_from([To.EARLIEST, To.LATEST, To.CURRENT, To.OFFSET, To.TIME]),
    st.integers(0, 3000),
)
def test_always_within_the_log(start: int, length: int, committed: int | None, to: To, number: int) -> None:
    one = Known(partition=P0, start=start, end=start + length, committed=committed, at_time=None)
    (change,) = plan(Target(to, number), [one])
    assert start <= change.new_offset <= start + length


def test_nothing_to_shift_from() -> None:
    with pytest.raises(typer.BadParameter, match="orders-0 has no committed offset"):
        plan(Target(To.SHIFT, 1), [known(None)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", timedelta(hours=1)),
        ("pt1h30m", timedelta(minutes=90)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P7D", timedelta(days=7)),
        ("90m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "-1h", "P1Y", "soon", "9" * 400 + "d", "P" + "9" * 400 + "D"])
def test_durations_nobody_can_mean(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--by-duration"):
        parse_duration(text)


def test_a_duration_that_is_longer_than_there_were_records_is_all_of_them() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert since(timedelta(hours=1), now) == int(now.timestamp() - 3600) * 1000
    assert since(timedelta(days=99_999_999), now) == 0


def test_csv_there_and_back() -> None:
    changes = plan(Target(To.LATEST), [known(), Known(partition=TopicPartition("a", 3), start=0, end=7, committed=1)])
    assert parse_csv(csv_lines(changes)) == {P0: 100, TopicPartition("a", 3): 7}


def test_csv_as_other_tools_write_it() -> None:
    lines = ["topic,partition,offset", '"orders", 0 ,12', "", "orders,1,0"]
    assert parse_csv(lines) == {P0: 12, TopicPartition("orders", 1): 0}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "no topic,partition,offset line"),
        (["orders,0"], "line 1"),
        (["orders,0,1", "orders,x,1"], "line 2"),
        (["orders,0,-1"], "line 1"),
        (["orders,0,1", "orders,0,2"], "orders-0 is there twice"),
    ],
)
def test_csv_nobody_can_mean(lines: list[str], told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        parse_csv(lines)
