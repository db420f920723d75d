"""Groups and their offsets as administrators see and change them."""

import uuid
from typing import Any

import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient

from .conftest import MakeTopic
from .group_members import MEMBERS, ConfluentMember, Options, settle, wait_for

PARTITIONS = 4
LIVE = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def group_admin(groups: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": groups})


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """As a simple consumer."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, p, offset) for p in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def offsets(admin: AdminClient, group: str, places: list[Any] | None = None) -> dict[tuple[str, int], int]:
    wanted = ConsumerGroupTopicPartitions(group, places)
    answer = admin.list_consumer_group_offsets([wanted])[group].result(10)
    return {(place.topic, place.partition): place.offset for place in answer.topic_partitions}


# -- listing and describing --------------------------------------------------------------------------------------------


def test_listing_by_state_and_type(groups: str, group_admin: AdminClient, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("listed", PARTITIONS)
    simple, classic, consumer = (f"{kind}-{new_group()}" for kind in ("simple", "classic", "consumer"))
    commit(groups, simple, topic, 0)

    def listed(**filters: Any) -> dict[str, Any]:
        answer = group_admin.list_consumer_groups(**filters).result(10)
        assert not answer.errors
        return {each.group_id: each for each in answer.valid if each.group_id in (simple, classic, consumer)}

    with (
        ConfluentMember(groups, classic, [topic]) as one,
        ConfluentMember(groups, consumer, [topic], Options(protocol="consumer")) as other,
    ):
        settle([one], PARTITIONS)
        settle([other], PARTITIONS)
        wait_for(lambda: listed()[consumer].state == ConsumerGroupState.STABLE, "stable")
        every = listed()
        assert set(every) == {simple, classic, consumer}
        assert every[simple].is_simple_consumer_group
        assert not every[classic].is_simple_consumer_group
        assert every[simple].state == ConsumerGroupState.EMPTY
        assert every[classic].type == ConsumerGroupType.CLASSIC
        assert every[consumer].type == ConsumerGroupType.CONSUMER
        assert set(listed(states={ConsumerGroupState.STABLE})) == {classic, consumer}
        assert set(listed(states={ConsumerGroupState.EMPTY})) == {simple}
        assert set(listed(types={ConsumerGroupType.CONSUMER})) == {consumer}
        assert set(listed(types={ConsumerGroupType.CLASSIC})) == {simple, classic}
    wait_for(lambda: set(listed(states={ConsumerGroupState.EMPTY})) == {simple, classic, consumer}, "all are empty")


@pytest.mark.parametrize("protocol", LIVE)
def test_describing(groups: str, group_admin: AdminClient, make_group_topic: MakeTopic, protocol: str) -> None:
    topic, group = make_group_topic("described", PARTITIONS), new_group()
    with (
        ConfluentMember(groups, group, [topic], Options(protocol=protocol, instance_id="one")) as one,
        ConfluentMember(groups, group, [topic], Options(protocol=protocol)) as two,
    ):
        settle([one, two], PARTITIONS)

        def described() -> Any:
            return group_admin.describe_consumer_groups([group])[group].result(10)

        wait_for(lambda: described().state == ConsumerGroupState.STABLE, "stable")
        found = described()
        assert found.type == LIVE[protocol]
        assert found.partition_assignor == ("range" if protocol == "classic" else "uniform")
        assert found.coordinator.port == int(groups.rsplit(":", 1)[1])
        assert not found.is_simple_consumer_group
        assert len(found.members) == 2
        assigned = {}
        for member in found.members:
            assert member.client_id == "rdkafka"
            assert member.host.lstrip("/") == "127.0.0.1"
            assigned[member.group_instance_id] = {
                (place.topic, place.partition) for place in member.assignment.topic_partitions
            }
        assert assigned == {"one": one.owned, None: two.owned}


def test_nobody_knows_the_group(group_admin: AdminClient) -> None:
    group = new_group()
    described = group_admin.describe_consumer_groups([group])[group]
    error = described.exception(10)
    if error is None:  # older librdkafka answers with a dead group
        assert described.result().state == ConsumerGroupState.DEAD
    else:
        assert error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets(group_admin, group) == {}


def test_kafka_python_sees_the_same(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("python", PARTITIONS), new_group()
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=groups)
    with MEMBERS["kafka-python"](groups, group, [topic]) as member:
        settle([member], PARTITIONS)
        assert group in str(admin.list_groups())
        described = admin.describe_groups([group])[group]
        assert "Stable" in str(described)
        assert "range" in str(described)
    commit(groups, group, topic, 3)
    found = admin.list_group_offsets(group)
    assert topic in str(found)
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())
    admin.close()


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_altering_and_listing_offsets(groups: str, group_admin: AdminClient, make_group_topic: MakeTopic) -> None:
    topic, other, group = make_group_topic("altered", PARTITIONS), make_group_topic("other", 1), new_group()
    places = [confluent_kafka.TopicPartition(topic, p, 10 + p) for p in range(PARTITIONS)]
    places.append(confluent_kafka.TopicPartition(other, 0, 5))
    altered = group_admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
    assert not any(each.error for each in altered[group].result(10).topic_partitions)
    assert offsets(group_admin, group) == {**{(topic, p): 10 + p for p in range(PARTITIONS)}, (other, 0): 5}
    assert offsets(group_admin, group, [confluent_kafka.TopicPartition(topic, 2)]) == {(topic, 2): 12}
    back = [confluent_kafka.TopicPartition(topic, 0, 1)]
    group_admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, back)])[group].result(10)
    assert offsets(group_admin, group)[topic, 0] == 1  # by request they do go back


@pytest.mark.parametrize("protocol", LIVE)
def test_a_live_group_is_left_alone(
    groups: str, group_admin: AdminClient, make_group_topic: MakeTopic, protocol: str
) -> None:
    topic, group = make_group_topic("live", PARTITIONS), new_group()
    place = confluent_kafka.TopicPartition(topic, 0, 7)
    with ConfluentMember(groups, group, [topic], Options(protocol=protocol)) as member:
        settle([member], PARTITIONS)
        altered = group_admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])[group]
        error = altered.exception(10)
        answers = [] if error else altered.result().topic_partitions
        assert error is not None or all(each.error is not None for each in answers)
        with pytest.raises(KafkaException) as refused:
            group_admin.delete_consumer_groups([group])[group].result(10)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        python_admin = kafka.admin.KafkaAdminClient(bootstrap_servers=groups)
        deleted = python_admin.delete_group_offsets(group, [kafka.TopicPartition(topic, 0)])
        assert list(deleted.values()) == [kafka.errors.GroupSubscribedToTopicError]
        python_admin.close()
    assert offsets(group_admin, group) == {}


def test_deleting_offsets_and_groups(groups: str, group_admin: AdminClient, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("deleted", PARTITIONS), new_group()
    commit(groups, group, topic, 3)
    some = [kafka.TopicPartition(topic, p) for p in (0, 1)]
    python_admin = kafka.admin.KafkaAdminClient(bootstrap_servers=groups)
    deleted = python_admin.delete_group_offsets(group, some)
    assert set(deleted.values()) == {kafka.errors.NoError}
    python_admin.close()
    assert offsets(group_admin, group) == {(topic, 2): 3, (topic, 3): 3}
    group_admin.delete_consumer_groups([group])[group].result(10)
    assert offsets(group_admin, group) == {}
    with pytest.raises(KafkaException) as refused:
        group_admin.delete_consumer_groups([group])[group].result(10)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_along(
    groups: str, group_admin: AdminClient, make_group_topic: MakeTopic
) -> None:
    topic, stays, group = make_group_topic("gone", PARTITIONS), make_group_topic("stays", PARTITIONS), new_group()
    commit(groups, group, topic, 3)
    commit(groups, group, stays, 4)
    group_admin.delete_topics([topic])[topic].result(10)
    wait_for(lambda: {name for name, _ in offsets(group_admin, group)} == {stays}, "offsets of one topic only")
