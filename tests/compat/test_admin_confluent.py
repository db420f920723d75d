"""Topic, config and record administration through confluent-kafka (librdkafka)."""

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .conftest import MakeTopic

T0 = 1_700_000_000_000


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as raised:
        future.result(20)
    code: int = raised.value.args[0].code()
    return code


def create(admin: AdminClient, topic: NewTopic, **options: Any) -> Any:
    [future] = admin.create_topics([topic], **options).values()
    return future


def describe(admin: AdminClient, topic: str) -> Any:
    """Retries for a second: a created topic is in Apache Kafka's metadata only a moment later."""
    for attempt in range(10):
        try:
            return admin.describe_topics(TopicCollection([topic]))[topic].result(20)
        except KafkaException as error:
            if attempt == 9 or error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            time.sleep(0.1)
    raise AssertionError("unreachable")


def configs(admin: AdminClient, topic: str) -> dict[str, Any]:
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    found: dict[str, Any] = future.result(20)
    return found


def alter(admin: AdminClient, topic: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> Any:
    changes = [ConfigEntry(name, value, incremental_operation=op) for name, value, op in entries]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    [future] = admin.incremental_alter_configs([resource]).values()
    return future


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=0, timestamp=T0 + i)
    assert producer.flush(20) == 0


def test_create_describe_list_and_delete(admin: AdminClient) -> None:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    create(admin, NewTopic(name, num_partitions=3, replication_factor=1)).result(20)

    described = describe(admin, name)
    assert described.name == name
    assert [p.id for p in described.partitions] == [0, 1, 2]
    assert all(len(p.replicas) == len(p.isr) == 1 and p.leader is not None for p in described.partitions)
    assert not described.is_internal
    assert sorted(admin.list_topics(timeout=10).topics[name].partitions) == [0, 1, 2]

    admin.delete_topics([name])[name].result(20)
    assert name not in admin.list_topics(timeout=10).topics
    assert code_of(admin.describe_topics(TopicCollection([name]))[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_topic_can_be_created_again_and_is_empty(bootstrap: str, admin: AdminClient) -> None:
    name = f"again-{uuid.uuid4().hex[:8]}"
    ids = set()
    for _ in range(2):
        create(admin, NewTopic(name, 1, 1)).result(20)
        ids.add(str(describe(admin, name).topic_id))
        [latest] = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()}).values()
        assert latest.result(20).offset == 0
        fill(bootstrap, name, 5)
        admin.delete_topics([name])[name].result(20)
    assert len(ids) == 2


def test_broker_defaults_apply_when_counts_are_left_out(admin: AdminClient) -> None:
    name = f"defaults-{uuid.uuid4().hex[:8]}"
    create(admin, NewTopic(name)).result(20)
    assert len(admin.list_topics(timeout=10).topics[name].partitions) >= 1


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no spaces allowed", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("replicas", 1, 5), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("config", 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, 1, config={"cleanup.policy": "keep"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_what_a_new_topic_may_not_be(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert code_of(create(admin, topic)) == code
    assert topic.topic not in admin.list_topics(timeout=10).topics


