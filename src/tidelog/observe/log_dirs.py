"""Sizes of partitions, from DescribeLogDirs: asked with our own small client, because confluent-kafka cannot ask it."""

from collections.abc import Iterable

from tidelog.client.connection import Connection
from tidelog.errors import MalformedMessage
from tidelog.wire.messages.configs import DescribableLogDirTopic, DescribeLogDirsRequest

_VERSION = 1  # since Kafka 2.0; everything asked for here is in it
_TIMEOUT_SECONDS = 5.0


def partition_sizes(brokers: Iterable[tuple[str, int]], topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Bytes of each partition, of the fullest replica. A broker that does not tell leaves its partitions out."""
    asked = DescribableLogDirTopic(topic=topic, partitions=tuple(partitions))
    sizes: dict[int, int] = {}
    for host, port in brokers:
        try:
            with Connection(host, port, _TIMEOUT_SECONDS) as connection:
                answer = connection.call(DescribeLogDirsRequest(topics=(asked,)), _VERSION)
        except (OSError, MalformedMessage):
            continue  # TLS, a password, or another kind of Kafka: the rest of the report does not depend on it
        for each in (part for log_dir in answer.results for found in log_dir.topics for part in found.partitions):
            sizes[each.partition_index] = max(each.partition_size, sizes.get(each.partition_index, 0))
    return sizes
