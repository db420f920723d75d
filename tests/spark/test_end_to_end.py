"""Through a real Spark: the source as users see it."""

import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.functions import window
from tests.spark.kit import Topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    topic = topics.make(2)
    for p in range(2):
        topics.fill(topic, [f"{p}-{i}" for i in range(500)], p, key=b"k", headers={"source": b"test"})
    return topic


def batch(spark: Any, topics: Topics, topic: str, **options: Any) -> Any:
    return spark.read.format("tidelog").options(**topics.options(topic, **options))


def stream(spark: Any, topics: Topics, topic: str, **options: Any) -> Any:
    given = topics.options(topic, startingOffsets="earliest", **options)
    return spark.readStream.format("tidelog").options(**given)


def run(frame: Any, directory: Path) -> tuple[list[Any], Any]:
    """One AvailableNow run: the rows of all its batches, and the query."""
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return rows, query


def test_a_batch_read_is_what_sparks_kafka_source_gives(spark, topics, filled):
    frame = batch(spark, topics, filled, includeHeaders="true").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert frame.count() == 1000
    row = frame.selectExpr("CAST(value AS STRING) AS value", "*").where("partition = 1 AND offset = 7").collect()[0]
    assert (row[0], bytes(row["key"]), row["topic"], row["timestampType"]) == ("1-7", b"k", filled, 0)
    assert [(h["key"], bytes(h["value"])) for h in row["headers"]] == [("source", b"test")]


def test_nothing_and_empty_stay_apart_however_spark_looks(spark, topics):
    """Arrow is told not to look again for nulls that Spark has asked for: nobody may come to a value without asking."""
    told = spark._jvm.java.lang.System.getProperty
    assert told("arrow.enable_null_check_for_get") == "false"
    assert told("arrow.enable_unsafe_memory_access") == "true"

    pairs = [(None, None), (None, b""), (b"", None), (b"", b""), (b"k", b"v")] * 20
    topic = topics.make()
    for key, value in pairs:
        topics.fill(topic, [value], key=key)
    frame = batch(spark, topics, topic).load()
    assert [field.nullable for field in frame.schema.fields] == [True, True, False, False, False, False, False]
    ordered = frame.orderBy("offset")

    def bare(rows: list[Any]) -> list[tuple[bytes | None, bytes | None]]:
        return [(None if a is None else bytes(a), None if b is None else bytes(b)) for a, b, *_ in rows]

    assert bare(frame.collect()) == bare(ordered.collect()) == pairs
    copied = frame.select("key", "value", "offset").mapInArrow(
        lambda batches: batches, "key binary, value binary, offset long"
    )
    assert bare(copied.orderBy("offset").collect()) == pairs
    assert frame.where("key IS NULL").count() == 40
    assert frame.where("length(value) = 0").count() == 40
    assert frame.where("key = value").count() == 20
    assert {(row[0], row[1]) for row in frame.groupBy("key").count().selectExpr("hex(key)", "count").collect()} == {
        (None, 40),
        ("", 40),
        ("6B", 20),
    }
    assert frame.selectExpr("count(value)", "count(offset)", "count(DISTINCT value)").collect()[0][:] == (60, 100, 2)
    decoded = batch(spark, topics, topic, **{"value.format": "string"}).load().orderBy("offset").collect()
    assert [row["value"] for row in decoded] == [None if value is None else value.decode() for _, value in pairs]


def test_workers_import_what_is_compiled(spark):
    """From Spark's zip every Python process would compile PySpark again."""

    def place(batches):
        import pyarrow
        import pyspark

        for _ in batches:
            yield pyarrow.record_batch({"file": [pyspark.__file__]})

    (row,) = spark.range(1).mapInArrow(place, "file string").collect()
    assert row.file == pyspark.__file__


def test_filters_give_what_spark_would_give_without_pushing(spark, topics, filled):
    frame = batch(spark, topics, filled).load()
    middle = frame.where("partition = 0").agg({"timestamp": "avg"}).collect()[0][0]
    for condition in (
        "offset BETWEEN 100 AND 199 AND partition IN (0, 5)",
        "partition = 1 AND offset > 490",
        f"topic = '{filled}' AND offset < 3",
        "topic = 'other'",
        f"timestamp >= timestamp_millis({int(middle * 1000)})",
        "offset = 3 OR offset = 5",
        "offset >= 0 AND value IS NOT NULL AND NOT partition = 0",
    ):
        pushed = batch(spark, topics, filled, pushFilters=True).load().where(condition).count()
        # The one frame for all: what an earlier query asked for must not narrow a later one.
        assert pushed == frame.where(condition).count(), condition


