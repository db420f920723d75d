"""`spark.readStream` without Spark: how far batches go, what they read, and what stops them."""

import json
import logging
import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.spark.kit import Query, Topics, values_of
from tests.spark.test_batch_reader import truncate

from tidelog.client.fetcher import DataLost
from tidelog.spark import watching
from tidelog.spark.losses import TopicChanged
from tidelog.spark.positions import lag
from tidelog.testing import Broker


def offsets(position: dict) -> dict[str, dict[str, int]]:
    return {
        topic: {p: place["offset"] for p, place in entry["partitions"].items()}
        for topic, entry in position["topics"].items()
    }


def wait_for_metadata() -> None:
    time.sleep(watching.TOPICS_S + 0.1)


def test_batches_follow_the_log(topics: Topics):
    topic = topics.make(2)
    topics.fill(topic, ["early"])
    query = Query(topics.options(topic))
    assert query.batch() == []  # latest is the default
    topics.fill(topic, ["a", "b"], 0)
    topics.fill(topic, ["c"], 1)
    time.sleep(watching.ENDS_S)
    assert values_of(query.batch()) == ["a", "b", "c"]
    assert offsets(query.position) == {topic: {"0": 3, "1": 1}}
    before = query.position
    assert query.plan() is before  # the very same: Spark sees that nothing is new
    query.stop()


def test_a_replayed_batch_is_cut_and_read_alike(topics: Topics):
    topic = topics.make(3)
    for p in range(3):
        topics.fill(topic, [f"{p}-{i}" for i in range(30)], p)
    query = Query(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=40))
    start, end = query.position, query.plan()
    first = query.reader.partitions(start, end)
    topics.fill(topic, [b"x" * 90_000] * 100, 1)  # the average record is another now
    again = Query(topics.options(topic), start=json.loads(json.dumps(start)))
    second = again.reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    assert [task.slices for task in first] == [task.slices for task in second]


def test_max_offsets_per_trigger(topics: Topics):
    topic = topics.make(2)
    topics.fill(topic, range(80), 0)
    topics.fill(topic, range(20), 1)
    query = Query(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=10))
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert len(query.batch()) == 10
    assert offsets(query.position) == {topic: {"0": 8, "1": 2}}
    assert lag(query.position, query.reader.reportLatestOffset()) == 90
    assert len(query.batch(ReadAllAvailable())) == 90
    assert query.batch() == []


def test_min_offsets_per_trigger_waits_but_not_forever(topics: Topics):
    topic = topics.make()
    query = Query(topics.options(topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="5s"))
    assert query.reader.getDefaultReadLimit() == ReadMinRows(5)
    topics.fill(topic, range(6))
    time.sleep(watching.ENDS_S)
    assert len(query.batch()) == 6
    topics.fill(topic, range(3))
    time.sleep(watching.ENDS_S)
    assert query.batch() == []
    time.sleep(5)
    assert len(query.batch()) == 3


def test_available_now_ends_where_it_began(topics: Topics):
    topic = topics.make(2)
    topics.fill(topic, range(9))
    query = Query(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4))
    query.reader.prepareForTriggerAvailableNow()
    topics.fill(topic, ["late"])
    topics.widen(topic, 3)
    topics.fill(topic, ["later"], 2)
    wait_for_metadata()
    sizes = []
    while rows := query.batch():
        sizes.append(len(rows))
    assert sum(sizes) == 9
    assert max(sizes) <= 4


def test_new_partitions_are_read_from_their_beginning(topics: Topics):
    topic = topics.make(1)
    topics.fill(topic, ["old"])
    query = Query(topics.options(topic))
    topics.widen(topic, 3)
    topics.fill(topic, ["new", "newer"], 2)
    wait_for_metadata()
    assert values_of(query.batch()) == ["new", "newer"]


def test_new_topics_of_a_pattern(topics: Topics):
    first = topics.make()
    query = Query(topics.options(None, subscribePattern=f"{first}.*"))
    second = topics.make(name=f"{first}-more")
    topics.fill(second, ["x"])
    wait_for_metadata()
    assert [row["topic"] for row in query.batch()] == [second]


def test_the_position_shows_in_a_consumer_group(topics: Topics):
    topic = topics.make(2)
    topics.fill(topic, range(5), 1)
    query = Query(topics.options(topic, startingOffsets="earliest", **{"kafka.group.id": f"g-{topic}"}))
    query.batch()
    assert query.plan() == query.position  # the next question says that the batch is done
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": f"g-{topic}", "log_level": 0})
    found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=10)
    assert [place.offset for place in found] == [0, 5]
    assert query.position["group"] == f"g-{topic}"


def test_a_group_that_cannot_be_written_does_not_stop_the_query(topics: Topics, caplog):
    topic = topics.make()
    topics.fill(topic, ["x"])
    group = f"busy-{topic}"
    member = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group, "log_level": 0})
    member.subscribe([topic])
    while not member.assignment():  # from now on only members may commit
        member.poll(0.1)
    query = Query(topics.options(topic, startingOffsets="earliest", **{"kafka.group.id": group}))
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert values_of(query.batch()) == ["x"]
    assert f"group {group} does not show the position of this query" in caplog.text
    member.close()


# --- loss -------------------------------------------------------------------------------------------------------------


def test_retention_that_overtook_the_query(topics: Topics):
    topic = topics.make()
    topics.fill(topic, range(20))
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query = Query(options)
    query.batch()
    truncate(topics, topic, 12)
    with pytest.raises(DataLost, match=rf"topic {topic}, partition 0: offsets 5 to 9 are gone: retention"):
        query.batch()
    careless = Query(options | {"failOnDataLoss": "false"}, start=query.position)
    found = [value for _ in range(3) for value in values_of(careless.batch())]
    assert found == [str(i) for i in range(12, 20)]


