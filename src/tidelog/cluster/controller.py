"""The controller's decisions: given the image and a wish, the records that fulfil it, or a typed error.

Pure functions. Ids and dice are arguments; nothing is applied here.
"""

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

from tidelog.cluster.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from tidelog.cluster.placement import Placed, checked_assignments, place_replicas
from tidelog.cluster.records import (
    AnyRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    TopicRemoved,
)
from tidelog.config import validate_topic_configs
from tidelog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

PRODUCER_ID_BLOCK = 1000
MAX_PARTITIONS_PER_TOPIC = 100_000
MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str) -> None:
    """The name becomes a directory, so what it may hold is a matter of safety."""
    if not name:
        raise InvalidTopic("a topic name cannot be empty")
    if name in {".", ".."}:
        raise InvalidTopic(f"a topic cannot be named {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(f"topic name of {len(name)} characters is longer than {MAX_NAME_LENGTH}")
    if not _LEGAL_NAME.match(name):
        raise InvalidTopic(f"topic name {name!r} has characters other than a-z, A-Z, 0-9, '.', '_' and '-'")


def create_topic(
    image: MetadataImage,
    name: str,
    *,
    topic_id: UUID,
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> list[AnyRecord]:
    """`brokers`: those that may lead."""
    check_topic_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"topic {name!r} already exists")
    _refuse_colliding_name(image, name)
    configs = configs or {}
    validate_topic_configs(configs)
    if assignments:
        placed = checked_assignments(image, brokers, assignments, first=0)
    else:
        _check_partition_count(partitions)
        placed = place_replicas(image, brokers, replication_factor, range(partitions))
    records: list[AnyRecord] = [TopicRecord(name, topic_id)]
    records.extend(_partition_records(topic_id, placed, brokers))
    records.extend(ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in configs.items())
    return records


def create_partitions(
    image: MetadataImage,
    name: str,
    *,
    total: int,
    brokers: Sequence[int],
    assignments: Sequence[Sequence[int]] | None = None,
) -> list[AnyRecord]:
    topic = known_topic(image, name)
    if topic.internal:
        # A group or a transactional id lives in the partition that its hash modulo their number names.
        raise InvalidRequest(f"topic {name!r} is internal and cannot grow: what is in it would not be found again")
    have = len(topic.partitions)
    if total == have:
        raise InvalidPartitions(f"topic {name!r} already has {have} partitions")
    if total < have:
        raise InvalidPartitions(f"topic {name!r} has {have} partitions; the number can only grow, not become {total}")
    _check_partition_count(total)
    if assignments is not None:
        if len(assignments) != total - have:
            raise InvalidReplicaAssignment(f"{total - have} new partitions, but {len(assignments)} assignments")
        placed = checked_assignments(image, brokers, dict(enumerate(assignments, start=have)), first=have)
    else:
        placed = place_replicas(image, brokers, len(topic.partitions[0].replicas), range(have, total))
    return _partition_records(topic.topic_id, placed, brokers)


def delete_topic(image: MetadataImage, name: str) -> list[AnyRecord]:
    topic = known_topic(image, name)
    if topic.internal:
        raise InvalidRequest(f"topic {name!r} is internal and cannot be deleted")
    return [TopicRemoved(name, topic.topic_id)]


def delete_topic_by_id(image: MetadataImage, topic_id: UUID) -> list[AnyRecord]:
    """Decided on the image of the moment: a newer topic of the same name is another topic."""
    name = image.names_by_id.get(topic_id)
    if name is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}")
    return delete_topic(image, name)


def alter_topic_config(image: MetadataImage, name: str, wanted: Mapping[str, str]) -> list[AnyRecord]:
    """From the present overrides to `wanted`, which replaces them all."""
    known_topic(image, name)
    validate_topic_configs(wanted)
    present = image.topic_config(name)
    return config_changes(TOPIC_RESOURCE, name, present, wanted)


def config_changes(
    resource_type: int, name: str, present: Mapping[str, str], wanted: Mapping[str, str]
) -> list[AnyRecord]:
    changed: list[AnyRecord] = [
        ConfigRecord(resource_type, name, key, value) for key, value in wanted.items() if present.get(key) != value
    ]
    changed.extend(ConfigRecord(resource_type, name, key, None) for key in present if key not in wanted)
    return changed


def allocate_producer_ids(image: MetadataImage) -> tuple[range, list[AnyRecord]]:
    """A whole block at a time, so that handing out an id does not cost a metadata write."""
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK)
    return block, [ProducerIdsRecord(block.stop)]


def known_topic(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    return topic


def _check_partition_count(count: int) -> None:
    if count < 1:
        raise InvalidPartitions("a topic needs at least one partition")
    if count > MAX_PARTITIONS_PER_TOPIC:
        raise PolicyViolation(f"{count} partitions are more than the limit of {MAX_PARTITIONS_PER_TOPIC}")


def _refuse_colliding_name(image: MetadataImage, name: str) -> None:
    """`a.b` and `a_b` would share one metric name, as in Kafka."""
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in image.topics:
        if other.replace(".", "_") == flat:
            raise InvalidTopic(f"topic {name!r} collides with {other!r}: '.' and '_' count as the same")


def _partition_records(topic_id: UUID, placed: Placed, up: Sequence[int]) -> list[AnyRecord]:
    records: list[AnyRecord] = []
    for partition, replicas in placed.items():
        isr = tuple(node for node in replicas if node in up)
        records.append(PartitionRecord(topic_id, partition, isr[0], 0, replicas, isr))
    return records
