"""Pipelines through a real Spark, as the commands build them."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from tests.spark.kit import Topics, read_all, until_decided
from tests.spark.sink_kit import committed

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.archive import Archive, archive, archive_dead_letters
from tidelog.spark.pipelines.running import Progress, Queries, run
from tidelog.spark.pipelines.topics import Route, replay, route
from tidelog.spark.pipelines.view import View, view

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


def order(number: int) -> str:
    day = 1 + number % 3
    return json.dumps({"id": number, "amount": number / 2, "at": f"2026-03-0{day}T12:00:00Z"})


def query(to: Path, what: str, of: str = "") -> list[tuple[Any, ...]]:
    files = f"read_parquet('{to}/**/*.parquet', hive_partitioning=true)"
    return duckdb.sql(f"select {what} from {files} {of}").fetchall()


def test_an_archive_of_json_by_the_day_of_the_event(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic, dead, to = topics.make(2), topics.make(1), tmp_path / "lake"
    topics.fill(topic, [order(number) for number in range(30)], 0)
    topics.fill(topic, ["not json", order(30)], 1)
    wanted = Archive(
        topic=topic,
        to=to,
        bootstrap_servers=topics.bootstrap,
        value="json",
        event_time="at",
        offsets_per_trigger=20,
        group="archivist",
    )
    seen: list[Progress] = []
    work = Queries(archive(spark, wanted), [archive_dead_letters(spark, wanted, dead)])
    ended = run(work, once=True, on_progress=seen.append)
    assert (ended.rows, ended.batches, ended.stopped, ended.dead_letters) == (32, 2, False, 1)
    assert committed(topics.bootstrap, dead) == ["not json"]
    assert [each.lag for each in seen] == [12, 0]
    assert query(to, "count(*), count(distinct id), sum(amount)") == [(32, 31, 232.5)]
    unparsed = query(to, "_unparsed, id, _partition, _offset", "where _unparsed is not null")
    assert unparsed == [("not json", None, 1, 0)]
    days = dict(query(to, "date::text, count(*)", "where id is not null group by all"))
    assert days == {"2026-03-01": 11, "2026-03-02": 10, "2026-03-03": 10}

    topics.fill(topic, [order(31)], 0)
    assert run(archive(spark, wanted), once=True).rows == 1
    assert query(to, "count(*), count(distinct id)") == [(33, 32)]
    with pytest.raises(InvalidOption, match="was begun with value json, not string"):
        archive(spark, Archive(topic=topic, to=to, bootstrap_servers=topics.bootstrap, event_time="at"))


def test_an_archive_of_text_begins_where_it_is_told(spark: Any, topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(1)
    topics.fill(topic, range(10), key=b"k", headers=[("h", b"1")])
    wanted = Archive(
        topic=topic,
        to=tmp_path,
        bootstrap_servers=topics.bootstrap,
        starting=json.dumps({topic: {"0": 7}}),
    )
    run(archive(spark, wanted), once=True)
    assert query(tmp_path, 'key, value, "offset", headers[1].key') == [("k", str(n), n, "h") for n in (7, 8, 9)]


def test_a_schema_that_cannot_be_inferred_is_asked_for(spark: Any, topics: Topics, tmp_path: Path) -> None:
    empty, text = topics.make(1), topics.make(1)
    topics.fill(text, ["hello"])
    for topic, says in ((empty, "no records to infer a schema from"), (text, "is no JSON object: 'hello'")):
        with pytest.raises(InvalidOption, match=says):
            archive(
                spark,
                Archive(topic=topic, to=tmp_path / topic, bootstrap_servers=topics.bootstrap, value="json"),
            )


def test_a_view_has_the_latest_value_of_every_key_and_forgets_deleted_ones(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    topic, to = topics.make(2), tmp_path / "view"
    wanted = View(topic=topic, to=to, bootstrap_servers=topics.bootstrap, offsets_per_trigger=4)

    def rows() -> dict[str, str]:
        table = DeltaTable(str(to)).to_pyarrow_table()
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    topics.fill(topic, ["1", "2", "3"], 0, key=b"a")
    topics.fill(topic, ["1"], 0, key=b"b")
    topics.fill(topic, ["1", "2"], 1, key=b"c")
    run(view(spark, wanted), once=True)
    assert rows() == {"a": "3", "b": "1", "c": "2"}
    producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})
    producer.produce(topic, None, b"a", 0)
    assert producer.flush(20) == 0
    topics.fill(topic, ["2"], 0, key=b"b")
    topics.fill(topic, ["1"], 0, key=b"d")
    run(view(spark, wanted), once=True)
    assert rows() == {"b": "2", "c": "2", "d": "1"}

    # The last batch is planned again, as after a crash: it is in the table, and changes nothing.
    versions = DeltaTable(str(to)).version()
    last = max(int(path.name) for path in (wanted.checkpoint / "commits").glob("[0-9]*"))
    for path in (wanted.checkpoint / "commits" / str(last), wanted.checkpoint / "commits" / f".{last}.crc"):
        path.unlink()
    run(view(spark, wanted), once=True)
    assert (rows(), DeltaTable(str(to)).version()) == ({"b": "2", "c": "2", "d": "1"}, versions)

    topics.fill(topic, ["x"], 1)
    with pytest.raises(StreamingQueryException, match=f"{topic}-1 has a record without a key at offset 2"):
        run(view(spark, wanted), once=True)


def test_a_view_whose_checkpoint_was_lost_takes_no_batch_for_one_that_it_has(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    """Batches are counted anew with every checkpoint: their numbers say nothing about those of the one before."""
    topic, to = topics.make(1), tmp_path / "view"
    wanted = View(topic=topic, to=to, bootstrap_servers=topics.bootstrap)
    topics.fill(topic, ["1"], 0, key=b"a")
    run(view(spark, wanted), once=True)
    shutil.rmtree(wanted.checkpoint)
    topics.fill(topic, ["2"], 0, key=b"a")
    topics.fill(topic, ["1"], 0, key=b"b")
    run(view(spark, wanted), once=True)
    table = DeltaTable(str(to)).to_pyarrow_table()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == {"a": "2", "b": "1"}


def test_a_replay_keeps_records_as_they_were_and_says_where_they_come_from(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make(2), topics.make(3)
    topics.fill(source, range(5), 0, key=b"a", headers=[("mine", b"x")])
    topics.fill(source, range(5, 8), 1)
    wanted = Route(topic=source, bootstrap_servers=topics.bootstrap, checkpoint=tmp_path)
    assert run(replay(spark, wanted, target), once=True).rows == 8
    before = {row["value"]: row for row in read_all(topics.options(source, includeHeaders=True))}
    until_decided(topics.bootstrap)
    after = read_all(topics.options(target, includeHeaders=True, **{"kafka.isolation.level": "read_committed"}))
    assert {row["value"] for row in after} == before.keys()
    for row in after:
        first = before[row["value"]]
        assert (row["key"], row["timestamp"]) == (first["key"], first["timestamp"])
        kept = first["headers"] or []
        assert row["headers"][: len(kept)] == kept
        found = {each["key"]: each["value"].decode() for each in row["headers"][len(kept) :]}
        assert found == {
            "tidelog.source.topic": source,
            "tidelog.source.partition": str(first["partition"]),
            "tidelog.source.offset": str(first["offset"]),
            "tidelog.source.timestamp": str(round(first["timestamp"].timestamp() * 1000)),
        }
    with pytest.raises(InvalidOption, match="into itself"):
        replay(spark, wanted, source)


def test_a_replay_leaves_out_what_is_too_young(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(1), topics.make(1)
    topics.fill(source, ["old"])
    (row,) = read_all(topics.options(source))
    end = round(row["timestamp"].timestamp() * 1000) + 1
    topics.fill(source, ["young"], timestamp=end)
    wanted = Route(topic=source, bootstrap_servers=topics.bootstrap, checkpoint=tmp_path)
    run(replay(spark, wanted, target, until_timestamp=end), once=True)
    assert committed(topics.bootstrap, target) == ["old"]


def test_a_topic_is_divided_by_its_fields(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, big, odd, rest = (topics.make(1) for _ in range(4))
    topics.fill(source, [order(number) for number in range(10)] + ["not json"])
    wanted = Route(topic=source, bootstrap_servers=topics.bootstrap, checkpoint=tmp_path)
    rules = {big: "amount >= 4", odd: "id % 2 = 1"}
    run(route(spark, wanted, rules, otherwise=rest, value="json"), once=True)
    numbers = [[json.loads(each)["id"] for each in committed(topics.bootstrap, topic)] for topic in (big, odd)]
    assert [sorted(each) for each in numbers] == [[8, 9], [1, 3, 5, 7]]
    assert committed(topics.bootstrap, rest) == sorted([*(order(n) for n in (0, 2, 4, 6)), "not json"])


def test_a_topic_is_divided_by_key_and_what_no_rule_takes_stays_out(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(1), topics.make(1)
    topics.fill(source, ["a", "b"], key=b"eu-1")
    topics.fill(source, ["c"], key=b"us-1")
    wanted = Route(topic=source, bootstrap_servers=topics.bootstrap, checkpoint=tmp_path)
    run(route(spark, wanted, {target: "key like 'eu-%' and value <> 'b'"}), once=True)
    assert committed(topics.bootstrap, target) == ["a"]
    with pytest.raises(InvalidOption, match="cannot be routed into itself"):
        route(spark, wanted, {source: "true"})