def test_a_warning_before_retention_overtakes(topics: Topics, caplog):
    topic = topics.make()
    topics.fill(topic, range(100))
    truncate(topics, topic, 30)
    start = Query(topics.options(topic, startingOffsets=json.dumps({topic: {"0": 33}}), maxOffsetsPerTrigger=1))
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        start.reader.partitions(start.position, start.reader.latestOffset(start.position, ReadAllAvailable()))
    assert (
        f"topic {topic}, partition 0: retention is about to overtake this query: it stands at offset 33" in caplog.text
    )


def test_a_topic_that_was_created_anew(topics: Topics):
    topic = topics.make()
    topics.fill(topic, range(5))
    options = topics.options(topic, startingOffsets="earliest")
    query = Query(options)
    query.batch()
    topics.delete(topic)
    time.sleep(0.3)
    topics.make(name=topic)
    topics.fill(topic, range(100, 110))
    for restarted in (query, Query(options, start=query.position)):
        wait_for_metadata()
        with pytest.raises(TopicChanged, match=f"topic {topic} was deleted and created anew .* offsets from 5 on"):
            restarted.batch()
    careless = Query(options | {"failOnDataLoss": "false"}, start=query.position)
    assert values_of(careless.batch()) == [str(i) for i in range(100, 110)]


def create_anew(topics: Topics, topic: str) -> None:
    topics.delete(topic)
    time.sleep(0.3)
    topics.make(name=topic)
    wait_for_metadata()


def test_an_empty_topic_that_was_created_anew_is_read_from_its_beginning_when_others_have_moved_on(topics: Topics):
    topic, other = topics.make(), topics.make()
    topics.fill(topic, range(5))
    options = topics.options(f"{topic},{other}", startingOffsets="earliest", failOnDataLoss="false")
    query = Query(options)
    query.batch()
    create_anew(topics, topic)
    topics.fill(other, ["other"])
    assert values_of(query.batch()) == ["other"]
    topics.fill(topic, range(100, 108))
    time.sleep(watching.ENDS_S)
    assert values_of(query.batch()) == [str(i) for i in range(100, 108)]


def test_a_batch_of_a_topic_that_was_created_anew_before_it_was_replayed_is_passed_over_if_loss_is_accepted(
    topics: Topics, caplog
):
    topic = topics.make()
    topics.fill(topic, range(5))
    options = topics.options(topic, startingOffsets="earliest", failOnDataLoss="false")
    query = Query(options)
    start, end = query.position, query.plan()  # in the checkpoint, and then the driver is killed
    create_anew(topics, topic)
    topics.fill(topic, range(100, 108))
    again = Query(options, start=start)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        tasks = again.reader.partitions(start, end)
    assert [row for task in tasks for row in again.reader.read(task)] == []
    assert f"topic {topic} was deleted and created anew" in caplog.text
    again.position = end
    assert values_of(again.batch()) == [str(i) for i in range(100, 108)]


def test_a_query_that_accepts_loss_starts_again_without_a_topic_that_was_deleted(topics: Topics):
    topic, other = topics.make(), topics.make()
    topics.fill(topic, range(5))
    options = topics.options(f"{topic},{other}", startingOffsets="earliest", failOnDataLoss="false")
    query = Query(options)
    query.batch()
    topics.delete(topic)
    topics.fill(other, ["other"])
    assert values_of(Query(options, start=query.position).batch()) == ["other"]


@pytest.mark.parametrize("by", ["subscribe", "subscribePattern", "assign"])
def test_a_topic_that_was_deleted(topics: Topics, by: str):
    topic, other = topics.make(), topics.make()
    topics.fill(topic, range(5))
    said = {"subscribe": f"{topic},{other}", "subscribePattern": f"{topic}|{other}", "assign": json.dumps({topic: [0]})}
    query = Query(topics.options(None, startingOffsets="earliest", **{by: said[by]}))
    query.batch()
    topics.delete(topic)
    wait_for_metadata()
    with pytest.raises(TopicChanged, match=f"topic {topic}, partition 0 does not exist any more: offsets from 5 on"):
        query.plan()


def test_a_log_that_was_truncated(topics: Topics):
    topic = topics.make()
    topics.fill(topic, range(5))
    query = Query(topics.options(topic, startingOffsets="earliest"))
    query.batch()
    ahead = json.loads(json.dumps(query.position))
    ahead["topics"][topic]["partitions"]["0"]["offset"] = 9
    with pytest.raises(DataLost, match=rf"topic {topic}, partition 0: offsets 5 to 8 are gone: the log was truncated"):
        Query(topics.options(topic), start=ahead).plan()


def test_a_restarted_broker_is_waited_for(tmp_path):
    with Broker(data_dir=tmp_path) as broker:
        topics = Topics(broker.bootstrap_servers)
        topic, port = topics.make(), broker.port
        topics.fill(topic, range(5))
        query = Query(topics.options(topic, startingOffsets="earliest"))
        assert len(query.batch()) == 5
    back = Broker(data_dir=tmp_path, port=port)
    starter = threading.Timer(1.0, back.start)
    starter.start()
    assert query.batch() == []
    starter.join()
    topics.fill(topic, range(3))
    time.sleep(watching.ENDS_S)
    assert len(query.batch()) == 3
    back.stop()
