"""What `topic describe` knows about a topic: partitions, offsets, skew, ordering scope, settings that were chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.cli.connecting import TIMEOUT_SECONDS, Cluster, admin_api, result

# DescribeConfigs' numbers for where a value comes from, in the words of this CLI.
SOURCES = {
    1: "topic",
    2: "broker, at run time",
    3: "all brokers, at run time",
    4: "broker's server.properties, environment or flag",
    5: "default",
    8: "group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start_offset: int
    end_offset: int
    size_bytes: int | None  # None when the cluster does not tell

    @property
    def records(self) -> int:
        """Offsets between start and end: an upper bound once compaction has made gaps or transactions left markers."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReport:
    name: str
    value: str | None
    source: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    topic: str
    partitions: tuple[PartitionReport, ...]
    configs: tuple[ConfigReport, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def skew(self) -> float | None:
        return skew([each.records for each in self.partitions])

    @property
    def ordering(self) -> str:
        return ordering(len(self.partitions))

    def to_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "records": self.records,
            "skew": self.skew,
            "ordering": self.ordering,
            "partitions": [
                {
                    "partition": each.partition,
                    "leader": each.leader,
                    "replicas": each.replicas,
                    "in_sync_replicas": each.in_sync,
                    "start_offset": each.start_offset,
                    "end_offset": each.end_offset,
                    "records": each.records,
                    "size_bytes": each.size_bytes,
                }
                for each in self.partitions
            ],
            "configs": {
                each.name: {"value": each.value, "source": each.source} for each in self.configs if not each.is_default
            },
        }


def skew(counts: Sequence[int]) -> float | None:
    """Fullest over mean: 1.0 is even, N is everything in one of N partitions. None for an empty topic."""
    total = sum(counts)
    return round(max(counts) * len(counts) / total, 2) if total else None


def ordering(partitions: int) -> str:
    if partitions == 1:
        return "the whole log is in order, because it has one partition"
    return "in order per partition, and so per key for as long as the number of partitions stays the same"


def gather(cluster: Cluster, topic: str) -> TopicReport:
    metadata = cluster.topics(topic)
    found = metadata.topics[topic]
    admin = cluster.admin
    starts, ends = (_offsets(admin, topic, found.partitions, which) for which in ("earliest", "latest"))
    sizes = _sizes(cluster, metadata, topic)
    partitions = tuple(
        PartitionReport(
            partition=each.id,
            leader=each.leader,
            replicas=tuple(each.replicas),
            in_sync=tuple(each.isrs),
            start_offset=starts.get(each.id, 0),
            end_offset=ends.get(each.id, 0),
            size_bytes=sizes.get(each.id),
        )
        for each in sorted(found.partitions.values(), key=lambda each: each.id)
    )
    return TopicReport(topic=topic, partitions=partitions, configs=tuple(configs(admin, "topic", topic)))


def configs(admin: Any, kind: str, name: str) -> list[ConfigReport]:
    api = admin_api()
    resource = api.ConfigResource(api.ConfigResource.Type[kind.upper()], name)
    entries = result(admin.describe_configs([resource]))
    return [
        ConfigReport(
            name=entry.name,
            value=entry.value,
            source=SOURCES.get(int(entry.source), "unknown"),
            is_default=bool(entry.is_default) or int(entry.source) == 5,
        )
        for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
    ]


def _offsets(admin: Any, topic: str, partitions: Mapping[int, Any], which: str) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    asked = {TopicPartition(topic, each): getattr(admin_api().OffsetSpec, which)() for each in partitions}
    answers = admin.list_offsets(asked)
    return {where.partition: answer.result(TIMEOUT_SECONDS).offset for where, answer in answers.items()}


def _sizes(cluster: Cluster, metadata: Any, topic: str) -> dict[int, int]:
    if cluster.properties.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        return {}
    from tidelog.observe.log_dirs import partition_sizes

    brokers = [(broker.host, broker.port) for broker in metadata.brokers.values()]
    return partition_sizes(brokers, topic, metadata.topics[topic].partitions)
