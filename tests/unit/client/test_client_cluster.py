"""The client that follows leaders, against a real broker and against none."""

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client import Cluster, DataLost, FetchRange, NegotiatedConnection, PartitionFetcher
from tidelog.client.cluster import EARLIEST, LATEST, parse_servers
from tidelog.client.group_offsets import commit_offsets
from tidelog.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from tidelog.ids import TopicPartition
from tidelog.testing import Broker
from tidelog.wire.messages.data import (
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.schema import API


@pytest.fixture(scope="module")
def filled():
    """A broker with the topic `t`: 100 records with timestamps 1000, 2000, … in partition 0, none in partition 1."""
    with Broker({"log.retention.ms": "-1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10})
        for i in range(100):
            producer.produce("t", b"%d" % i, partition=0, timestamp=1000 * (i + 1))
        producer.flush(20)
        yield broker


@pytest.fixture
def cluster(filled):
    with Cluster(filled.bootstrap_servers, timeout_s=60) as found:
        yield found


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_versions_are_negotiated(filled):
    with NegotiatedConnection("127.0.0.1", filled.port) as connection:
        assert connection.version_of(FetchRequest) == API[1].max


def test_topics_and_offsets(cluster):
    topic = cluster.topic("t")
    assert set(topic.partitions) == {0, 1}
    assert "t" in cluster.topics(None)
    assert cluster.topics(["nowhere"]) == {}
    ends = cluster.offsets({P0: LATEST, P1: LATEST})
    assert (ends[P0].offset, ends[P1].offset) == (100, 0)
    assert cluster.offsets({P0: EARLIEST})[P0].offset == 0
    assert cluster.offsets({P0: 4500})[P0][:2] == (4, 5000)
    assert cluster.offsets({P0: 999_999_000})[P0].offset == -1
    assert cluster.epoch_ends({P0: ends[P0].leader_epoch}) == {P0: 100}


def test_what_does_not_exist_is_told_at_once(cluster):
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
        cluster.topic("nowhere")
    with pytest.raises(UnknownTopicOrPartition, match="partition 9 of topic t"):
        cluster.offsets({TopicPartition("t", 9): LATEST})
    assert time.monotonic() - began < 20


def test_nobody_answers():
    with Cluster("127.0.0.1:1", timeout_s=0.2) as nobody, pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        nobody.topics(None)


def test_the_first_server_that_answers_is_used(filled):
    with Cluster(f"127.0.0.1:1,{filled.bootstrap_servers}", timeout_s=60) as found:
        assert "t" in found.topics(None)


def test_commits_from_outside_a_group(cluster, filled):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    commit_offsets(cluster, "outside", {P0: (42, -1), P1: (0, 0)}, "told by a test")
    consumer = Consumer({"bootstrap.servers": filled.bootstrap_servers, "group.id": "outside"})
    assert [p.offset for p in consumer.committed([Place("t", 0), Place("t", 1)], timeout=10)] == [42, 0]


def fetch(cluster, start, end, **more):
    wanted = FetchRange(partition=P0, topic_id=cluster.topic("t").topic_id, start=start, end=end, **more)
    return PartitionFetcher(cluster, wanted, timeout_s=3)


def test_a_range_is_fetched_in_small_answers(cluster):
    answers = list(fetch(cluster, 15, 80, fetch_bytes=200))
    assert len(answers) > 3
    spans = [(header.base_offset, header.last_offset) for answer in answers for header, _ in answer.batches]
    assert spans[0][0] <= 15 <= spans[0][1]
    assert spans[-1][1] >= 79
    assert [start for start, _ in spans[1:]] == [end + 1 for _, end in spans[:-1]]


def test_an_end_that_the_log_does_not_reach(cluster):
    with pytest.raises(KafkaError, match="did not reach offset 200") as told:
        list(fetch(cluster, 90, 200))
    assert told.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_an_answer_stays_as_it_was_until_the_next_is_taken_though_the_broker_had_nothing_for_a_while(cluster, filled):
    """As a new leader has nothing to show until its followers have told it how far they are."""
    admin = AdminClient({"bootstrap.servers": filled.bootstrap_servers})
    admin.create_topics([NewTopic("late", 1, 1)])["late"].result(20)
    producer = Producer({"bootstrap.servers": filled.bootstrap_servers})

    def produce(content):
        producer.produce("late", content, partition=0)
        producer.flush(20)

    contents = [letter * 1000 for letter in (b"a", b"b", b"c", b"d")]
    produce(contents[0])
    produce(contents[1])
    wanted = FetchRange(
        partition=TopicPartition("late", 0),
        topic_id=cluster.topic("late").topic_id,
        start=0,
        end=4,
        fetch_bytes=1000,  # a batch in each answer
    )
    answers = iter(PartitionFetcher(cluster, wanted, timeout_s=30))
    seen = []
    for more in contents[2:]:
        answer = next(answers)
        time.sleep(0.8)  # the next answer waits to be taken, and behind it the broker has said that there is no more
        produce(more)
        time.sleep(0.3)
        seen.append(_held(contents, answer))
    assert seen == [contents[:1], contents[1:2]]
    assert [_held(contents, answer) for answer in answers] == [contents[2:3], contents[3:]]


def _held(contents, answer):
    """Whole ones: a single letter may be part of a checksum too."""
    return [each for each in contents if each in bytes(answer.records)]


class Scripted(Cluster):
    """The first answers to requests of a kind are these; then the broker is asked."""

    def __init__(self, bootstrap_servers, kind, answers):
        super().__init__(bootstrap_servers, timeout_s=5)
        self.kind, self.answers = kind, list(answers)

    def connect(self, node_id):
        connection = super().connect(node_id)
        ask = connection.ask
        connection.ask = lambda request: (
            self.answers.pop(0) if self.answers and isinstance(request, self.kind) else ask(request)
        )
        return connection


def test_a_broker_whose_quota_is_used_up_answers_without_partitions_and_is_asked_again(filled):
    throttled = FetchResponse(throttle_time_ms=10, responses=())  # as Apache Kafka does, since KIP-219
    with Scripted(filled.bootstrap_servers, FetchRequest, [throttled] * 3) as cluster:
        answers = list(fetch(cluster, 0, 100))
    assert answers[-1].batches[-1][0].last_offset == 99


def test_a_leader_that_has_not_heard_of_its_new_partition_yet_is_asked_again(filled):
    unknown = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(unknown,)),))
    with Scripted(filled.bootstrap_servers, ListOffsetsRequest, [answer] * 2) as cluster:
        assert cluster.offsets({P0: LATEST})[P0].offset == 100


