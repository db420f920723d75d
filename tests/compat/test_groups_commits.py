"""Where a group goes on: commits of every kind, what they carry, and what happens without or outside of them."""

import asyncio
import subprocess
import uuid
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from .conftest import MakeTopic
from .group_members import MEMBERS, ConfluentMember, Member, Options, settle, wait_for
from .group_traffic import numbers, send

PARTITIONS = 3


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """As any client sees it; -1001 where nothing is committed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([confluent_kafka.TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=10)
    consumer.close()
    assert not any(each.error for each in found)
    return [each.offset for each in found]


def read_all(member: Member, count: int) -> None:
    wait_for(lambda: len(member.reads) >= count, f"{count} records")


# -- going on ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successor", MEMBERS)
@pytest.mark.parametrize("client", MEMBERS)
def test_auto_commit_on_close_and_the_next_goes_on(
    groups: str, make_group_topic: MakeTopic, client: str, successor: str
) -> None:
    topic, group = make_group_topic("resume", PARTITIONS), new_group()
    send(groups, topic, PARTITIONS, range(30))
    with MEMBERS[client](groups, group, [topic], Options(auto_commit=True)) as member:
        read_all(member, 30)
    assert committed(groups, group, topic) == [10, 10, 10]
    send(groups, topic, PARTITIONS, range(30, 60))
    with MEMBERS[successor](groups, group, [topic], Options(auto_commit=True)) as member:
        read_all(member, 30)
        assert numbers([member]) == list(range(30, 60))


def test_auto_commit_while_reading(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("while", PARTITIONS)
    send(groups, topic, PARTITIONS, range(30))
    for client in MEMBERS:
        group = new_group()
        with MEMBERS[client](groups, group, [topic], Options(auto_commit=True)):
            wait_for(lambda group=group: committed(groups, group, topic) == [10, 10, 10], f"{client} commits")  # type: ignore[misc]


def test_kcat_goes_on_where_it_stopped(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("kcat", PARTITIONS), new_group()
    command = ["kcat", "-b", groups, "-G", group, "-q", "-e", "-X", "auto.offset.reset=earliest", "-f", "%s\\n", topic]
    for values in (range(30), range(30, 45)):
        send(groups, topic, PARTITIONS, values)
        heard = subprocess.run(command, check=True, capture_output=True, timeout=30).stdout
        assert sorted(map(int, heard.split())) == list(values)
    assert committed(groups, group, topic) == [15, 15, 15]


def test_nothing_committed_starts_over(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("again", PARTITIONS), new_group()
    send(groups, topic, PARTITIONS, range(30))
    for client in MEMBERS:
        with MEMBERS[client](groups, group, [topic]) as member:
            read_all(member, 30)
            assert numbers([member]) == list(range(30))
    assert committed(groups, group, topic) == [confluent_kafka.OFFSET_INVALID] * PARTITIONS


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_confluent_commits(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("by-hand", PARTITIONS), new_group()
    told: list[Any] = []
    send(groups, topic, PARTITIONS, range(30))

    class Listening(ConfluentMember):
        def settings(self) -> dict[str, Any]:
            return {**super().settings(), "on_commit": lambda error, partitions: told.append((error, partitions))}

    with Listening(groups, group, [topic]) as member:
        read_all(member, 30)
        place = confluent_kafka.TopicPartition(topic, 0, 4, metadata="vier")
        assert [each.error for each in member.do(lambda c: c.commit(offsets=[place], asynchronous=False))] == [None]
        assert member.do(lambda c: c.committed([place], timeout=10))[0].metadata == "vier"
        member.do(lambda c: c.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, 5)], asynchronous=True))
        wait_for(lambda: any(each[1][0].partition == 1 for each in told), "the answer to an asynchronous commit")
        assert committed(groups, group, topic) == [4, 5, confluent_kafka.OFFSET_INVALID]
        member.do(lambda c: c.commit(asynchronous=False))
    assert committed(groups, group, topic) == [10, 10, 10]
    assert all(error is None for error, _ in told)


def test_kafka_python_commits(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("by-hand", PARTITIONS), new_group()
    place = kafka.TopicPartition(topic, 0)
    send(groups, topic, PARTITIONS, range(30))
    with MEMBERS["kafka-python"](groups, group, [topic]) as member:
        read_all(member, 30)
        member.do(lambda c: c.commit({place: kafka.structs.OffsetAndMetadata(4, "vier", -1)}))
        assert member.do(lambda c: c.committed(place, metadata=True)).metadata == "vier"
        told: list[Any] = []
        member.do(lambda c: c.commit_async(callback=lambda offsets, answer: told.append(answer)))
        wait_for(lambda: told, "the answer to an asynchronous commit")
        assert not isinstance(told[0], BaseException)
    assert committed(groups, group, topic) == [10, 10, 10]


def test_aiokafka_commits(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("by-hand", PARTITIONS), new_group()
    place = aiokafka.TopicPartition(topic, 0)
    send(groups, topic, PARTITIONS, range(30))
    with MEMBERS["aiokafka"](groups, group, [topic]) as member:
        read_all(member, 30)
        member.do(lambda c: c.commit({place: (4, "vier")}))
        assert committed(groups, group, topic)[0] == member.do(lambda c: c.committed(place)) == 4
        member.do(lambda c: c.commit())
    assert committed(groups, group, topic) == [10, 10, 10]


# -- outside of a group's rebalances -----------------------------------------------------------------------------------


def test_nobody_knows_the_group(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("unknown", PARTITIONS)
    assert committed(groups, new_group(), topic) == [confluent_kafka.OFFSET_INVALID] * PARTITIONS
    reader = kafka.KafkaConsumer(bootstrap_servers=groups, group_id=new_group())
    assert reader.committed(kafka.TopicPartition(topic, 0)) is None
    reader.close()


def test_assigned_by_hand_and_committed(groups: str, make_group_topic: MakeTopic) -> None:
    """Simple consumers: no membership, only offsets."""
    topic, group = make_group_topic("simple", PARTITIONS), new_group()
    send(groups, topic, PARTITIONS, range(30))

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": groups, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0)])
    assert len(consumer.consume(10, 60)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()

    reader = kafka.KafkaConsumer(bootstrap_servers=groups, group_id=group, enable_auto_commit=False)
    reader.assign([kafka.TopicPartition(topic, 1)])
    reader.commit({kafka.TopicPartition(topic, 1): kafka.structs.OffsetAndMetadata(7, "", -1)})
    reader.close()

    async def commit() -> None:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=groups, group_id=group, enable_auto_commit=False
        ) as aio_reader:
            aio_reader.assign([aiokafka.TopicPartition(topic, 2)])
            await aio_reader.commit({aiokafka.TopicPartition(topic, 2): 8})

    asyncio.run(commit())
    assert committed(groups, group, topic) == [10, 7, 8]


def test_a_stranger_may_not_commit_for_a_group_with_members(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("stranger", PARTITIONS), new_group()
    with MEMBERS["confluent"](groups, group, [topic]) as member:
        settle([member], PARTITIONS)
        stranger = confluent_kafka.Consumer(
            {"bootstrap.servers": groups, "group.id": group, "enable.auto.commit": False}
        )
        place = confluent_kafka.TopicPartition(topic, 0, 5)
        stranger.assign([place])
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[place], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        stranger.close()
    assert committed(groups, group, topic)[0] == confluent_kafka.OFFSET_INVALID


@pytest.mark.parametrize("client", MEMBERS)
def test_seeking(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic, group = make_group_topic("seek", 1), new_group()
    send(groups, topic, 1, range(20))
    with MEMBERS[client](groups, group, [topic]) as member:
        read_all(member, 20)
        if client == "confluent":
            member.do(lambda c: c.seek(confluent_kafka.TopicPartition(topic, 0, 15)))
        elif client == "kafka-python":
            member.do(lambda c: c.seek(kafka.TopicPartition(topic, 0), 15))
        else:
            member.do(lambda c: c.seek(aiokafka.TopicPartition(topic, 0), 15))
        read_all(member, 25)
        assert [int(value) for value in member.values[20:]] == list(range(15, 20))


@pytest.mark.parametrize("client", MEMBERS)
@pytest.mark.parametrize(("reset", "first"), [("earliest", 12), ("latest", 20)])
def test_committed_before_the_log_begins(
    groups: str, make_group_topic: MakeTopic, client: str, reset: str, first: int
) -> None:
    """Retention overtook the group: it goes on where its reset policy says."""
    topic, group = make_group_topic("overtaken", 1), new_group()
    send(groups, topic, 1, range(20))
    with MEMBERS["confluent"](groups, group, [topic]) as member:
        settle([member], 1)
        member.do(lambda c: c.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False))
    admin = AdminClient({"bootstrap.servers": groups})
    for answer in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 12)]).values():
        answer.result(10)
    with MEMBERS[client](groups, group, [topic], Options(reset=reset)) as member:
        settle([member], 1)
        if reset == "earliest":
            read_all(member, 8)
        else:
            wait_for(lambda: position(member, client, topic) == 20, "the position of the log's end")
            send(groups, topic, 1, [20])
            read_all(member, 1)
        assert int(member.values[0]) == first


def position(member: Member, client: str, topic: str) -> int:
    if client == "confluent":
        low, high = member.do(lambda c: c.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), cached=True))
        return int(high) if low == 12 else -1
    kind = kafka.TopicPartition if client == "kafka-python" else aiokafka.TopicPartition
    return int(member.do(lambda c: c.position(kind(topic, 0))))
