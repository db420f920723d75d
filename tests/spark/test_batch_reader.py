"""`spark.read` without Spark: what the batch reader plans and reads from a broker."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition, LessThan
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tests.spark.kit import Topics, batch_reader, read_all, values_of

from tidelog.client.fetcher import DataLost, TopicGone
from tidelog.errors import UnknownTopicOrPartition
from tidelog.spark.bounds import InvalidOption
from tidelog.wire.messages.data import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def filled(topics: Topics) -> str:
    """Three partitions with 10 records each, timestamps 1000, 2000, …; values p-i."""
    topic = topics.make(3, retention_ms="-1")
    for p in range(3):
        for i in range(10):
            topics.fill(topic, [f"{p}-{i}"], p, key=b"k%d" % i, timestamp=1000 * (i + 1))
    return topic


def expect(*ranges: tuple[int, int, int]) -> list[str]:
    return [f"{p}-{i}" for p, start, end in ranges for i in range(start, end)]


def per_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(p): number for p, number in enumerate(numbers)}})


def truncate(topics: Topics, topic: str, offset: int) -> None:
    from tidelog.client import NegotiatedConnection

    host, port = topics.bootstrap.split(":")
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    with NegotiatedConnection(host, int(port)) as connection:
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(row,)),), timeout_ms=5000)
        assert connection.ask(request).topics[0].partitions[0].error_code == 0


def test_everything_by_default(topics, filled):
    rows = read_all(topics.options(filled))
    assert values_of(rows) == expect((0, 0, 10), (1, 0, 10), (2, 0, 10))
    assert list(rows[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert (rows[11]["topic"], rows[11]["partition"], rows[11]["offset"]) == (filled, 1, 1)
    assert rows[11]["key"] == b"k1"
    assert rows[11]["timestamp"].timestamp() == 2.0


def test_headers(topics):
    topic = topics.make()
    topics.fill(topic, ["x"], headers={"a": b"1"})
    assert read_all(topics.options(topic, includeHeaders="true"))[0]["headers"] == [{"key": "a", "value": b"1"}]


def test_the_users_schema_prunes_columns(topics, filled):
    schema = StructType([StructField("offset", LongType()), StructField("key", BinaryType())])
    assert read_all(topics.options(filled), schema)[3] == {"offset": 3, "key": b"k3"}
    for field, complaint in ((StructField("colour", StringType()), "no column colour"),
                             (StructField("key", StringType()), "of type binary, not string")):  # fmt: skip
        with pytest.raises(InvalidOption, match=complaint):
            batch_reader(topics.options(filled), StructType([field]))


@pytest.mark.parametrize(
    ("starting", "ending", "found"),
    [
        ((2, -2, 10), (5, 4, -1), [(0, 2, 5), (1, 0, 4)]),
        ((0, 0, 3), (0, 0, 4), [(2, 3, 4)]),
    ],
)
def test_offsets_per_partition(topics, filled, starting, ending, found):
    options = topics.options(
        filled, startingOffsets=per_partition(filled, *starting), endingOffsets=per_partition(filled, *ending)
    )
    assert values_of(read_all(options)) == expect(*found)


def test_timestamps(topics, filled):
    one = topics.options(filled, startingTimestamp=4500, endingTimestamp=7000)
    assert values_of(read_all(one)) == expect((0, 4, 6), (1, 4, 6), (2, 4, 6))
    each = topics.options(
        filled,
        startingOffsetsByTimestamp=per_partition(filled, 9000, 1, 10_000),
        endingOffsetsByTimestamp=per_partition(filled, 99_000, 3000, 99_000),
    )
    assert values_of(read_all(each)) == expect((0, 8, 10), (1, 0, 2), (2, 9, 10))


def test_a_start_behind_the_last_timestamp(topics, filled):
    late = topics.options(filled, startingTimestamp=99_000)
    with pytest.raises(InvalidOption, match=r"startingTimestamp: .*-0 has no record at or after 99000"):
        read_all(late)
    assert read_all(late | {"startingOffsetsByTimestampStrategy": "latest"}) == []


def test_assign_and_pattern(topics, filled):
    assigned = topics.options(None, assign=json.dumps({filled: [2, 0]}))
    assert values_of(read_all(assigned)) == expect((0, 0, 10), (2, 0, 10))
    pattern = topics.options(None, subscribePattern=f"{filled[:-2]}..")
    assert len(read_all(pattern)) == 30
    assert read_all(topics.options(None, subscribePattern="no-such-.*")) == []
    with pytest.raises(InvalidOption, match=r"partition 7 of topic .* does not exist, it has 3"):
        read_all(topics.options(None, assign=json.dumps({filled: [7]})))


def test_incomplete_or_impossible_offsets(topics, filled):
    with pytest.raises(InvalidOption, match=r"startingOffsets does not name .*-1, .*-2; every partition"):
        read_all(topics.options(filled, startingOffsets=per_partition(filled, 0)))
    with pytest.raises(InvalidOption, match="though they are not read"):
        read_all(topics.options(filled, startingOffsets=per_partition(filled, 0, 0, 0, 0)))
    with pytest.raises(InvalidOption, match="the start, offset 5, is behind the end, offset 3"):
        read_all(
            topics.options(
                filled, startingOffsets=per_partition(filled, 5, 0, 0), endingOffsets=per_partition(filled, 3, 1, 1)
            )
        )
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist on"):
        read_all(topics.options("nowhere"))


def test_how_tasks_are_cut(topics, filled):
    assert len(batch_reader(topics.options(filled)).partitions()) == 1
    assert len(batch_reader(topics.options(filled, minPartitions=7)).partitions()) == 7
    assert len(batch_reader(topics.options(filled, maxRecordsPerPartition=4)).partitions()) == 9
    for options in ({"minPartitions": 7}, {"maxRecordsPerPartition": 4}):
        assert values_of(read_all(topics.options(filled, **options))) == expect((0, 0, 10), (1, 0, 10), (2, 0, 10))


def test_pushed_filters_read_less(topics, filled):
    reader = batch_reader(topics.options(filled, pushFilters=True))
    left = reader.pushFilters(
        [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 3), LessThan(("offset",), 5)]
    )
    assert left == []
    tasks = reader.partitions()
    assert [(s.partition, s.start, s.end) for task in tasks for s in task.slices] == [(1, 3, 5)]
    assert list(reader.read(InputPartition(None))) == []


def test_offsets_that_retention_took_are_named(topics):
    topic = topics.make()
    topics.fill(topic, range(20))
    truncate(topics, topic, 12)
    options = topics.options(topic, startingOffsets=per_partition(topic, 5), endingOffsets=per_partition(topic, 15))
    with pytest.raises(DataLost, match=rf"topic {topic}, partition 0: offsets 5 to 11 are gone: the log begins at 12"):
        read_all(options)
    assert values_of(read_all(options | {"failOnDataLoss": "false"})) == ["12", "13", "14"]


def test_a_topic_deleted_or_recreated_after_planning(topics):
    topic = topics.make()
    topics.fill(topic, range(5))
    reader = batch_reader(topics.options(topic))
    (task,) = reader.partitions()
    topics.delete(topic)
    with pytest.raises(TopicGone, match=f"topic {topic} was deleted while it was read: offsets 0 to 4 of partition 0"):
        list(reader.read(task))
    time.sleep(0.3)
    topics.make(name=topic)
    with pytest.raises(TopicGone, match="deleted and created anew"):
        list(reader.read(task))


def test_compacted_logs_have_gaps(topics):
    """Offsets up to the end are asked for, though compaction may have taken any of them."""
    topic = topics.make(1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_bytes="2000")
    for turn in range(40):
        topics.fill(topic, [f"{turn}" * 50], key=b"k%d" % (turn % 3))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows = read_all(topics.options(topic))
        latest = {row["key"]: row["value"][:2] for row in rows}
        assert latest == {b"k0": b"39", b"k1": b"37", b"k2": b"38"}
        if len(rows) < 40:
            return
        time.sleep(0.3)


def test_only_part_of_a_read_is_taken(topics):
    """A LIMIT stops in the middle; nothing is left running."""
    import threading

    topic = topics.make()
    topics.fill(topic, [b"x" * 100_000] * 200)
    reader = batch_reader(topics.options(topic))
    (task,) = reader.partitions()
    batches = reader.read(task)
    assert next(batches).num_rows > 0
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "tidelog-fetch"]


def test_a_worker_that_has_read_is_cheap_to_collect(topics, filled):
    """Spark collects all garbage of a worker after every task: what was imported must not be walked over each time."""
    script = """
import gc, json, sys
from tests.spark.kit import read_all
assert len(read_all(json.loads(sys.argv[1]))) == 30
print(len(gc.get_objects()), gc.get_freeze_count())
"""
    options = json.dumps(topics.options(filled))
    done = subprocess.run([sys.executable, "-c", script, options], capture_output=True, text=True, check=True, cwd=ROOT)
    walked, kept = map(int, done.stdout.split())
    assert walked < kept / 10, done.stdout