def test_names_that_are_taken_or_missing(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("taken")
    assert code_of(create(admin, NewTopic(topic, 1, 1))) == KafkaError.TOPIC_ALREADY_EXISTS
    [missing] = admin.delete_topics([f"missing-{uuid.uuid4().hex}"]).values()
    assert code_of(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = f"validate-{uuid.uuid4().hex[:8]}"
    create(admin, NewTopic(name, 2, 1), validate_only=True).result(20)
    assert name not in admin.list_topics(timeout=10).topics


def test_partitions_can_be_added_but_not_removed(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("grow", partitions=2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    assert len(describe(admin, topic).partitions) == 4
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x", partition=3)
    assert producer.flush(20) == 0
    for count in (4, 1):
        assert code_of(admin.create_partitions([NewPartitions(topic, count)])[topic]) == KafkaError.INVALID_PARTITIONS
    [missing] = admin.create_partitions([NewPartitions("missing-topic", 4)]).values()
    assert code_of(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_show_values_and_where_they_come_from(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("configs", **{"retention.ms": "60000", "cleanup.policy": "compact,delete"})
    found = configs(admin, topic)
    assert found["retention.ms"].value == "60000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].is_default
    assert not found["segment.bytes"].is_sensitive
    # The synonyms are the chain a value is looked up in, nearest first.
    assert next(iter(found["retention.ms"].synonyms)) == "retention.ms"
    assert {"max.message.bytes", "compression.type", "min.insync.replicas"} <= set(found)


def test_configs_change_one_by_one(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("alter", **{"segment.ms": "70000000"})
    alter(admin, topic, ("retention.ms", "123456", AlterConfigOpType.SET)).result(20)
    assert configs(admin, topic)["retention.ms"].value == "123456"
    assert configs(admin, topic)["segment.ms"].value == "70000000"  # untouched

    alter(admin, topic, ("cleanup.policy", "compact", AlterConfigOpType.APPEND)).result(20)
    assert set(configs(admin, topic)["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    alter(admin, topic, ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)).result(20)
    assert configs(admin, topic)["cleanup.policy"].value == "compact"

    alter(admin, topic, ("retention.ms", None, AlterConfigOpType.DELETE)).result(20)
    assert configs(admin, topic)["retention.ms"].value == "604800000"
    assert configs(admin, topic)["retention.ms"].is_default

    refused = alter(admin, topic, ("retention.ms", "soon", AlterConfigOpType.SET))
    assert code_of(refused) == KafkaError.INVALID_CONFIG
    refused = alter(admin, topic, ("no.such.setting", "1", AlterConfigOpType.SET))
    assert code_of(refused) == KafkaError.INVALID_CONFIG
    missing = alter(admin, f"missing-{uuid.uuid4().hex}", ("retention.ms", "1", AlterConfigOpType.SET))
    assert code_of(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_changed_limit_is_in_force_at_once(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("limit")
    alter(admin, topic, ("max.message.bytes", "500", AlterConfigOpType.SET)).result(20)
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 1000, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_broker_configs_can_be_read(admin: AdminClient) -> None:
    node = str(next(iter(admin.list_topics(timeout=10).brokers)))
    [future] = admin.describe_configs([ConfigResource(ResourceType.BROKER, node)]).values()
    found = future.result(20)
    assert found["message.max.bytes"].value == "1048588"
    assert found["log.segment.bytes"].value == "1073741824"
    assert "num.partitions" in found


def test_offsets_by_every_spec(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("offsets")
    fill(bootstrap, topic, 50)
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec, **options: Any) -> Any:
        return admin.list_offsets({partition: spec}, **options)[partition].result(20)

    assert offset(OffsetSpec.earliest()).offset == 0
    assert offset(OffsetSpec.latest()).offset == 50
    assert offset(OffsetSpec.latest(), isolation_level=IsolationLevel.READ_COMMITTED).offset == 50
    assert offset(OffsetSpec.for_timestamp(T0 + 21)).offset == 21
    assert (offset(OffsetSpec.max_timestamp()).offset, offset(OffsetSpec.max_timestamp()).timestamp) == (49, T0 + 49)
    unknown = TopicPartition(topic, 9)
    code = code_of(admin.list_offsets({unknown: OffsetSpec.latest()})[unknown])
    assert code == KafkaError._NOENT  # librdkafka knows from the metadata


def test_deleted_records_move_the_start(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic("delete-records")
    fill(bootstrap, topic, 40)
    partition = TopicPartition(topic, 0)

    def delete(before: int) -> Any:
        [future] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
        return future

    assert delete(15).result(20).low_watermark == 15
    earliest = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(20)
    assert earliest.offset == 15
    assert code_of(delete(41)) == KafkaError.OFFSET_OUT_OF_RANGE
    assert delete(-1).result(20).low_watermark == 40  # -1 is "all there is now"


def test_the_cluster_describes_itself(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(20)
    assert cluster.cluster_id
    assert f"{cluster.controller.host}:{cluster.controller.port}" == bootstrap
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    assert admin.list_topics(timeout=10).cluster_id == cluster.cluster_id
