"""`__consumer_offsets` both ways: every record a real Kafka writes is read and written back byte for byte, and Kafka's
own tool reads ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.kafka_server import KafkaServer, kafka_tool

from tidelog.groups.classic_group import ClassicGroup, Member, State
from tidelog.groups.offsets import tombstone
from tidelog.groups.records import GroupRecord, OffsetCommitKey, OffsetCommitValue, decode_record, encode_record
from tidelog.ids import TopicPartition as Partition
from tidelog.wire.record_batch import Record, build_batch, iter_batches, iter_records

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

CONSUMERS = (
    ({"group.id": "classic"}, ["orders"]),
    ({"group.id": "cooperative", "partition.assignment.strategy": "cooperative-sticky"}, ["orders"]),
    ({"group.id": "static", "group.instance.id": "i1"}, ["orders"]),
    ({"group.id": "consumer", "group.protocol": "consumer"}, ["orders"]),
    ({"group.id": "regex", "group.protocol": "consumer"}, ["^ord.*"]),
)
KINDS = {1, 2, 3, 5, 6, 7, 8, 16}


def consume(bootstrap: str, config: dict[str, str], topics: list[str]) -> None:
    base = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**base, **config})
    try:
        consumer.subscribe(topics)
        messages = consumer.consume(3, timeout=40)
        assert len(messages) == 3, f"{config}: {messages}"
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def written(data_dir: Path) -> Iterator[tuple[bytes, bytes | None]]:
    for segment in sorted(data_dir.glob("**/__consumer_offsets-0/*.log")):
        for _, batch in iter_batches(segment.read_bytes()):
            for record in iter_records(batch):
                assert record.key is not None
                yield record.key, record.value


def test_every_record_of_kafka_comes_out_as_it_went_in() -> None:
    with KafkaServer(settings={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
        producer = Producer({"bootstrap.servers": bootstrap})
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition)
        producer.flush()
        for config, topics in CONSUMERS:
            consume(bootstrap, config, topics)
        simple = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
        simple.commit(offsets=[TopicPartition("orders", 1, 7, metadata="m")], asynchronous=False)
        simple.close()
        records = list(written(kafka.data_dir))
    kinds = set()
    for key, value in records:
        record = decode_record(key, value)
        assert record is not None
        assert encode_record(record) == (key, value)
        kinds.add(int.from_bytes(key[:2], "big"))
    assert kinds == KINDS


def test_kafkas_tool_reads_ours(tmp_path: Path) -> None:
    member = Member(
        member_id="m-1",
        instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=45_000,
        protocols=(("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),),
        assignment=b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\xff\xff\xff\xff",
    )
    group = ClassicGroup(
        group_id="shoppers",
        state=State.STABLE,
        state_since_ms=5,
        generation=3,
        protocol_type="consumer",
        protocol="range",
    ).with_member(member)
    commit = OffsetCommitValue(offset=41, leader_epoch=2, metadata="note", commit_timestamp=9)
    records = [
        group.record(),
        GroupRecord(OffsetCommitKey(group="shoppers", topic="t", partition=5), commit),
        tombstone("shoppers", Partition("t", 6)),
    ]
    batch = build_batch([Record(number, 9, *encode_record(record)) for number, record in enumerate(records)])
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    segment = directory / "00000000000000000000.log"
    segment.write_bytes(batch)
    told = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    for expected in ('"generation":3', '"memberId":"m-1"', '"groupInstanceId":"i"', '"sessionTimeout":45000'):
        assert expected in told
    for expected in ('"group":"shoppers"', '"topic":"t"', '"partition":5', '"offset":41', '"leaderEpoch":2', "note"):
        assert expected in told
    assert '"partition":6' in told