def test_a_topic_that_is_deleted_between_two_questions_is_told_at_once(cluster, filled):
    admin = AdminClient({"bootstrap.servers": filled.bootstrap_servers})
    admin.create_topics([NewTopic("brief", 1, 1)])["brief"].result(20)
    brief = TopicPartition("brief", 0)
    assert cluster.offsets({brief: LATEST})[brief].offset == 0
    admin.delete_topics(["brief"])["brief"].result(20)
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition, match="partition 0 of topic brief does not exist"):
        cluster.offsets({brief: LATEST})
    assert time.monotonic() - began < 3


def test_a_start_behind_the_end_of_the_log(cluster):
    with pytest.raises(DataLost, match=r"partition 0: offsets 150 to 199 are gone"):
        list(fetch(cluster, 150, 200))


@pytest.mark.parametrize(("text", "servers"), [("a:1,b:2", [("a", 1), ("b", 2)]), (" [::1]:9092 ,", [("::1", 9092)])])
def test_addresses(text, servers):
    assert parse_servers(text) == servers


@pytest.mark.parametrize("wrong", ["", ",", "host", "host:port", "host:"])
def test_addresses_that_are_none(wrong):
    with pytest.raises(ValueError, match=r"host:port|no bootstrap server"):
        parse_servers(wrong)
