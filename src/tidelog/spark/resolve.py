"""From options to partitions and offsets: what the cluster has of what was asked for."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.client.cluster import EARLIEST, LATEST, Cluster, FoundOffset, Topic
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.ids import TopicPartition
from tidelog.spark.bounds import EARLIEST_OFFSET, LATEST_OFFSET, Bound, InvalidOption
from tidelog.spark.options import SourceOptions
from tidelog.spark.positions import Position
from tidelog.wire.messages.configs import DescribableLogDirTopic, DescribeLogDirsRequest

_SPECIAL: Final = {LATEST_OFFSET: LATEST, EARLIEST_OFFSET: EARLIEST}


def open_cluster(options: SourceOptions) -> Cluster:
    return Cluster(options.bootstrap_servers, client_id=options.client_id, timeout_s=options.timeout_ms / 1000)


def find_topics(cluster: Cluster, options: SourceOptions, *, must_exist: bool = True) -> dict[str, Topic]:
    """The topics that are read, those with a matching name at this moment for a pattern."""
    if options.pattern is not None:
        # The whole name must match, as in Java; and nobody means the offsets topic by `.*`.
        pattern = re.compile(options.pattern)
        everything = cluster.topics(None)
        return {name: t for name, t in everything.items() if not t.is_internal and pattern.fullmatch(name)}
    names = options.topics or tuple({topic for topic, _ in options.assigned})
    found = cluster.topics(names)
    missing = sorted(set(names) - found.keys())
    if missing and must_exist:
        raise UnknownTopicOrPartition(f"topic {', '.join(missing)} does not exist on {options.bootstrap_servers}")
    return found


def find_partitions(topics: Mapping[str, Topic], options: SourceOptions) -> list[TopicPartition]:
    if not options.assigned:
        return [TopicPartition(name, number) for name in sorted(topics) for number in topics[name].partitions]
    for topic, number in options.assigned:
        if topic in topics and number not in topics[topic].partitions:
            count = len(topics[topic].partitions)
            raise InvalidOption(f"assign: partition {number} of topic {topic} does not exist, it has {count}")
    return [at for at in options.assigned if at.topic in topics]


def resolve(
    cluster: Cluster, options: SourceOptions, partitions: Iterable[TopicPartition], bound: Bound, *, is_start: bool
) -> dict[TopicPartition, Position]:
    """The offset that `bound` means in each partition."""
    wanted = list(partitions)
    level = options.isolation_level
    if bound.kind in ("earliest", "latest"):
        special = EARLIEST if bound.kind == "earliest" else LATEST
        return _places(cluster.offsets(dict.fromkeys(wanted, special), level))
    if bound.kind == "timestamp":
        return _by_timestamp(cluster, options, dict.fromkeys(wanted, bound.timestamp), bound, is_start=is_start)
    _check_complete(bound, wanted)
    if bound.kind == "timestamps":
        return _by_timestamp(cluster, options, bound.per_partition, bound, is_start=is_start)
    asked = {at: _SPECIAL[offset] for at, offset in bound.per_partition.items() if offset in _SPECIAL}
    places = {at: Position(offset) for at, offset in bound.per_partition.items() if offset not in _SPECIAL}
    return places | _places(cluster.offsets(asked, level))


def _places(found: Mapping[TopicPartition, FoundOffset]) -> dict[TopicPartition, Position]:
    return {at: Position(row.offset, row.leader_epoch) for at, row in found.items()}


def _by_timestamp(
    cluster: Cluster,
    options: SourceOptions,
    timestamps: Mapping[TopicPartition, int],
    bound: Bound,
    *,
    is_start: bool,
) -> dict[TopicPartition, Position]:
    """The first record at or after each timestamp. Where none is that young, an end is the end of the log; a start is
    an error unless startingOffsetsByTimestampStrategy says latest."""
    level = options.isolation_level
    found = cluster.offsets(timestamps, level)
    late = [at for at, row in found.items() if row.offset < 0]
    if late and is_start and not options.latest_if_no_timestamp:
        raise InvalidOption(
            f"{bound.option}: {late[0]} has no record at or after {timestamps[late[0]]}; "
            "startingOffsetsByTimestampStrategy=latest starts behind its last record"
        )
    ends = cluster.offsets(dict.fromkeys(late, LATEST), level)
    return _places(found | ends)


def _check_complete(bound: Bound, partitions: list[TopicPartition]) -> None:
    """Offsets for some partitions only would leave the others to guessing."""
    missing = sorted(set(partitions) - bound.per_partition.keys())
    unknown = sorted(bound.per_partition.keys() - set(partitions))
    if missing or unknown:
        says = ", ".join(map(str, missing or unknown))
        problem = "does not name" if missing else "names, though they are not read or do not exist,"
        raise InvalidOption(f"{bound.option} {problem} {says}; every partition that is read must be given")


def record_bytes(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """What a record of each topic takes in the log on average, by the brokers' own count. A topic is missing where they
    do not tell (a right may be missing), and its slices are then whole partitions."""
    wanted = list(partitions)
    if not wanted:
        return {}
    try:
        starts = cluster.offsets(dict.fromkeys(wanted, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(wanted, LATEST))
        sizes = _log_sizes(cluster, wanted)
    except (KafkaError, OSError):
        return {}
    totals: dict[str, list[int]] = {}
    for at, size in sizes.items():
        if at in ends:
            total = totals.setdefault(at.topic, [0, 0])
            total[0] += size
            total[1] += ends[at].offset - starts[at].offset
    return {topic: max(1, -(-size // count)) for topic, (size, count) in totals.items() if count > 0}


def _log_sizes(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for node_id, topics in cluster.by_leader(partitions).items():
        rows = tuple(DescribableLogDirTopic(topic=name, partitions=tuple(ns)) for name, ns in topics.items())
        for answer in cluster.ask_nodes(DescribeLogDirsRequest(topics=rows), [node_id]):
            for log_dir in answer.results:
                for topic in log_dir.topics:
                    for part in topic.partitions:
                        sizes[TopicPartition(topic.name, part.partition_index)] = part.partition_size
    return sizes
