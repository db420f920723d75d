"""How long a topic keeps records, and how many bytes a partition holds: what decides when unread records are lost."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tidelog.ids import TopicPartition
from tidelog.observe.clients import TIMEOUT_SECONDS, Kafka, speaks_plainly
from tidelog.observe.log_dirs import partition_sizes

UNLIMITED: Final = -1


class Retention(msgspec.Struct, frozen=True):
    ms: int = UNLIMITED
    bytes: int = UNLIMITED


def retention_of(kafka: Kafka, topics: Iterable[str]) -> dict[str, Retention]:
    """Topics whose settings may not be read are left out."""
    from confluent_kafka import KafkaException
    from confluent_kafka import admin as api

    resource: Any = api.ConfigResource  # type: ignore[attr-defined]
    asked = [resource(resource.Type.TOPIC, topic) for topic in topics]
    found = {}
    for where, future in kafka.admin.describe_configs(asked).items() if asked else ():
        try:
            configs = future.result(TIMEOUT_SECONDS)
        except KafkaException:
            continue
        if "delete" in configs["cleanup.policy"].value:
            found[where.name] = Retention(int(configs["retention.ms"].value), int(configs["retention.bytes"].value))
        else:
            found[where.name] = Retention()
    return found


def sizes_of(kafka: Kafka, topic: str) -> dict[TopicPartition, int]:
    """Bytes of each partition; empty if the cluster does not tell us."""
    if not speaks_plainly(kafka):
        return {}
    metadata = kafka.admin.list_topics(topic, timeout=TIMEOUT_SECONDS)
    brokers = [(broker.host, broker.port) for broker in metadata.brokers.values()]
    sizes = partition_sizes(brokers, topic, metadata.topics[topic].partitions)
    return {TopicPartition(topic, partition): size for partition, size in sizes.items()}
