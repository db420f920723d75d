"""What is audited: which offsets of which partitions, settled once so that every pass reads the same stretch of log."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.client.cluster import EARLIEST, LATEST, READ_COMMITTED, Cluster
from tidelog.errors import UnknownTopicOrPartition
from tidelog.ids import TopicPartition
from tidelog.spark.audit.result import PartitionNumbers
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import parse_options
from tidelog.spark.resolve import open_cluster, resolve
from tidelog.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

_TOPIC: Final = 2  # a resource type
LATE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`start` and `end` are options of the source, such as {"startingTimestamp": "1700000000000"}.

    `event_time`, `sequence` and `event_id` name a field of JSON values (`a.b` one inside another), `header:NAME`, or
    `key`. Records that come more than `late_ms` behind the youngest before them are late.
    """

    topic: str
    bootstrap_servers: str
    start: dict[str, str] = field(default_factory=dict)
    end: dict[str, str] = field(default_factory=dict)
    event_time: str | None = None
    sequence: str | None = None
    event_id: str | None = None
    late_ms: int = LATE_MS
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Scope:
    wanted: Wanted
    cleanup_policy: str
    partitions: list[PartitionNumbers]
    open_from: dict[int, int]  # partitions whose end is an open transaction, and where their log really ends

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    def at(self, partition: int, offset: int) -> str:
        return f"{self.wanted.topic}-{partition}@{offset}"

    def options(self) -> dict[str, str]:
        """Of the source: exactly this stretch."""
        topic = self.wanted.topic
        starts = {str(each.partition): each.start for each in self.partitions}
        ends = {str(each.partition): each.end for each in self.partitions}
        return {
            "kafka.bootstrap.servers": self.wanted.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: starts}),
            "endingOffsets": json.dumps({topic: ends}),
            "kafka.default.api.timeout.ms": str(self.wanted.timeout_ms),
            "failOnDataLoss": "false",  # what retention takes meanwhile is found when everything is added up
        }


def find_scope(wanted: Wanted) -> Scope:
    given = {
        "kafka.bootstrap.servers": wanted.bootstrap_servers,
        "subscribe": wanted.topic,
        "kafka.isolation.level": "read_committed",
        "kafka.default.api.timeout.ms": str(wanted.timeout_ms),
        "startingOffsetsByTimestampStrategy": "latest",
        **wanted.start,
        **wanted.end,
    }
    options = parse_options(given, streaming=False)
    with open_cluster(options) as cluster:
        topic = cluster.topics([wanted.topic]).get(wanted.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {wanted.topic} does not exist on {wanted.bootstrap_servers}")
        everywhere = [TopicPartition(wanted.topic, number) for number in topic.partitions]
        starts = resolve(cluster, options, everywhere, options.starting, is_start=True)
        ends = resolve(cluster, options, everywhere, options.ending, is_start=False)
        log_starts = cluster.offsets(dict.fromkeys(everywhere, EARLIEST))
        stable = cluster.offsets(dict.fromkeys(everywhere, LATEST), READ_COMMITTED)
        visible = cluster.offsets(dict.fromkeys(everywhere, LATEST))
        policy = cleanup_policy(cluster, wanted.topic)
    found = []
    for at in everywhere:
        log_start, end = log_starts[at].offset, min(ends[at].offset, stable[at].offset)
        start = max(starts[at].offset, log_start)
        if start > end and wanted.start and wanted.end:
            raise InvalidOption(f"{at}: the start, offset {start}, is behind the end, offset {end}")
        found.append(PartitionNumbers(at.partition, log_start, min(start, end), end))
    is_open = {at.partition: visible[at].offset for at in everywhere if visible[at].offset > stable[at].offset}
    return Scope(wanted, policy, found, is_open)


def log_starts(scope: Scope) -> dict[int, int]:
    """Where the logs begin now."""
    with Cluster(scope.wanted.bootstrap_servers, timeout_s=scope.wanted.timeout_ms / 1000) as cluster:
        places = [TopicPartition(scope.wanted.topic, each.partition) for each in scope.partitions]
        return {at.partition: row.offset for at, row in cluster.offsets(dict.fromkeys(places, EARLIEST)).items()}


def cleanup_policy(cluster: Cluster, topic: str) -> str:
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=("cleanup.policy",)
    )

    def ask() -> Any:
        return cluster.anyone().ask(DescribeConfigsRequest(resources=(resource,)))

    for result in cluster.retry(ask).results:
        for config in result.configs:
            if config.name == "cleanup.policy" and config.value is not None:
                return str(config.value)
    return "delete"  # a right may be missing; holes then look like loss, which is the safe side
