"""The metadata image: an immutable picture of brokers, topics, partitions and settings.

`image.apply(records)` returns the next picture; nobody ever changes one. Readers hold a reference and are never
surprised.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec

from tidelog.cluster.records import (
    AnyRecord,
    BrokerRecord,
    BrokerRemoved,
    ConfigRecord,
    ImageReset,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    TopicRemoved,
    VoterRecord,
)
from tidelog.errors import invariant

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
ConfigResource = tuple[int, str]

_EMPTY: Mapping[str, str] = MappingProxyType({})


class PartitionImage(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def changed(self, topic_id: UUID, **fields: Any) -> PartitionRecord:
        """The record of this partition with some fields different, as its next version."""
        record = self.record(topic_id)
        return msgspec.structs.replace(record, partition_epoch=self.partition_epoch + 1, **fields)

    def record(self, topic_id: UUID) -> PartitionRecord:
        return PartitionRecord(
            topic_id,
            self.partition,
            self.leader,
            self.leader_epoch,
            self.replicas,
            self.isr,
            self.partition_epoch,
            self.adding,
            self.removing,
        )


BrokerImage = BrokerRecord
NO_LEADER = -1


class TopicImage(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...] = ()

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class MetadataImage(msgspec.Struct, frozen=True):
    cluster_id: str
    version: int = 0
    topics: Mapping[str, TopicImage] = MappingProxyType({})
    names_by_id: Mapping[UUID, str] = MappingProxyType({})
    configs: Mapping[ConfigResource, Mapping[str, str]] = MappingProxyType({})
    next_producer_id: int = 0
    brokers: Mapping[int, BrokerImage] = MappingProxyType({})
    voters: Mapping[int, bool] = MappingProxyType({})
    """Brokers that were given a vote in the quorum, or lost it, by request."""

    def is_available(self, node_id: int) -> bool:
        """Whether this broker may be given something to lead."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced and not broker.stopping

    @property
    def available(self) -> list[int]:
        return sorted(node_id for node_id in self.brokers if self.is_available(node_id))

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), _EMPTY)

    def broker_config(self, node_id: int) -> Mapping[str, str]:
        """Cluster-wide dynamic defaults (named "") under this broker's own."""
        return {
            **self.configs.get((BROKER_RESOURCE, ""), _EMPTY),
            **self.configs.get((BROKER_RESOURCE, str(node_id)), _EMPTY),
        }

    def apply(self, records: Iterable[AnyRecord]) -> "MetadataImage":
        draft = _Draft(self)
        for record in records:
            draft.apply(record)
        return draft.freeze()

    def as_records(self) -> list[AnyRecord]:
        """Everything needed to rebuild this image from nothing: the content of a snapshot."""
        records: list[AnyRecord] = [ImageReset(self.cluster_id), ProducerIdsRecord(self.next_producer_id)]
        records.extend(self.brokers.values())
        records.extend(VoterRecord(node_id, votes) for node_id, votes in self.voters.items())
        for topic in self.topics.values():
            records.append(TopicRecord(topic.name, topic.topic_id))
            records.extend(partition.record(topic.topic_id) for partition in topic.partitions)
        for (resource_type, name), config in self.configs.items():
            records.extend(ConfigRecord(resource_type, name, key, value) for key, value in config.items())
        return records


class _Draft:
    """The mutable working copy inside one `apply`."""

    def __init__(self, image: MetadataImage) -> None:
        self._load(image)

    def _load(self, image: MetadataImage) -> None:
        self.cluster_id = image.cluster_id
        self.version = image.version
        self.topics = dict(image.topics)
        self.names = dict(image.names_by_id)
        self.configs = dict(image.configs)
        self.next_producer_id = image.next_producer_id
        self.brokers = dict(image.brokers)
        self.voters = dict(image.voters)
        self.partitions: dict[str, list[PartitionImage]] = {}

    def apply(self, record: AnyRecord) -> None:
        match record:
            case TopicRecord(name, topic_id):
                self.topics[name] = TopicImage(name, topic_id)
                self.names[topic_id] = name
                self.partitions[name] = []
            case PartitionRecord():
                self._place(record)
            case TopicRemoved(name, topic_id):
                self.topics.pop(name, None)
                self.names.pop(topic_id, None)
                self.partitions.pop(name, None)
                self.configs.pop((TOPIC_RESOURCE, name), None)
            case ConfigRecord(resource_type, resource_name, key, value):
                config = dict(self.configs.get((resource_type, resource_name), _EMPTY))
                if value is None:
                    config.pop(key, None)
                else:
                    config[key] = value
                self.configs[resource_type, resource_name] = config
            case ProducerIdsRecord(next_producer_id):
                self.next_producer_id = max(self.next_producer_id, next_producer_id)
            case BrokerRecord(node_id):
                self.brokers[node_id] = record
            case BrokerRemoved(node_id):
                self.brokers.pop(node_id, None)
            case VoterRecord(node_id, votes):
                self.voters[node_id] = votes
            case ImageReset(cluster_id):
                self._load(MetadataImage(cluster_id, self.version))

    def _place(self, record: PartitionRecord) -> None:
        name = self.names[record.topic_id]
        partitions = self.partitions.get(name)
        if partitions is None:
            partitions = self.partitions[name] = list(self.topics[name].partitions)
        placed = PartitionImage(
            record.partition,
            record.leader,
            record.leader_epoch,
            record.replicas,
            record.isr,
            record.partition_epoch,
            record.adding,
            record.removing,
        )
        if record.partition < len(partitions):
            partitions[record.partition] = placed
        else:
            invariant(record.partition == len(partitions), f"partition {record.partition} of {name} leaves a hole")
            partitions.append(placed)

    def freeze(self) -> MetadataImage:
        for name, partitions in self.partitions.items():
            self.topics[name] = TopicImage(name, self.topics[name].topic_id, tuple(partitions))
        return MetadataImage(
            self.cluster_id,
            self.version + 1,
            self.topics,
            self.names,
            self.configs,
            self.next_producer_id,
            self.brokers,
            self.voters,
        )
