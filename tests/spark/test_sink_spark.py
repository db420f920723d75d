"""The sink through a real Spark: frames and streams, and a checkpoint that forgot its last commit."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from tests.spark.kit import Topics, read_all
from tests.spark.sink_kit import committed

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


def to(frame: Any, topics: Topics, topic: str | None = None, **options: Any) -> Any:
    writer = frame.write.format("tidelog").mode("append").option("kafka.bootstrap.servers", topics.bootstrap)
    if topic is not None:
        writer = writer.option("topic", topic)
    return writer.options(**options)


def test_a_frame_with_every_column(spark: Any, topics: Topics) -> None:
    base = time.time_ns() // 1_000_000 - 3_600_000
    first, second = topics.make(2), topics.make(3)
    rows = spark.sql(
        f"""
        select cast(id as string) as key, concat('v', id) as value, if(id % 2 = 0, '{first}', '{second}') as topic,
               if(id < 4, 1, null) as partition,
               array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers,
               timestamp_millis({base} + id) as timestamp
        from range(0, 100, 1, 3)
        """
    )
    to(rows, topics).save()
    for topic, rest in ((first, 0), (second, 1)):
        found = read_all(topics.options(topic, includeHeaders=True))
        assert sorted(int(row["key"]) for row in found) == list(range(rest, 100, 2))
        for row in found:
            number = int(row["key"])
            assert row["value"] == f"v{number}".encode()
            assert row["headers"] == [{"key": "h", "value": b"x"}]
            assert row["timestamp"].timestamp() * 1000 == pytest.approx(base + number)
            assert number >= 4 or row["partition"] == 1


def test_a_frame_exactly_once_and_one_that_fails_halfway(spark: Any, topics: Topics) -> None:
    topic = topics.make(2)
    good = spark.range(0, 200, 1, 2).selectExpr("cast(id as string) value")
    to(good, topics, topic, delivery="exactly-once").save()
    bad = spark.range(0, 200, 1, 2).selectExpr("cast(id as string) value", "if(id = 150, 9, 0) as partition")
    with pytest.raises(Exception, match=r"partition 9 present in the data; topic \S+ has partitions 0\.\.1"):
        to(bad, topics, topic, delivery="exactly-once").save()
    assert committed(topics.bootstrap, topic) == sorted(map(str, range(200)))


def test_what_cannot_be_written_is_refused_before_a_task_starts(spark: Any, topics: Topics) -> None:
    with pytest.raises(AnalysisException, match="Required attribute 'value' not found"):
        to(spark.range(1).selectExpr("cast(id as string) key"), topics, "x").save()
    with pytest.raises(AnalysisException, match="topic option required"):
        to(spark.range(1).selectExpr("cast(id as string) value"), topics).save()


def copy(spark: Any, topics: Topics, source: str, target: str, checkpoint: Path, **options: Any) -> Any:
    rows = (
        spark.readStream.format("tidelog")
        .options(**topics.options(source, startingOffsets="earliest", maxOffsetsPerTrigger=100))
        .load()
    )
    writer = rows.select("key", "value").writeStream.format("tidelog").option("checkpointLocation", str(checkpoint))
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", target).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_topic_to_topic_in_several_batches_and_a_restart(
    spark: Any, topics: Topics, tmp_path: Path, delivery: str
) -> None:
    source, target = topics.make(2), topics.make(3)
    for partition in (0, 1):
        topics.fill(source, range(partition, 300, 2), partition)
    query = copy(spark, topics, source, target, tmp_path, delivery=delivery)
    assert query.lastProgress["batchId"] == 2
    topics.fill(source, range(300, 310))
    copy(spark, topics, source, target, tmp_path, delivery=delivery)
    assert committed(topics.bootstrap, target) == sorted(map(str, range(310)))


def test_a_batch_whose_commit_spark_has_forgotten_is_skipped(spark: Any, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(1), topics.make(1)
    topics.fill(source, range(150))
    copy(spark, topics, source, target, tmp_path)
    for name in ("1", ".1.crc"):
        (tmp_path / "commits" / name).unlink()
    topics.fill(source, range(150, 160))
    copy(spark, topics, source, target, tmp_path)
    assert committed(topics.bootstrap, target) == sorted(map(str, range(160)))


def test_a_row_that_cannot_be_written_stops_the_query_and_leaves_nothing_of_its_batch(
    spark: Any, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make(1), topics.make(1)
    topics.fill(source, ["a", "b"])
    rows = spark.readStream.format("tidelog").options(**topics.options(source, startingOffsets="earliest")).load()
    bad = rows.selectExpr("value", "if(cast(value as string) = 'b', 5, 0) as partition")
    query = (
        bad.writeStream.format("tidelog")
        .option("checkpointLocation", str(tmp_path))
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="partition 5 present in the data"):
        query.awaitTermination()
    assert committed(topics.bootstrap, target) == []
