"""KIP-848 with `group.protocol=consumer`: the broker assigns, members move one partition at a time; and live groups
change from the classic protocol to this one and back."""

import time
import uuid
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .conftest import MakeTopic
from .group_members import ConfluentMember, Member, Options, Place, settle, wait_for
from .group_traffic import numbers, send

PARTITIONS = 12
CONSUMER = Options(protocol="consumer")
SOON_S = 10.0  # half a session: nobody was waited for who had left


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def lost(member: Member, since: int) -> set[Place]:
    return {place for change in member.changes[since:] if change.kind != "assigned" for place in change.places}


def gained(member: Member, since: int) -> set[Place]:
    return {place for change in member.changes[since:] if change.kind == "assigned" for place in change.places}


def test_join_leave_and_only_what_must_moves(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("uniform", PARTITIONS), new_group()
    with (
        ConfluentMember(groups, group, [topic], CONSUMER) as one,
        ConfluentMember(groups, group, [topic], CONSUMER) as two,
    ):
        settle([one, two], PARTITIONS)
        noted = len(one.changes), len(two.changes)
        with ConfluentMember(groups, group, [topic], CONSUMER) as three:
            joined_s = settle([one, two, three], PARTITIONS)
            send(groups, topic, PARTITIONS, range(120))
            wait_for(lambda: numbers([one, two, three]) == list(range(120)), "every record, once")
            for member, since in zip((one, two), noted, strict=True):
                assert len(lost(member, since)) == 2
                assert not gained(member, since)
            moved = three.owned
            noted = len(one.changes), len(two.changes)
        left_s = settle([one, two], PARTITIONS)
        assert gained(one, noted[0]) | gained(two, noted[1]) == moved
        assert not lost(one, noted[0]) | lost(two, noted[1])
    assert joined_s < SOON_S
    assert left_s < SOON_S


def test_range_keeps_topics_together(groups: str, make_group_topic: MakeTopic) -> None:
    """Partitions of equal number, of topics that are joined with each other, belong to one member."""
    left, right, group = make_group_topic("left", 4), make_group_topic("right", 4), new_group()

    class RangeMember(ConfluentMember):
        def settings(self) -> dict[str, object]:
            return {**super().settings(), "group.remote.assignor": "range"}

    with (
        RangeMember(groups, group, [left, right], CONSUMER) as one,
        RangeMember(groups, group, [left, right], CONSUMER) as two,
    ):
        settle([one, two], 8)
        for member in (one, two):
            numbers_of = {
                topic: {place.partition for place in member.owned if place.topic == topic} for topic in (left, right)
            }
            assert numbers_of[left] == numbers_of[right]
            assert len(numbers_of[left]) == 2


def test_an_assignor_that_does_not_exist(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("assignor", 1)
    options = Options(protocol="consumer", assignor="roundrobin")
    with ConfluentMember(groups, new_group(), [topic], options) as member:
        wait_for(lambda: member.errors, "a refusal")
        assert member.errors[0].code() == KafkaError._FATAL
        assert "assignor" in member.errors[0].str()


def test_patterns_and_topics_to_come(groups: str, make_group_topic: MakeTopic) -> None:
    word = f"orders-{uuid.uuid4().hex[:6]}"
    make_group_topic(f"not-{word}", 2)
    first, group = make_group_topic(f"{word}-eu", 2), new_group()
    with (
        ConfluentMember(groups, group, [f"^{word}-.*"], CONSUMER) as one,
        ConfluentMember(groups, group, [f"^{word}-.*"], CONSUMER) as two,
    ):
        settle([one, two], 2)
        second = make_group_topic(f"{word}-us", 4)
        settle([one, two], 6)
        assert {place.topic for place in one.owned | two.owned} == {first, second}
        admin = AdminClient({"bootstrap.servers": groups})
        admin.create_partitions([NewPartitions(second, 6)])[second].result(10)
        settle([one, two], 8)
        admin.delete_topics([first])[first].result(10)
        settle([one, two], 6)


def test_a_topic_that_comes_after_its_subscribers(groups: str) -> None:
    topic, group = f"later-{uuid.uuid4().hex[:8]}", new_group()
    with ConfluentMember(groups, group, [topic], CONSUMER) as member:
        time.sleep(0.3)
        admin = AdminClient({"bootstrap.servers": groups})
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(10)
        settle([member], 3)
        send(groups, topic, 3, range(9))
        wait_for(lambda: numbers([member]) == list(range(9)), "every record")


def test_static_members(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("static", PARTITIONS), new_group()
    static = Options(protocol="consumer", instance_id="restarts")
    with ConfluentMember(groups, group, [topic], CONSUMER) as stays:
        with ConfluentMember(groups, group, [topic], static) as restarts:
            settle([stays, restarts], PARTITIONS)
            had, noted = restarts.owned, len(stays.changes)
        with ConfluentMember(groups, group, [topic], static) as restarts:
            settle([stays, restarts], PARTITIONS)
            assert restarts.owned == had
            assert len(stays.changes) == noted


def test_commits_and_going_on(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("resume", PARTITIONS), new_group()
    options = Options(protocol="consumer", auto_commit=True)
    for values in (range(60), range(60, 120)):
        send(groups, topic, PARTITIONS, values)
        with ConfluentMember(groups, group, [topic], options) as member:
            wait_for(lambda: len(member.reads) >= 60, "60 records")
            assert numbers([member]) == list(values)
            place = confluent_kafka.TopicPartition(topic, 0, member.reads[-1].offset, metadata="by hand")
            member.do(lambda c: c.commit(offsets=[place], asynchronous=False))  # noqa: B023
            member.do(lambda c: c.commit(asynchronous=False))


# -- classic and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_live_group_changes_its_protocol_and_back(groups: str, make_group_topic: MakeTopic, assignor: str) -> None:
    """Rolling: one member after the other is replaced by one that speaks the other protocol. Offsets stay."""
    topic, group = make_group_topic("rolling", PARTITIONS), new_group()
    admin = AdminClient({"bootstrap.servers": groups})
    classic = Options(assignor=assignor, auto_commit=True)
    modern = Options(protocol="consumer", auto_commit=True)
    sent = 0
    every: list[Member] = []

    def described() -> tuple[ConsumerGroupType, ConsumerGroupState]:
        found = admin.describe_consumer_groups([group])[group].result(10)
        return found.type, found.state

    with ExitStack() as stack:

        def join(options: Options) -> Member:
            every.append(stack.enter_context(ConfluentMember(groups, group, [topic], options)))
            return every[-1]

        def traffic() -> None:
            nonlocal sent
            send(groups, topic, PARTITIONS, range(sent, sent + 60))
            sent += 60
            wait_for(lambda: set(numbers(every)) == set(range(sent)), "every record")

        members = [join(classic), join(classic)]
        settle(members, PARTITIONS)
        traffic()
        for options, kind in ((modern, ConsumerGroupType.CONSUMER), (classic, ConsumerGroupType.CLASSIC)):
            for _ in range(2):
                members.append(join(options))
                settle(members, PARTITIONS, 20)
                traffic()
                members.pop(0).close()
                settle(members, PARTITIONS, 20)
                traffic()
            wait_for(lambda kind=kind: described() == (kind, ConsumerGroupState.STABLE), f"{kind}")  # type: ignore[misc]
