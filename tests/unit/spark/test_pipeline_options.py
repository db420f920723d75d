"""What pipelines are told, before any Spark: durations, measures, fields, targets, and what may not change later."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from tidelog.cli.options import Output
from tidelog.cli.pipeline.results import ROWS_MAX, Results
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import parse_options
from tidelog.spark.pipelines.aggregate import Aggregate
from tidelog.spark.pipelines.dedup import Dedup
from tidelog.spark.pipelines.durations import interval, milliseconds
from tidelog.spark.pipelines.fields import comparable, kind_of
from tidelog.spark.pipelines.join import Join
from tidelog.spark.pipelines.measures import Measure, parse_measures
from tidelog.spark.pipelines.ordering import in_order_of_log
from tidelog.spark.pipelines.reading import stream_options
from tidelog.spark.pipelines.settling import settle
from tidelog.spark.pipelines.targets import CONSOLE, LAKE, TOPIC, Target, parse_target
from tidelog.spark.slices import Slice, plan

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("customer", StructType([StructField("name", StringType())])),
        StructField("lines", ArrayType(StringType())),
    ]
)
COMMON: dict[str, Any] = {"bootstrap_servers": "localhost:1", "to": Target(TOPIC, "out"), "home": Path("home")}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 minutes", 600_000),
        ("1 hour 30 minutes", 5_400_000),
        ("90s", 90_000),
        ("1 Day", 86_400_000),
        ("2 weeks", 1_209_600_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
    ],
)
def test_lengths_of_time(text: str, length: int) -> None:
    assert milliseconds(text, "--window") == length
    assert interval(length) == f"{length} milliseconds"


@pytest.mark.parametrize("text", ["", "minute", "10", "1 month", "-1 minute", "1 minute or so", "0 seconds", "1.5 h"])
def test_what_is_no_length_of_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidOption, match="--window"):
        milliseconds(text, "--window")


@given(st.text(max_size=30))
def test_no_text_breaks_the_reading_of_durations(text: str) -> None:
    with suppress(InvalidOption):
        assert milliseconds(text, "--every") > 0


def test_measures() -> None:
    assert Measure.parse("sum(amount)") == Measure("sum", "amount", "sum_amount")
    assert Measure.parse(" COUNT( * ) ") == Measure("count", "*", "count")
    assert Measure.parse("avg(a.b) as mean") == Measure("avg", "a.b", "mean")
    assert Measure.parse("approx_count_distinct(user.id)").name == "approx_count_distinct_user_id"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("amount", "is not understood"),
        ("sum(a) + sum(b)", "is not understood"),
        ("median(a)", "there is no median; there are sum, count"),
        ("sum(*)", "only count takes"),
        ("sum()", "is not understood"),
    ],
)
def test_a_measure_that_is_none(text: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        parse_measures((text,))


def test_measures_are_held_against_the_schema() -> None:
    with pytest.raises(InvalidOption, match="no such field; did you mean id"):
        Measure.parse("sum(idd)").column(SCHEMA)
    with pytest.raises(InvalidOption, match=r"customer\.name is of type string, no number"):
        Measure.parse("avg(customer.name)").column(SCHEMA)
    with pytest.raises(InvalidOption, match="no --measure"):
        parse_measures(())


def test_fields_are_found_by_their_path() -> None:
    assert kind_of(SCHEMA, "customer.name", "--on") == StringType()
    assert kind_of(SCHEMA, "key", "--on") == StringType()
    with pytest.raises(InvalidOption, match="--on shop: no such field; there are id, customer, lines"):
        kind_of(SCHEMA, "shop", "--on")
    with pytest.raises(InvalidOption, match=r"--on id\.x: no such field; the value has none"):
        kind_of(SCHEMA, "id.x", "--on")
    with pytest.raises(InvalidOption, match=r"--by customer is of type struct.*name a field within it"):
        comparable(SCHEMA, "customer", "--by")


def test_a_path_has_a_slash() -> None:
    assert parse_target("orders-2") == Target(TOPIC, "orders-2")
    assert parse_target("./lake") == Target(LAKE, "./lake")
    assert parse_target("console") == Target(TOPIC, "console")
    assert parse_target("console", console=True).kind == CONSOLE
    with pytest.raises(InvalidOption, match="--to is empty"):
        parse_target(" ")


def test_what_cannot_be_is_said_before_anything_is_read() -> None:
    Dedup(topic="in", on=("id",), **COMMON).check()
    for wanted, says in (
        (Dedup(topic="out", **COMMON), "out would be written into itself"),
        (Dedup(topic="in", watermark="soon", **COMMON), "--watermark 'soon'"),
        (Aggregate(topic="in", window="no", **COMMON), "--window 'no'"),
        (Aggregate(topic="in", slide="2 minutes", **COMMON), "--slide '2 minutes' is longer than --window"),
        (Aggregate(topic="in", measures=("max(a)", "max(a)"), **COMMON), "two columns would be called max_a"),
        (Aggregate(topic="in", by=("a.b",), measures=("count(*) as a_b",), **COMMON), "be called a_b"),
        (Aggregate(topic="in", mode="complete", **COMMON), "it may be append or update"),
        (Join(topic="in", right="in", on="id", **COMMON), "cannot be joined with itself"),
        (Join(topic="in", right="out", on="id", **COMMON), "out would be written into itself"),
        (Join(topic="in", right="b", on="id", how="outer", **COMMON), "it may be inner or left"),
        (Join(topic="in", right="b", on="id", within="x", **COMMON), "--within 'x'"),
    ):
        with pytest.raises(InvalidOption, match=says):
            wanted.check()
    lake = replace(Aggregate(topic="in", mode="update", **COMMON), to=Target(LAKE, "a/b"))
    with pytest.raises(InvalidOption, match="needs --format delta"):
        lake.check()
    replace(lake, format="delta").check()


def test_a_later_run_does_not_contradict_the_first(tmp_path: Path) -> None:
    path = tmp_path / "x" / "pipeline.json"
    assert settle(path, "here", {"on": ["id"], "to": "topic"}, infer=lambda: SCHEMA) == SCHEMA
    assert settle(path, "here", {"on": ["id"], "to": "topic"}, infer=StructType) == SCHEMA
    with pytest.raises(InvalidOption, match="here was begun with on id, not id, key"):
        settle(path, "here", {"on": ["id", "key"], "to": "topic"})
    with pytest.raises(InvalidOption, match="here was begun with event time none, not at"):
        settle(path, "here", {"event_time": "at"})


def test_rows_that_change_take_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(Output.TEXT, 2)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    results.take([{"start": at, "region": "eu", "sum": 1.5}, {"start": at, "region": None, "sum": 2}])
    results.take([{"start": at, "region": "eu", "sum": 1234.5}])
    results.take([])
    assert results.table().row_count == 2
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in shown] == [
        ["region", "sum"], ["-", "2"], ["eu", "1.50"], ["region", "sum"], ["eu", "1,234.50"],
    ]  # fmt: skip
    results.take([{"start": number, "region": "x", "sum": 0} for number in range(100)])
    assert results.table().row_count == ROWS_MAX
    told = Results(Output.JSON, 1)
    capsys.readouterr()
    told.take([{"start": at, "sum": 2}])
    assert capsys.readouterr().out == '{"row":{"start":"2026-01-01 00:00:00+00:00","sum":2}}\n'


def test_records_of_a_partition_are_written_by_one_task_in_the_order_of_the_log() -> None:
    wanted = Dedup(topic="in", offsets_per_trigger=1_000_000, **COMMON)
    big = [Slice("in", 0, 0, 900_000), Slice("in", 1, 0, 100_000)]
    options = parse_options(stream_options(wanted, "in", in_order=True), streaming=True)
    tasks = plan(big, max_records=options.max_records_per_partition, record_bytes={"in": 1000})
    assert [task.slices for task in tasks] == [(each,) for each in big]
    assert "maxRecordsPerPartition" not in stream_options(wanted, "in")
    scattered = {"partition": [1, 0, 0, 1], "offset": [5, 9, 3, 2], "value": ["b5", "a9", "a3", "b2"]}
    batches = pa.table(scattered).to_batches(max_chunksize=2)
    found = [row["value"] for batch in in_order_of_log(iter(batches)) for row in batch.to_pylist()]
    assert found == ["a3", "a9", "b2", "b5"]
    assert list(in_order_of_log(iter(()))) == []
