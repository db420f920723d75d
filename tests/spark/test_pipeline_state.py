"""Pipelines that remember, through a real Spark: dedup, aggregate and join, with records that they cannot use."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from tests.spark.kit import Topics, read_all, until_decided
from tests.spark.sink_kit import committed

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.aggregate import Aggregate, aggregate
from tidelog.spark.pipelines.dedup import Dedup, dedup
from tidelog.spark.pipelines.join import Join, join
from tidelog.spark.pipelines.running import run
from tidelog.spark.pipelines.targets import parse_target

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


def event(number: int, minute: int, **more: Any) -> str:
    return json.dumps({"id": number, "at": f"2026-03-01T12:{minute:02d}:00Z", **more})


def read_committed(topics: Topics, topic: str, **more: Any) -> list[dict[str, Any]]:
    until_decided(topics.bootstrap)
    return read_all(topics.options(topic, **{"kafka.isolation.level": "read_committed"}, **more))


def comes_to(topics: Topics, group: str, topic: str, offsets: list[int]) -> bool:
    """Whether the group, which `tidelog group lag` asks, gets there: Spark reports a batch shortly after it is done."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, number) for number in range(len(offsets))]
    deadline = time.monotonic() + 60
    while (there := [place.offset for place in consumer.committed(places, 10)]) != offsets:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    consumer.close()
    return there == offsets


def test_of_duplicates_the_first_passes_also_after_a_restart(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target, dead = topics.make(2), topics.make(1), topics.make(1)
    topics.fill(source, [event(1, 0, n=1), event(2, 1), event(1, 2, n=2)], 0, key=b"k", headers=[("h", b"x")])
    topics.fill(source, ["not json", '{"at": "2026-03-01T12:00:00Z"}', event(3, 1)], 1)
    wanted = Dedup(
        topic=source,
        bootstrap_servers=topics.bootstrap,
        to=parse_target(target),
        home=tmp_path,
        on=("id",),
        event_time="at",
        dead_letter=dead,
        group="dedup-group",
    )
    ended = run(dedup(spark, wanted), once=True)
    assert (ended.rows, ended.dead_letters, ended.duplicates, ended.late) == (6, 2, 1, 0)
    topics.fill(source, [event(2, 3), event(4, 3)], 1)
    assert run(dedup(spark, replace(wanted, dead_letter=None)), once=True).rows == 2
    assert comes_to(topics, "dedup-group", source, [3, 5])
    passed = [event(1, 0, n=1), event(2, 1), event(3, 1), event(4, 3)]
    assert committed(topics.bootstrap, target) == sorted(passed)
    (first,) = [row for row in read_committed(topics, target, includeHeaders=True) if b'"n": 1' in row["value"]]
    assert first["key"] == b"k"
    assert first["headers"] == [{"key": "h", "value": b"x"}]
    letters = read_committed(topics, dead, includeHeaders=True)
    told = {row["value"]: {each["key"]: each["value"].decode() for each in row["headers"]} for row in letters}
    assert told[b"not json"] == {
        "tidelog.error": "the value is not JSON of the schema",
        "tidelog.source.topic": source,
        "tidelog.source.partition": "1",
        "tidelog.source.offset": "0",
        "tidelog.source.timestamp": told[b"not json"]["tidelog.source.timestamp"],
    }
    assert [headers["tidelog.error"] for headers in told.values()].count("id is missing") == 1
    with pytest.raises(InvalidOption, match="was begun with on id, not at"):
        dedup(spark, replace(wanted, on=("at",)))


def test_sums_by_window_are_told_once_when_the_watermark_has_passed(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(1), topics.make(1)
    sales = [(1, 0, 5, "eu"), (2, 0, 7, "us"), (3, 0, 1, "eu"), (4, 1, 2, "eu"), (5, 9, 0, "eu")]
    topics.fill(source, [event(n, minute, amount=amount, region=region) for n, minute, amount, region in sales])
    topics.fill(source, ["rotten"])
    wanted = Aggregate(
        topic=source,
        bootstrap_servers=topics.bootstrap,
        to=parse_target(target),
        home=tmp_path / "sums",
        by=("region",),
        window="1 minute",
        watermark="2 minutes",
        measures=("sum(amount)", "count(*)", "max(amount) as most"),
        event_time="at",
    )
    ended = run(aggregate(spark, wanted), once=True)
    assert (ended.rows, ended.dead_letters) == (6, 1)
    rows = {row["key"]: json.loads(row["value"]) for row in read_committed(topics, target)}
    first = {"window_start": "2026-03-01T12:00:00.000Z", "window_end": "2026-03-01T12:01:00.000Z"}
    assert rows[b'{"region":"eu","window_start":"2026-03-01T12:00:00.000Z"}'] == {
        **first, "region": "eu", "sum_amount": 6, "count": 2, "most": 5,
    }  # fmt: skip
    assert sorted((row["window_start"][14:16], row["region"], row["sum_amount"]) for row in rows.values()) == [
        ("00", "eu", 6), ("00", "us", 7), ("01", "eu", 2),
    ]  # fmt: skip
    topics.fill(source, [event(6, 0, amount=100, region="eu"), event(7, 30, amount=1, region="eu")])
    ended = run(aggregate(spark, wanted), once=True)
    assert (ended.rows, ended.late) == (2, 1)
    assert len(read_committed(topics, target)) == 4

    # The same, as a table that is kept up to date.
    table = tmp_path / "lake"
    kept = replace(wanted, to=parse_target(str(table)), home=table / "_tidelog", mode="update", format="delta")
    run(aggregate(spark, kept), once=True)
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["window_start"].minute, row["region"], row["sum_amount"]) for row in found) == [
        (0, "eu", 106), (0, "us", 7), (1, "eu", 2), (9, "eu", 0), (30, "eu", 1),
    ]  # fmt: skip


def test_events_of_two_topics_find_each_other(spark: Any, topics: Topics, tmp_path: Path) -> None:
    orders, payments, lake = topics.make(1), topics.make(1), tmp_path / "lake"
    topics.fill(orders, [event(n, n, item=f"item-{n}") for n in range(4)] + [event(9, 50)])
    paid = [{"order": str(n), "paid_at": f"2026-03-01T12:{minute:02d}:30Z"} for n, minute in ((0, 1), (1, 40), (2, 2))]
    topics.fill(payments, [json.dumps(each) for each in paid] + ['{"order": null, "paid_at": "2026-03-01T12:50:00Z"}'])
    topics.fill(payments, ['{"order": "77", "paid_at": "2026-03-01T12:50:00Z"}'])
    wanted = Join(
        topic=orders,
        right=payments,
        bootstrap_servers=topics.bootstrap,
        to=parse_target(str(lake)),
        home=lake / "_tidelog",
        on="id",
        on_right="order",
        event_time="at",
        event_time_right="paid_at",
        within="5 minutes",
        watermark="1 minute",
        how="left",
    )
    ended = run(join(spark, wanted), once=True)
    assert (ended.rows, ended.dead_letters) == (10, 1)
    files = f"read_parquet('{lake}/**/*.parquet')"
    pairs = duckdb.sql(f'select "on", "left".item, "right"."order", date::text from {files} order by 1')
    assert pairs.fetchall() == [
        (0, "item-0", "0", "2026-03-01"),
        (1, "item-1", None, "2026-03-01"),
        (2, "item-2", "2", "2026-03-01"),
        (3, "item-3", None, "2026-03-01"),
    ]
