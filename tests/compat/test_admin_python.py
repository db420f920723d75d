"""The same administration through kafka-python, aiokafka and kcat, whose requests and versions differ."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.structs import TopicPartition as AioTopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec
from kafka.errors import InvalidTopicError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .clients import CLIENTS
from .conftest import MakeTopic
from .records import Record

T0 = 1_700_000_000_000


def fill(bootstrap: str, topic: str, count: int) -> None:
    records = [Record(key=None, value=b"%d" % i, timestamp_ms=T0 + i) for i in range(count)]
    CLIENTS["confluent"].produce(bootstrap, topic, 0, records, "none")


@pytest.fixture(scope="module")
def python_admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_kafka_python_topics(python_admin: Any) -> None:
    name = f"kp-{uuid.uuid4().hex[:8]}"
    python_admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    assert name in python_admin.list_topics()
    [described] = python_admin.describe_topics([name])
    assert sorted(p["partition_index"] for p in described["partitions"]) == [0, 1]
    with pytest.raises(TopicAlreadyExistsError):
        python_admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    with pytest.raises(InvalidTopicError):
        python_admin.create_topics({"not valid!": {}})
    python_admin.create_partitions({name: 5})
    [described] = python_admin.describe_topics([name])
    assert len(described["partitions"]) == 5
    python_admin.delete_topics([name])
    assert name not in python_admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        python_admin.delete_topics([name])


def test_kafka_python_describes_topics_by_id_and_page(python_admin: Any, make_topic: MakeTopic) -> None:
    topic = make_topic("kp-by-id", partitions=3)
    [by_name] = python_admin.describe_topics([topic])
    topic_id = uuid.UUID(str(by_name["topic_id"]))
    [by_id] = python_admin.describe_topics([topic_id])
    assert by_id["name"] == topic
    pages = python_admin.describe_topic_partitions([topic])
    assert topic in str(pages)


def test_kafka_python_configs(python_admin: Any, make_topic: MakeTopic) -> None:
    topic = make_topic("kp-config", **{"retention.ms": "60000"})

    def modified() -> Any:
        return python_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]

    assert modified()["retention.ms"]["value"] == "60000"
    change = {"retention.ms": (AlterConfigOp.DELETE, None), "segment.ms": "7000000"}
    python_admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    assert set(modified()) == {"segment.ms"}
    python_admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "8"})], incremental=False
    )
    assert modified()["segment.ms"]["value"] == "8"
    everything = python_admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], include_synonyms=True, config_filter="all"
    )
    assert "max.message.bytes" in everything["topic"][topic]


def test_kafka_python_offsets_and_deleted_records(bootstrap: str, python_admin: Any, make_topic: MakeTopic) -> None:
    topic = make_topic("kp-offsets")
    fill(bootstrap, topic, 30)
    partition = kafka.TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        found: int = python_admin.list_partition_offsets({partition: spec})[partition].offset
        return found

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 30
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 29
    assert offset(T0 + 12) == 12
    python_admin.delete_records({partition: 10})
    assert offset(OffsetSpec.EARLIEST) == 10


def test_kafka_python_describes_cluster_log_dirs_and_producers(
    bootstrap: str, python_admin: Any, make_topic: MakeTopic
) -> None:
    topic = make_topic("kp-cluster")
    fill(bootstrap, topic, 3)
    cluster = python_admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    assert cluster["cluster_id"]
    assert topic in str(python_admin.describe_log_dirs())
    assert topic in str(python_admin.list_config_resources(["TOPIC"]))
    [state] = python_admin.describe_producers([kafka.TopicPartition(topic, 0)]).values()
    [producer] = state.active_producers
    assert producer.last_sequence == 2
    assert python_admin.api_versions()


async def aio_configs(admin: AIOKafkaAdminClient, topic: str, until: tuple[str, str] | None = None) -> dict[str, str]:
    """Retries for two seconds: a changed value is visible in Apache Kafka only a moment later."""
    values: dict[str, str] = {}
    for _ in range(20):
        [answer] = await admin.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, topic)])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        if until is None or values[until[0]] == until[1]:
            return values
        await asyncio.sleep(0.1)
    raise AssertionError(f"{until} never became visible in {values}")


def test_aiokafka_administration(bootstrap: str) -> None:
    name = f"aio-{uuid.uuid4().hex[:8]}"

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
            assert [error[1] for error in created.topic_errors] == [0]
            assert name in await admin.list_topics()
            [described] = await admin.describe_topics([name])
            assert len(described["partitions"]) == 2
            await admin.create_partitions({name: NewPartitions(3)})
            [described] = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            assert len((await admin.describe_cluster())["brokers"]) == 1

            assert (await aio_configs(admin, name))["retention.ms"] == "60000"
            await admin.alter_configs([AioConfigResource(AioConfigResourceType.TOPIC, name, {"segment.ms": "9000"})])
            values = await aio_configs(admin, name, until=("segment.ms", "9000"))
            assert values["retention.ms"] == "604800000"  # the older AlterConfigs replaces the whole set

            await asyncio.to_thread(fill, bootstrap, name, 20)
            deleted = await admin.delete_records({AioTopicPartition(name, 0): RecordsToDelete(before_offset=7)})
            assert deleted == {AioTopicPartition(name, 0): 7}
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())


def test_kcat_lists_metadata(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic("kcat-meta", partitions=3)
    listing = subprocess.run(["kcat", "-b", bootstrap, "-L", "-J"], check=True, capture_output=True, timeout=60)
    metadata = json.loads(listing.stdout)
    [found] = [entry for entry in metadata["topics"] if entry["topic"] == topic]
    assert sorted(entry["partition"] for entry in found["partitions"]) == [0, 1, 2]
    assert [broker["name"] for broker in metadata["brokers"]] == [bootstrap]