def test_fewer_columns_by_the_users_schema(spark, topics, filled):
    frame = batch(spark, topics, filled).schema("offset bigint, key binary").load()
    assert frame.columns == ["offset", "key"]
    assert frame.agg({"offset": "sum"}).collect()[0][0] == 2 * sum(range(500))


def test_sql_and_aggregation(spark, topics, filled):
    batch(spark, topics, filled, minPartitions=4).load().createOrReplaceTempView("events")
    found = spark.sql("SELECT partition, count(*) AS n, max(offset) AS top FROM events GROUP BY partition ORDER BY 1")
    assert [tuple(row) for row in found.collect()] == [(0, 500, 499), (1, 500, 499)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at latest"),
    ],
)
def test_wrong_options_are_told_by_spark(spark, topics, filled, options, complaint):
    with pytest.raises(Exception, match=complaint):
        batch(spark, topics, filled, **options).load().count()


def test_values_decoded_on_the_way(spark, topics, tmp_path):
    topic = topics.make()
    topics.fill(topic, ['{"id": 1, "item": "tea"}', "rotten", '{"id": 2}'])
    options = {"value.format": "json", "value.schema": "id BIGINT, item STRING"}
    frame = batch(spark, topics, topic, **options).load()
    rows = frame.select("value.*", "_error", "_raw").collect()
    assert [(row.id, row.item) for row in rows] == [(1, "tea"), (None, None), (2, None)]
    assert bytes(rows[1]._raw) == b"rotten"
    assert rows[1]._error
    streamed, _ = run(stream(spark, topics, topic, **options).load(), tmp_path)
    assert [row.value and row.value.id for row in streamed] == [1, None, 2]


def test_nothing_to_read(spark, topics):
    assert batch(spark, topics, topics.make()).load().count() == 0


def test_a_stream_goes_on_where_it_stopped(spark, topics, tmp_path):
    topic = topics.make(2)
    topics.fill(topic, range(10), 0)
    options = {"maxOffsetsPerTrigger": 4, "kafka.group.id": f"g-{topic}"}
    frame = stream(spark, topics, topic, **options).load().selectExpr("CAST(value AS STRING) AS value")
    before, query = run(frame, tmp_path)
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [4, 4, 2]
    topics.fill(topic, range(10, 15), 1)
    after, _ = run(frame, tmp_path)
    assert [row.value for row in before] == [str(i) for i in range(10)]
    assert [row.value for row in after] == [str(i) for i in range(10, 15)]
    # The last batch too, though Spark commits it nowhere: it tells its listeners a moment after the query has ended.
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": f"g-{topic}", "log_level": 0})

    def committed():
        found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=10)
        return [place.offset for place in found]

    deadline = time.monotonic() + 60
    while committed() != [10, 5] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert committed() == [10, 5]


def test_a_running_stream_sees_new_records_and_partitions(spark, topics, tmp_path):
    topic = topics.make(1)
    writer = stream(spark, topics, topic).load().writeStream.format("memory").queryName("running")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        topics.fill(topic, range(3))
        query.processAllAvailable()
        topics.widen(topic, 2)
        topics.fill(topic, range(2), 1)
        deadline = time.monotonic() + 60
        while spark.table("running").count() < 5 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert spark.table("running").count() == 5
        source = query.lastProgress.sources[0]
        assert source.latestOffset
    finally:
        query.stop()


def test_a_stream_stops_and_names_what_it_lost(spark, topics, tmp_path):
    topic = topics.make()
    topics.fill(topic, range(5))
    frame = stream(spark, topics, topic).load()
    assert len(run(frame, tmp_path)[0]) == 5
    topics.delete(topic)
    time.sleep(0.3)
    topics.make(name=topic)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created anew"):
        run(frame, tmp_path)


def test_event_time_windows(spark, topics, tmp_path):
    """Timestamps are Spark's own type: watermarks and windows work on them."""
    topic = topics.make()
    minute = 60_000
    base = int(time.time() * 1000) // minute * minute - 2 * minute
    for i in range(12):
        topics.fill(topic, [i], timestamp=base + i * minute // 6)
    frame = (
        stream(spark, topics, topic)
        .load()
        .withWatermark("timestamp", "1 second")
        .groupBy(window("timestamp", "1 minute"))
        .count()
    )
    writer = frame.writeStream.format("memory").queryName("windows").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(row["count"] for row in spark.table("windows").collect()) == [6, 6], query.recentProgress
