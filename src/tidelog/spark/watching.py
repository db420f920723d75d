"""What a running query needs to know of the cluster, asked no more often than it can change for anybody to notice."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.client.cluster import EARLIEST, LATEST, Cluster, Topic
from tidelog.ids import TopicId, TopicPartition
from tidelog.spark.options import SourceOptions
from tidelog.spark.positions import Position
from tidelog.spark.resolve import find_partitions, find_topics, open_cluster, record_bytes

TOPICS_S: Final = 1.0
"""New topics and partitions are seen after this time."""
ENDS_S: Final = 0.02
"""Spark asks for the end of an idle log every few milliseconds."""
SIZES_S: Final = 60.0


class Watch:
    """The topics of a query as they were a moment ago."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._cluster: Cluster | None = None
        self._must_exist = True
        self._topics: tuple[float, dict[str, Topic]] | None = None
        self._ends: tuple[float, dict[TopicPartition, Position]] | None = None
        self._sizes: tuple[float, dict[str, int]] | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_cluster(self._options)
        return self._cluster

    def topics(self, *, fresh: bool = False) -> dict[str, Topic]:
        """Topics must exist when a query begins; of one that is gone later, others can tell what is lost with it."""
        now = self._clock()
        if fresh or self._topics is None or now - self._topics[0] > TOPICS_S:
            self._topics = now, find_topics(self.cluster, self._options, must_exist=self._must_exist)
            self._must_exist = False
        return self._topics[1]

    def continues(self) -> None:
        """The query is one that has run before: its topics may be gone."""
        self._must_exist = False

    def topic_ids(self) -> dict[str, TopicId]:
        return {name: topic.topic_id for name, topic in self.topics().items()}

    def partitions(self) -> list[TopicPartition]:
        return find_partitions(self.topics(), self._options)

    def ends(self, *, fresh: bool = False) -> dict[TopicPartition, Position]:
        """The end of every partition, the last stable offset for read_committed."""
        now = self._clock()
        if fresh or self._ends is None or now - self._ends[0] > ENDS_S:
            wanted = dict.fromkeys(self.partitions(), LATEST)
            found = self.cluster.offsets(wanted, self._options.isolation_level)
            self._ends = now, {at: Position(row.offset, row.leader_epoch) for at, row in found.items()}
        return self._ends[1]

    def starts(self, partitions: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        """The first offset that each log still has; only of partitions that exist."""
        known = set(self.partitions())
        found = self.cluster.offsets({at: EARLIEST for at in partitions if at in known})
        return {at: row.offset for at, row in found.items()}

    def record_bytes(self) -> dict[str, int]:
        now = self._clock()
        if self._sizes is None or now - self._sizes[0] > SIZES_S or not self._sizes[1]:
            self._sizes = now, record_bytes(self.cluster, self.partitions())
        return self._sizes[1]

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
