"""Offsets that are part of a transaction: they move with the output, or not at all, and only for who owns the work."""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaException

from tidelog.errors import ErrorCode

from .conftest import MakeTopic
from .group_members import MEMBERS, ConfluentMember, Options, wait_for
from .group_traffic import send
from .transaction_clients import PRODUCERS, Producer
from .transaction_readers import read, until_over
from .transaction_wire import FIRST, SECOND, Versions, WireProducer


def new(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    """Of partition 0, as anybody sees it that does not insist on stable offsets."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(10).topic_partitions
    offsets = [each.offset for each in found or () if each.topic == topic and each.partition == 0]
    return offsets[0] if offsets else None


@pytest.mark.parametrize("client", PRODUCERS)
def test_offsets_move_with_the_transaction(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    source, target, group = make_group_topic("in"), make_group_topic("out"), new("group")
    with PRODUCERS[client](groups, new("txn")) as producer:
        for commit, offset, then in ((True, 3, 3), (False, 5, 3), (True, 6, 6)):
            producer.begin()
            producer.send(target, 0, b"%d" % offset)
            producer.send_offsets({(source, 0): offset}, group)
            assert committed(groups, group, source) == (None if offset == 3 else 3)
            producer.commit() if commit else producer.abort()
            until_over(groups, target)
            wait_for(lambda then=then: committed(groups, group, source) == then, f"offset {then}")  # type: ignore[misc]
    assert read(groups, target)[0] == [b"3", b"6"]


@pytest.mark.parametrize("client", PRODUCERS)
def test_only_offsets(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    """A transaction that writes nothing else, for two groups; aiokafka can only add one."""
    source = make_group_topic("in")
    wanted = {new("group"): offset for offset in ((7,) if client == "aiokafka" else (7, 8))}
    with PRODUCERS[client](groups, new("txn")) as producer:
        producer.begin()
        for group, offset in wanted.items():
            producer.send_offsets({(source, 0): offset}, group)
        producer.commit()
    wait_for(lambda: {group: committed(groups, group, source) for group in wanted} == wanted, "the offsets")


def test_whoever_takes_over_waits_for_offsets_to_be_decided(groups: str, make_group_topic: MakeTopic) -> None:
    """A consumer that starts on offsets of an open transaction would do its work twice, or not at all."""
    source, group = make_group_topic("in"), new("group")
    send(groups, source, 1, range(10))
    with PRODUCERS["confluent"](groups, new("txn")) as producer:
        producer.begin()
        producer.send_offsets({(source, 0): 4}, group)
        with ConfluentMember(groups, group, [source]) as member:
            wait_for(lambda: member.owned, "the assignment")
            with pytest.raises(AssertionError, match="not within"):
                wait_for(lambda: member.reads, "it must not read", 1.0)
            producer.commit()
            wait_for(lambda: len(member.reads) == 6, lambda: f"records 4 to 9: {member.values}")
            assert member.values == [b"4", b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize(
    ("client", "protocol"), [("confluent", "classic"), ("confluent", "consumer"), ("kafka-python", "classic")]
)
def test_who_is_no_longer_in_the_group_is_fenced(
    groups: str, make_group_topic: MakeTopic, client: str, protocol: str
) -> None:
    """A slow worker finishes what another has taken over: its offsets are refused, and with them its output. Not for
    aiokafka, which tells no coordinator what generation it belongs to (KIP-447)."""
    source, target, group = make_group_topic("in"), make_group_topic("out"), new("group")
    send(groups, source, 1, range(5))
    options = Options(protocol=protocol, session_ms=6000)
    with (
        MEMBERS[client](groups, group, [source], options) as member,
        PRODUCERS[client](groups, new("txn")) as producer,
    ):
        wait_for(lambda: len(member.reads) == 5, "five records")
        producer.begin()
        producer.send(target, 0, b"mine")
        member.do(lambda consumer: producer.send_offsets({(source, 0): 2}, group, consumer))
        producer.commit()
        wait_for(lambda: committed(groups, group, source) == 2, "offset 2")
        stale = member.do(_metadata)

    with MEMBERS[client](groups, group, [source], options) as successor:
        wait_for(lambda: len(successor.reads) == 3, "what is left")
        with PRODUCERS[client](groups, new("txn")) as producer:
            producer.begin()
            producer.send(target, 0, b"too late")
            with pytest.raises(Exception, match=r"(?i)generation|member|fenced|epoch"):
                producer.send_offsets({(source, 0): 5}, group, _Holder(stale))
            producer.abort()
    assert committed(groups, group, source) == 2
    assert read(groups, target, over=True)[0] == [b"mine"]


def _metadata(consumer: Any) -> Any:
    if isinstance(consumer, confluent_kafka.Consumer):
        return consumer.consumer_group_metadata()
    return consumer.group_metadata()


class _Holder:
    """Somebody who kept what the consumer once said of itself."""

    def __init__(self, metadata: Any) -> None:
        self.consumer_group_metadata = self.group_metadata = lambda: metadata


@pytest.mark.parametrize("versions", [FIRST, SECOND], ids=["first", "second"])
def test_a_stale_generation_over_the_wire(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    source, group = make_group_topic("in"), new("group")
    with (
        MEMBERS["confluent"](groups, group, [source]) as member,
        WireProducer(groups, new("txn"), versions) as producer,
    ):
        wait_for(lambda: member.owned, "the assignment")
        producer.init()
        if versions is FIRST:
            assert producer.add_offsets(group) is ErrorCode.NONE
        stranger = producer.commit_offset(group, source, 1, generation=1, member_id="stranger")
        assert stranger is ErrorCode.UNKNOWN_MEMBER_ID
        nobody = producer.commit_offset(group, source, 1)
        assert nobody is ErrorCode.NONE  # it says of no generation that it is its own: that is taken on trust
        assert producer.end(True) is ErrorCode.NONE
        wait_for(lambda: committed(groups, group, source) == 1, "offset 1")


# -- consume, transform, produce ---------------------------------------------------------------------------------------


def _confluent_loop(groups: str, source: str, target: str, group: str, dice: random.Random, count: int) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": groups,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([source])
    with PRODUCERS["confluent"](groups, new("txn")) as producer:
        done = 0
        while done < count:
            messages = [each for each in consumer.consume(7, 0.2) if each.error() is None]
            if not messages:
                continue
            values = [(each.partition() or 0, each.offset() or 0, each.value() or b"") for each in messages]
            if _step(producer, source, target, group, values, dice, consumer):
                done += len(messages)
            else:
                first: dict[int, int] = {}
                for partition, offset, _ in values:
                    first.setdefault(partition, offset)
                for partition, offset in first.items():
                    consumer.seek(confluent_kafka.TopicPartition(source, partition, offset))
    consumer.close()


def _kafka_python_loop(groups: str, source: str, target: str, group: str, dice: random.Random, count: int) -> None:
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=groups,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=7,
        fetch_max_wait_ms=50,
    )
    with PRODUCERS["kafka-python"](groups, new("txn")) as producer:
        done = 0
        while done < count:
            polled = consumer.poll(timeout_ms=600)
            values = [(p.partition, each.offset, each.value) for p, messages in polled.items() for each in messages]
            if values and _step(producer, source, target, group, values, dice, consumer):
                done += len(values)
            else:
                for partition, messages in polled.items():
                    consumer.seek(partition, messages[0].offset)
    consumer.close()


def _aiokafka_loop(groups: str, source: str, target: str, group: str, dice: random.Random, count: int) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=groups,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )
        producer = PRODUCERS["aiokafka"](groups, new("txn"))
        async with consumer:
            await asyncio.to_thread(producer.init)
            done = 0
            while done < count:
                polled = await consumer.getmany(timeout_ms=200, max_records=7)
                values = [(p.partition, each.offset, each.value) for p, messages in polled.items() for each in messages]
                if values and await asyncio.to_thread(_step, producer, source, target, group, values, dice):
                    done += len(values)
                else:
                    for partition, messages in polled.items():
                        consumer.seek(partition, messages[0].offset)
            await asyncio.to_thread(producer.close)

    asyncio.run(run())


def _step(
    producer: Producer,
    source: str,
    target: str,
    group: str,
    values: list[tuple[int, int, bytes]],
    dice: random.Random,
    consumer: Any = None,
) -> bool:
    """One transaction; whether it was committed."""
    producer.begin()
    for partition, _, value in values:
        producer.send(target, partition, b"seen " + value)
    offsets = {(source, partition): offset + 1 for partition, offset, _ in values}
    producer.send_offsets(offsets, group, consumer)
    if dice.random() < 0.3:
        producer.abort()
        return False
    producer.commit()
    return True


LOOPS: dict[str, Callable[..., None]] = {
    "confluent": _confluent_loop,
    "kafka-python": _kafka_python_loop,
    "aiokafka": _aiokafka_loop,
}


@pytest.mark.parametrize("client", LOOPS)
def test_consume_transform_produce(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    """A third of the transactions is aborted and done again; half way another worker goes on. All comes out once."""
    source, target, group = make_group_topic("in", 2), make_group_topic("out", 2), new("group")
    dice = random.Random(5)
    for values in (range(40), range(40, 80)):
        send(groups, source, 2, values)
        LOOPS[client](groups, source, target, group, dice, 40)
    seen = read(groups, target, partitions=[0, 1], over=True)
    assert seen == {p: [b"seen %d" % number for number in range(p, 80, 2)] for p in (0, 1)}
    written = read(groups, target, "read_uncommitted", partitions=[0, 1])
    assert len(written[0]) + len(written[1]) > 80


def test_offsets_beyond_the_transaction_cannot_be_used_by_a_fenced_producer(
    groups: str, make_group_topic: MakeTopic
) -> None:
    source, group, name = make_group_topic("in"), new("group"), new("txn")
    with PRODUCERS["confluent"](groups, name) as first:
        first.begin()
        first.send_offsets({(source, 0): 9}, group)
        with PRODUCERS["confluent"](groups, name) as second:
            second.begin()
            second.send_offsets({(source, 0): 2}, group)
            second.commit()
            wait_for(lambda: committed(groups, group, source) == 2, "offset 2")
            with pytest.raises(Exception, match=r"(?i)fenced"):
                first.commit()
    assert committed(groups, group, source) == 2
    with pytest.raises(KafkaException):
        first.producer.begin_transaction()  # type: ignore[attr-defined]
