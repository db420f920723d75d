"""A group whose partitions are on many brokers, and whose coordinator has only some of them."""

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from tidelog.cli import run
from tidelog.testing import Cluster

from .cluster import PATIENCE_S, QUICK_TO_RETURN, create_topic, partition, producer

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

PARTITIONS, WRITTEN, READ = 6, 10, 4


def test_lag_is_known_of_partitions_that_the_coordinator_does_not_have(capfd: pytest.CaptureFixture[str]) -> None:
    with Cluster(3, {"offsets.topic.num.partitions": 1}) as cluster:
        create_topic(cluster, "spread", PARTITIONS, replicas=1)
        assert {partition(cluster, "spread", number).leader for number in range(PARTITIONS)} == {1, 2, 3}
        writer = producer(cluster)
        for number in range(PARTITIONS):
            for _ in range(WRITTEN):
                writer.produce("spread", b"x", partition=number)
        assert writer.flush(PATIENCE_S) == 0
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "behind", **QUICK_TO_RETURN}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        places = [TopicPartition("spread", number, READ) for number in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
        capfd.readouterr()
        run(["group", "diagnose", "behind", "--seconds", "0", "-o", "json", "-b", cluster.bootstrap_servers])
        told = json.loads(capfd.readouterr().out)
        assert told["history"] is True
        assert told["lag"]["records"] == PARTITIONS * (WRITTEN - READ)
