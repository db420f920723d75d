"""Transactions of every client library, seen by every reader: whole or not at all, and never before they are over."""

import subprocess
import uuid

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from .conftest import MakeTopic
from .group_members import wait_for
from .records import CODECS
from .transaction_clients import PRODUCERS
from .transaction_readers import ISOLATIONS, READERS, Isolation, end_offset, read, until_over


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


def values(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


@pytest.mark.parametrize("client", PRODUCERS)
def test_every_reader_sees_what_was_committed_and_nothing_else(
    groups: str, make_group_topic: MakeTopic, client: str
) -> None:
    topic = make_group_topic("seen")
    with PRODUCERS[client](groups, new_id()) as producer:
        producer.transact(topic, 0, *values("first", 5))
        producer.transact(topic, 0, *values("taken-back", 4), commit=False)
        producer.transact(topic, 0, *values("second", 3))
        producer.transact(topic, 0, *values("taken-back-too", 2), commit=False)
        producer.begin()
        producer.send(topic, 0, *values("open", 2))
        for reader in READERS:
            assert read(groups, topic, reader=reader)[0] == values("first", 5) + values("second", 3), reader
            assert read(groups, topic, "read_uncommitted", reader=reader)[0] == [
                *values("first", 5),
                *values("taken-back", 4),
                *values("second", 3),
                *values("taken-back-too", 2),
                *values("open", 2),
            ], reader
        producer.commit()
    for reader in READERS:
        expected = values("first", 5) + values("second", 3) + values("open", 2)
        assert read(groups, topic, reader=reader, over=True)[0] == expected, reader


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("client", PRODUCERS)
def test_all_partitions_of_all_topics_or_none(
    groups: str, make_group_topic: MakeTopic, client: str, commit: bool
) -> None:
    topics = [make_group_topic("one", 3), make_group_topic("two", 2)]
    places = [(topics[0], 0), (topics[0], 1), (topics[0], 2), (topics[1], 0), (topics[1], 1)]
    with PRODUCERS[client](groups, new_id()) as producer:
        producer.begin()
        for topic, partition in places:
            producer.send(topic, partition, *values(f"{partition}", 4))
            assert end_offset(groups, topic, partition, "read_committed") == 0
        producer.commit() if commit else producer.abort()
    for topic, partitions in ((topics[0], range(3)), (topics[1], range(2))):
        seen = read(groups, topic, partitions=partitions, over=True)
        assert seen == {partition: values(f"{partition}", 4) if commit else [] for partition in partitions}


def test_an_open_transaction_holds_back_what_comes_after_it(groups: str, make_group_topic: MakeTopic) -> None:
    """Only in its own partitions, and only until it ends; then all comes in the order of the log."""
    topic = make_group_topic("held", 2)
    with PRODUCERS["confluent"](groups, new_id()) as slow, PRODUCERS["kafka-python"](groups, new_id()) as quick:
        slow.begin()
        slow.send(topic, 0, b"slow")
        quick.transact(topic, 0, b"quick")
        quick.transact(topic, 1, b"elsewhere")
        until_over(groups, topic, [1])
        for reader in READERS:
            assert read(groups, topic, reader=reader, partitions=[0, 1]) == {0: [], 1: [b"elsewhere"]}, reader
        slow.commit()
        for reader in READERS:
            assert read(groups, topic, reader=reader, over=True)[0] == [b"slow", b"quick"], reader


def test_interleaved_transactions(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("interleaved")
    producers = {name: PRODUCERS[name](groups, new_id()).init() for name in PRODUCERS}
    for turn in range(6):
        for name, producer in producers.items():
            producer.begin()
            producer.send(topic, 0, f"{name}-{turn}".encode())
        for number, producer in enumerate(producers.values()):
            producer.abort() if (turn + number) % 3 == 0 else producer.commit()
    expected = [
        f"{name}-{turn}".encode()
        for turn in range(6)
        for number, name in enumerate(producers)
        if (turn + number) % 3 != 0
    ]
    for reader in READERS:
        assert read(groups, topic, reader=reader, over=True)[0] == expected, reader
    for producer in producers.values():
        producer.close()


@pytest.mark.parametrize("client", PRODUCERS)
def test_empty_transactions(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic = make_group_topic("empty")
    with PRODUCERS[client](groups, new_id()) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            end()
        producer.transact(topic, 0, b"something")
        producer.begin()
        producer.abort()
        producer.transact(topic, 0, b"more")
    assert read(groups, topic, over=True)[0] == [b"something", b"more"]
    assert end_offset(groups, topic, 0, "read_committed") == 4  # two records and two markers


@pytest.mark.parametrize("client", PRODUCERS)
def test_big_transactions(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    """Thousands of records in many batches; one of them aborted, between two that are not."""
    topic = make_group_topic("big", 3)
    body = b"." * 1000
    with PRODUCERS[client](groups, new_id()) as producer:
        for number, end in enumerate((producer.commit, producer.abort, producer.commit)):
            producer.begin()
            for partition in range(3):
                producer.send(topic, partition, *(b"%d %d %s" % (number, i, body) for i in range(1000)))
            end()
    seen = read(groups, topic, partitions=range(3), over=True)
    expected = [(number, i) for number in (0, 2) for i in range(1000)]
    for partition in range(3):
        found = [tuple(map(int, value.split()[:2])) for value in seen[partition]]
        assert found == expected


@pytest.mark.parametrize("client", PRODUCERS)
def test_compressed_transactions(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic = make_group_topic("codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        with PRODUCERS[client](groups, new_id(), codec=codec) as producer:
            producer.transact(topic, partition, *values(codec * 50, 20))
            producer.transact(topic, partition, *values("taken back " * 50, 20), commit=False)
    for reader in READERS:
        seen = read(groups, topic, reader=reader, partitions=range(len(CODECS)), over=True)
        assert seen == {partition: values(codec * 50, 20) for partition, codec in enumerate(CODECS)}, reader


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_offsets_by_isolation(groups: str, make_group_topic: MakeTopic, isolation: Isolation) -> None:
    topic = make_group_topic("ends")
    place = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": groups})
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED

    def latest() -> int:
        future = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place]
        return int(future.result(10).offset)

    with PRODUCERS["confluent"](groups, new_id()) as producer:
        producer.transact(topic, 0, b"a", b"b")
        until_over(groups, topic)
        assert latest() == 3
        producer.begin()
        producer.send(topic, 0, b"c", b"d")
        assert latest() == end_offset(groups, topic, 0, isolation) == (3 if isolation == "read_committed" else 5)
        producer.abort()
        until_over(groups, topic)
        assert latest() == end_offset(groups, topic, 0, isolation) == 6


def test_a_reader_that_follows(groups: str, make_group_topic: MakeTopic) -> None:
    """It waits at the open transaction, and is woken by the end of it, not by its own timeout."""
    from confluent_kafka import Consumer

    topic = make_group_topic("follow")
    settings = {"bootstrap.servers": groups, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 40_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    with PRODUCERS["confluent"](groups, new_id()) as producer:
        producer.transact(topic, 0, b"first")
        seen: list[bytes | None] = []

        def has(count: int) -> bool:
            seen.extend(message.value() for message in consumer.consume(10, 0.05) if message.error() is None)
            return len(seen) >= count

        wait_for(lambda: has(1), "the first")
        producer.begin()
        producer.send(topic, 0, b"second")
        assert consumer.consume(1, 0.5) == []
        producer.commit()
        assert wait_for(lambda: has(2), "the second") < 20
        assert seen == [b"first", b"second"]
    consumer.close()


def test_kcat_transacts(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("kcat")
    command = ["kcat", "-P", "-b", groups, "-t", topic, "-X", f"transactional.id={new_id()}"]
    for name in ("first", "second"):
        lines = b"".join(value + b"\n" for value in values(name, 10))
        subprocess.run(command, input=lines, check=True, timeout=60, capture_output=True)
    for reader in READERS:
        assert read(groups, topic, reader=reader, over=True)[0] == values("first", 10) + values("second", 10), reader


def test_a_timeout_longer_than_the_broker_allows(groups: str) -> None:
    with pytest.raises(KafkaException) as refused:
        PRODUCERS["confluent"](groups, new_id(), timeout_ms=900_001).init()
    assert refused.value.args[0].name() == "INVALID_TRANSACTION_TIMEOUT"
