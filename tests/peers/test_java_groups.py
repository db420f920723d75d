"""Groups of Java clients, Kafka's own group tool, and Kafka's reading of our __consumer_offsets."""

import re
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tidelog.testing import Broker

from .conftest import Program
from .kafka_server import VERSION, kafka_tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]

PROGRAM = "GroupCheck"
VERSIONS = ("3.9.1", VERSION)
KINDS = (
    ("classic", "RangeAssignor"),
    ("classic", "RoundRobinAssignor"),
    ("classic", "StickyAssignor"),
    ("classic", "CooperativeStickyAssignor"),
    ("consumer", "uniform"),
    ("consumer", "range"),
)
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.mark.parametrize(("protocol", "assignor"), KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_java_members(bootstrap: str, java_program: Program, version: str, protocol: str, assignor: str) -> None:
    topic = f"java-{uuid.uuid4().hex[:8]}"
    assert f"ok {protocol}" in java_program(version, bootstrap, topic, protocol, assignor)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata="noted")], asynchronous=False)
    consumer.close()


def test_kafkas_group_tool(bootstrap: str) -> None:
    topic, group = f"tool-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    commit(bootstrap, group, topic, 7)

    def tool(*arguments: str) -> str:
        return kafka_tool(GROUPS, "--bootstrap-server", bootstrap, *arguments)

    assert group in tool("--list")
    assert re.search(rf"{group}\s+Empty", tool("--list", "--state"))
    assert re.search(rf"{group}\s+{topic}\s+0\s+7\s+20\s+13", tool("--describe", "--group", group))
    assert re.search(rf"{group}\s.*\bEmpty\b", tool("--describe", "--state", "--group", group))
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    assert re.search(rf"{topic}\s+0\s+0\b", tool(*reset, "--to-earliest", "--dry-run"))
    tool(*reset, "--shift-by", "5", "--execute")
    assert re.search(rf"{topic}\s+0\s+12\s+20\s+8", tool("--describe", "--group", group))
    assert "Successful" in tool("--delete-offsets", "--group", group, "--topic", topic)
    commit(bootstrap, group, topic, 1)
    assert "successful" in tool("--delete", "--group", group)
    assert group not in tool("--list")


def test_kafka_reads_our_offsets_topic(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": 1}
    with Broker(settings, data_dir=tmp_path) as broker:
        commit(broker.bootstrap_servers, "simple", "orders", 7)
        for group, protocol in (("old", "classic"), ("new", "consumer")):
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": group,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe(["orders"])
            assert len(consumer.consume(20, 20)) == 20
            consumer.close()
    log = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    out = kafka_tool(DUMP, "--offsets-decoder", "--files", str(log))
    assert "isvalid: false" not in out
    assert re.search(r'"group":"simple","topic":"orders","partition":0.*"offset":7,.*"metadata":"noted', out), out
    assert re.search(r'"group":"old","topic":"orders","partition":0.*"offset":20', out)
    assert re.search(r'"group":"new","topic":"orders","partition":0.*"offset":20', out)
    assert re.search(r'"type":"2","data":\{"group":"old"\}.*"generation":1', out)  # a classic group
    for kind in ("3", "5", "6", "7", "8"):  # group, member, target of the group, of the member, what a member has
        assert re.search(rf'"type":"{kind}","data":\{{"groupId":"new"', out), kind
    assert "unknown" not in out.lower()
