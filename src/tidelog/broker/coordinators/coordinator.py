"""A coordinator as the broker runs it: a shard per partition of its internal topic, found by key.

The topic is made when it is first needed; each of its partitions that is here is loaded and then answers.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple

from tidelog.broker.coordinators.shard_host import Decide, Done, OnEffect, Rec, RecordFormat, S, ShardHost, no_effects
from tidelog.broker.flusher import Flusher
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.clock import Clock
from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError, StorageOffline
from tidelog.storage.log import Verification

NOWHERE: Final = -1
READY_SECONDS: Final = 5.0
"""How long whoever looks for a coordinator waits for it to be loaded, before it is told to come back."""

log = get_logger("coordinator")


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class Coordinator(Generic[S, Rec]):
    """All shards of one internal topic."""

    def __init__(
        self,
        topic: InternalTopic,
        make_shard: Callable[[Replica], S],
        records: RecordFormat[Rec],
        *,
        partitions: Partitions,
        metadata: Metadata,
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
        new_topic_id: Callable[[], Any],
        on_effect: OnEffect = no_effects,
    ) -> None:
        self.topic = topic
        self._on_effect = on_effect
        self._make_shard = make_shard
        self._records = records
        self._partitions = partitions
        self._metadata = metadata
        self._flusher = flusher
        self._clock = clock
        self.loop = loop
        self._new_topic_id = new_topic_id
        self._hosts: dict[int, ShardHost[S, Rec]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._loaded: dict[int, asyncio.Event] = {}

    async def ensure_topic(self) -> None:
        """Made when the first client asks for a coordinator: a broker without groups has no files for them."""
        if self.topic.name in self._metadata.image.topics:
            return
        config = self._partitions.broker_config
        # In a cluster that is still starting, better later than with fewer replicas than it will have brokers.
        factor = min(self.topic.replication_factor, max(len(config.voters), 1))

        def decide(image: MetadataImage) -> list[AnyRecord]:
            if self.topic.name in image.topics:
                return []
            return controller.create_topic(
                image,
                self.topic.name,
                topic_id=self._new_topic_id(),
                brokers=image.available or [config.node_id],
                partitions=self.topic.partitions,
                replication_factor=factor,
                configs=self.topic.config,
            )

        await self._metadata.change(decide)

    def adopt(self, replica: Replica) -> None:
        """This broker leads a partition of the topic: load what it says."""
        self.resign(replica)  # from what it knew in an earlier epoch
        shard = self._make_shard(replica)
        host = ShardHost(replica, shard, self._records, self._flusher, self._clock, self.loop, self._on_effect)
        self._hosts[replica.partition.partition] = host
        task = self.loop.create_task(self._load(host))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    def resign(self, replica: Replica) -> None:
        """Another broker decides from now on: whoever waits is sent to it."""
        host = self._hosts.pop(replica.partition.partition, None)
        self._loaded_event(replica.partition.partition).clear()  # whoever waits for it waits for the next one
        if host is not None:
            host.fail(KafkaError(f"{replica.partition} is led by another broker", ErrorCode.NOT_COORDINATOR))

    async def _load(self, host: ShardHost[S, Rec]) -> None:
        try:
            await host.load()
            partition = host.replica.partition.partition
            if self._hosts.get(partition) is host:
                self._loaded_event(partition).set()
        except Exception:
            # Not served rather than served with half its state: clients are told to come back, people are told why.
            log.exception("cannot load coordinator state", partition=str(host.replica.partition))

    def leader_of(self, key: str) -> int:
        """The broker that decides for this key."""
        topic = self._metadata.image.topics.get(self.topic.name)
        if topic is None:
            raise KafkaError(f"{self.topic.name} is not here yet", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
        if leader < 0:
            raise KafkaError(f"nobody leads that part of {self.topic.name}", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    async def ready(self, key: str) -> None:
        """Until the shard of this key answers. A client that is told where its coordinator is and then refused there
        asks again after seconds only; one that learns it a few milliseconds later joins at once."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._loaded_event(partition_of(key, self.partition_count)).wait()
        except TimeoutError as error:
            text = "the coordinator is still loading"
            raise KafkaError(text, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error

    def _loaded_event(self, partition: int) -> asyncio.Event:
        return self._loaded.setdefault(partition, asyncio.Event())

    def host_for(self, key: str) -> ShardHost[S, Rec]:
        count = self.partition_count
        return self.host_at(partition_of(key, count) if count else NOWHERE)

    def find(self, key: str) -> ShardHost[S, Rec] | None:
        count = self.partition_count
        return self._hosts.get(partition_of(key, count)) if count else None

    def host_at(self, partition: int) -> ShardHost[S, Rec]:
        host = self._hosts.get(partition)
        if host is None:
            elsewhere = 0 <= partition < self.partition_count
            code = ErrorCode.NOT_COORDINATOR if elsewhere else ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise KafkaError(f"{self.topic.name} is not here", code)
        return host

    def partition_for(self, key: str) -> int:
        """Where the key lives, or will live once the topic exists."""
        return partition_of(key, self.partition_count or self.topic.partitions)

    @property
    def partition_count(self) -> int:
        topic = self._metadata.image.topics.get(self.topic.name)
        return len(topic.partitions) if topic is not None else 0

    @property
    def hosts(self) -> Iterator[ShardHost[S, Rec]]:
        return iter(self._hosts.values())

    def on_watermark(self, replica: Replica) -> None:
        host = self._hosts.get(replica.partition.partition)
        if host is not None and host.replica is replica:
            host.on_watermark()

    def submit(self, key: str, decide: "Decide[S, Rec]", done: Done, verification: Verification | None = None) -> None:
        try:
            host = self.host_for(key)
        except KafkaError as error:
            done(error)
            return
        host.submit(decide, done, verification)

    def fail(self, error: StorageOffline) -> None:
        """The disk under the topic is gone, and with it what these shards could promise."""
        for host in self._hosts.values():
            host.fail(error)


@lru_cache(maxsize=4096)
def partition_of(key: str, partitions: int) -> int:
    """Where Kafka keeps this group: Java's String.hashCode over UTF-16, made positive."""
    hashed = 0
    units = key.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return (hashed if hashed < 0x80000000 else 0x100000000 - hashed) % partitions
