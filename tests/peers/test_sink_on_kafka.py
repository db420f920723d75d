"""Spark's sink on Apache Kafka: every case of exactly once that Tidelog is held to, topics just made, all codecs."""

from collections.abc import Iterator

import pytest
from tests.peers.kafka_server import KafkaServer
from tests.spark.kit import Topics
from tests.spark.sink_kit import committed, frame
from tests.spark.test_sink_exactly_once import *  # noqa: F403 - the same cases, with the broker below
from tests.spark.test_sink_producer import written

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    settings = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with KafkaServer(settings=settings) as kafka:
        yield Topics(kafka.bootstrap_servers)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_rows_arrive_once_in_a_topic_that_was_just_made(topics: Topics, codec: str, acks: str) -> None:
    """Its partitions may refuse the first requests: a second batch must not be let in before the first."""
    topic = topics.make(4)
    rows = [f"{number}-{'y' * 50}" for number in range(5000)]
    settings = {"kafka.acks": acks, "kafka.compression.type": codec, "kafka.batch.size": "5000"}
    assert written(topics.bootstrap, topic, iter([frame(rows)]), **settings) == 5000
    assert committed(topics.bootstrap, topic) == sorted(rows)
