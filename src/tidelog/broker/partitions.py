"""The replicas this broker holds, found by name or by id, kept in step with the metadata image."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from tidelog.broker.logs import get_logger
from tidelog.clock import Clock
from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.errors import InvalidConfig, StorageOffline, UnknownTopicId, UnknownTopicOrPartition
from tidelog.ids import TopicId, TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir

CREATED_PER_TURN: Final = 1
"""Partitions created before other requests get their turn: each costs a few file operations."""

log = get_logger("partitions")


class Partitions:
    def __init__(self, directory: LogDir, config: BrokerConfig, clock: Clock) -> None:
        self.directory = directory
        self.broker_config = config
        self._static_config = config
        self._clock = clock
        self._by_name: dict[str, list[Replica]] = {}
        self._by_id: dict[UUID, list[Replica]] = {}
        self._checkpointing = asyncio.Lock()
        self.on_created: Callable[[Replica], None] = lambda replica: None
        self.on_removed: Callable[[list[Replica]], None] = lambda replicas: None

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._by_name.values():
            yield from replicas

    def get(self, topic: str, partition: int) -> Replica:
        replicas = self._by_name.get(topic)
        if replicas is None or not 0 <= partition < len(replicas):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        return replicas[partition]

    def get_by_id(self, topic_id: UUID, partition: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        if replicas is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        if not 0 <= partition < len(replicas):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic id {topic_id}")
        return replicas[partition]

    def of_topic(self, topic: str, topic_id: UUID) -> list[Replica]:
        """By name in requests old enough to carry one, else by id."""
        replicas = self._by_name.get(topic) if topic else self._by_id.get(topic_id)
        if replicas is not None:
            return replicas
        if topic:
            raise UnknownTopicOrPartition(f"there is no topic {topic!r}")
        raise UnknownTopicId(f"there is no topic with id {topic_id}")

    def find(self, topic: str, topic_id: UUID, partition: int) -> Replica:
        """By name in requests old enough to carry one, else by id."""
        return self.get(topic, partition) if topic else self.get_by_id(topic_id, partition)

    def topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        """Stored settings were valid when they were stored. Where the broker's have changed since so that they no
        longer go together, the broker's rule: one topic must not keep the others from being served.
        """
        stored = image.topic_config(topic)
        try:
            return TopicConfig.resolve(self.broker_config, stored)
        except InvalidConfig as error:
            log.error("a topic's settings are ignored", topic=topic, error=str(error))
            return TopicConfig.resolve(self.broker_config, {})

    def check_configs(self, image: MetadataImage, topics: Iterable[str]) -> None:
        """Refuse an image whose settings do not go together, before it is stored: afterwards no broker could start."""
        broker = self._static_config.with_dynamic(image.broker_config(self._static_config.node_id))
        for name in topics:
            try:
                TopicConfig.resolve(broker, image.topic_config(name))
            except InvalidConfig as error:
                raise InvalidConfig(f"topic {name}: {error}") from error

    # -- following the image ----------------------------------------------------------------------------------------

    async def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """Bring the disk in step: new partitions get logs, removed topics lose theirs, changed settings take effect."""
        if before.configs != after.configs:
            self._reconfigure(before, after)
        for name, topic in before.topics.items():
            now = after.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                await self._remove(topic)
        for name, topic in after.topics.items():
            if len(self._by_name.get(name, ())) < len(topic.partitions):
                await self.host(topic, self.topic_config(after, name))

    async def host(self, topic: TopicImage, config: TopicConfig) -> None:
        """What a full disk or too many open files prevents is told, and done when the image is followed again."""
        replicas = self._by_name.get(topic.name, [])
        try:
            for partition in topic.partitions[len(replicas) :]:
                place = TopicPartition(topic.name, partition.partition)
                partition_log = self._open(place, topic.topic_id, config)
                replica = Replica(partition_log, topic.topic_id, partition.leader_epoch)
                self.on_created(replica)
                replicas.append(replica)
                if len(replicas) % CREATED_PER_TURN == 0:
                    await asyncio.sleep(0)
        except OSError as error:
            raise StorageOffline(f"{place} cannot be created yet: {error}") from error
        finally:
            self._by_name[topic.name] = self._by_id[topic.topic_id] = replicas

    def _open(self, place: TopicPartition, topic_id: UUID, config: TopicConfig) -> Log:
        now_ms = self._clock.now_ms()
        if not self.directory.has_log(place):
            return self.directory.create_log(place, TopicId(topic_id), config, now_ms=now_ms)
        opened = self.directory.open_log(place, TopicId(topic_id), config, now_ms=now_ms)
        if opened.recovery.eventful:
            _tell(opened)
        # What a recovery found is in the page cache at least. Nobody may read it before it is on disk.
        opened.flush()
        return opened

    async def _remove(self, topic: TopicImage) -> None:
        replicas = self._by_name.pop(topic.name, [])
        self._by_id.pop(topic.topic_id, None)
        self.on_removed(replicas)
        loop = asyncio.get_running_loop()
        for replica in replicas:
            delete = self.directory.delete_log(replica.partition)
            await loop.run_in_executor(None, delete)
        # Before the name can be used again: or a crash would hand the new topic the old one's offsets.
        await self.checkpoint()

    async def checkpoint(self) -> None:
        """One at a time, so that the newest is written last."""
        async with self._checkpointing:
            if not self.directory.failed:
                await asyncio.get_running_loop().run_in_executor(None, self.directory.prepare_checkpoint())

    async def checkpoint_start_offsets(self) -> None:
        """What was deleted stays deleted from here on, also after a crash."""
        async with self._checkpointing:
            write = self.directory.prepare_start_offsets()
            if write is not None:
                await asyncio.get_running_loop().run_in_executor(None, write)

    def _reconfigure(self, before: MetadataImage, after: MetadataImage) -> None:
        node = self._static_config.node_id
        broker_changed = before.broker_config(node) != after.broker_config(node)
        if broker_changed:
            self.broker_config = self._static_config.with_dynamic(after.broker_config(node))
        for name, replicas in self._by_name.items():
            if broker_changed or before.topic_config(name) != after.topic_config(name):
                config = self.topic_config(after, name)
                for replica in replicas:
                    replica.log.reconfigure(config)
                    replica.advance_watermark()


def _tell(opened: Log) -> None:
    report = opened.recovery
    facts = {
        "partition": str(opened.partition),
        "end_offset": opened.end_offset,
        "bytes_scanned": report.bytes_scanned,
        "bytes_truncated": report.bytes_truncated,
    }
    if report.corrupt:
        # Not a torn tail: valid batches follow the broken one. What was cut off is kept aside.
        log.error("corrupt batches found", **facts, corrupt=report.corrupt, kept_in=report.quarantined)
    else:
        log.info("recovered", **facts)
