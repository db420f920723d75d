"""The replicas this broker holds, found by name or by id, kept in step with the metadata image."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn
from uuid import UUID

from tidelog.broker.logs import get_logger
from tidelog.clock import Clock
from tidelog.cluster.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.errors import (
    InvalidConfig,
    KafkaError,
    NotLeaderOrFollower,
    StorageOffline,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.ids import TopicId, TopicPartition
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir

NOT_YET: Final = -1
"""The leader epoch of a replica that was not told its role yet."""

Hosted = list[Replica | None]
"""The partitions of a topic by number; None where other brokers have them."""

log = get_logger("partitions")


class Partitions:
    def __init__(self, directory: LogDir, config: BrokerConfig, clock: Clock) -> None:
        self.directory = directory
        self.broker_config = config
        self._static_config = config
        self._node_id = config.node_id
        self._clock = clock
        self._by_name: dict[str, Hosted] = {}
        self._by_id: dict[UUID, Hosted] = {}
        self._acted = False
        self._incomplete: set[str] = set()
        """Topics of which something is still to be created or removed here."""
        self._checkpointing = asyncio.Lock()
        self.on_created: Callable[[Replica], None] = lambda replica: None
        self.on_removed: Callable[[list[Replica]], None] = lambda replicas: None
        self.on_role: Callable[[Replica], None] = lambda replica: None
        """Told when a replica begins to lead or to follow, each time in a new epoch."""
        self.on_short: Callable[[Replica], None] = lambda replica: None
        """Told when fewer replicas are in sync than acks=all asks for."""
        self.may_act: Callable[[MetadataImage], bool] = lambda image: True
        """Whether the roles that an image gives to this broker are meant for this process, and not for an earlier one
        that had what was in its memory."""

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._by_name.values():
            for replica in replicas:
                if replica is not None:
                    yield replica

    def get(self, topic: str, partition: int) -> Replica:
        replicas = self._by_name.get(topic)
        if replicas is None or not 0 <= partition < len(replicas):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        return replicas[partition] or _elsewhere(topic, partition)

    def led(self, topic: str, partition: int) -> Replica:
        """Only if this broker leads it."""
        replica = self.get(topic, partition)
        replica.check_leader()
        return replica

    def get_by_id(self, topic_id: UUID, partition: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        if replicas is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        if not 0 <= partition < len(replicas):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic id {topic_id}")
        return replicas[partition] or _elsewhere(str(topic_id), partition)

    def of_topic(self, topic: str, topic_id: UUID) -> "Hosted":
        """By name in requests old enough to carry one, else by id. None where another broker has the partition."""
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
        """Bring the disk in step: new partitions get logs, removed topics lose theirs, changed settings take effect;
        and every replica learns who leads it."""
        if before.configs != after.configs:
            self._reconfigure(before, after)
        for name, topic in before.topics.items():
            now = after.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                await self._remove(topic)
        acts = self.may_act(after)
        failure: StorageOffline | None = None
        for name, topic in after.topics.items():
            known = before.topics.get(name) is topic and name in self._by_name and acts == self._acted
            if not known or name in self._incomplete:
                try:
                    await self._host(topic, self.topic_config(after, name), acts)
                except StorageOffline as error:
                    failure = error  # the other topics are none the worse
        self._acted = acts
        if failure is not None:
            raise failure

    async def _host(self, topic: TopicImage, config: TopicConfig, acts: bool) -> None:
        """What a full disk, too many open files or a directory of another topic prevents is told, and done when the
        image is followed again."""
        replicas = self._by_name.get(topic.name, [])
        self._by_name[topic.name] = self._by_id[topic.topic_id] = replicas
        self._incomplete.add(topic.name)
        try:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition)
                if partition.partition == len(replicas):
                    replicas.append(None)
                replica = replicas[partition.partition]
                if self._node_id in partition.replicas:
                    if replica is None:
                        replica = self._create(place, topic, partition, config)
                        replicas[partition.partition] = replica
                        await asyncio.sleep(0)  # each costs a few file operations, and others have their turn
                    if acts:
                        self._assume(replica, partition)
                elif replica is not None:
                    replicas[partition.partition] = None
                    await self._drop([replica])
        except (OSError, KafkaError) as error:
            raise StorageOffline(f"{place} cannot be hosted yet: {error}") from error
        self._incomplete.discard(topic.name)

    def _create(
        self, place: TopicPartition, topic: TopicImage, partition: PartitionImage, config: TopicConfig
    ) -> Replica:
        partition_log = self._open(place, topic.topic_id, config)
        # With other replicas, what is here may be more than what is safe: only what was seen to be safe is.
        watermark = None if len(partition.replicas) == 1 else self.directory.high_watermarks.get(place, 0)
        replica = Replica(partition_log, topic.topic_id, NOT_YET, watermark)
        replica.follow(NO_LEADER, NOT_YET, NOT_YET)
        self.on_created(replica)
        return replica

    def _assume(self, replica: Replica, partition: PartitionImage) -> None:
        """The role that the image gives this replica."""
        epoch = replica.leader_epoch
        leads = partition.leader == self._node_id
        if leads and replica.is_damaged and replica.config.unclean_leader_election_enable:
            log.error(
                "led without what is damaged here, as unclean.leader.election.enable says",
                partition=str(replica.partition), end_offset=replica.log.end_offset, missing=replica.missing_before,
            )  # fmt: skip
            replica.missing_before = 0
        if leads and not replica.is_damaged:
            replica.lead(
                partition.leader_epoch,
                node_id=self._node_id,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                monotonic_ms=self._clock.monotonic_ms(),
            )
        else:
            leader = NO_LEADER if leads else partition.leader
            replica.follow(leader, partition.leader_epoch, partition.partition_epoch)
        if leads and replica.is_damaged and epoch != partition.leader_epoch:
            log.critical(
                "not led: part of what was acknowledged is damaged here, and no other replica is in sync",
                partition=str(replica.partition), end_offset=replica.log.end_offset, missing=replica.missing_before,
                next="bring back a broker that has it, or set unclean.leader.election.enable=true for the topic, which"
                " gives it up, and start this one again",
            )  # fmt: skip
        if epoch != partition.leader_epoch:
            self.on_role(replica)
        elif replica.is_leader and not replica.has_enough:
            self.on_short(replica)

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
        replicas = [replica for replica in self._by_name.pop(topic.name, []) if replica is not None]
        self._by_id.pop(topic.topic_id, None)
        self._incomplete.discard(topic.name)
        await self._drop(replicas)

    async def _drop(self, replicas: list[Replica]) -> None:
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
                for replica in self:
                    if replica.leader_epoch != NOT_YET and (replica.followers is not None or not replica.is_leader):
                        self.directory.high_watermarks[replica.partition] = replica.known_watermark
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
                    if replica is not None:
                        replica.log.reconfigure(config)
                        replica.advance_watermark()


def _elsewhere(topic: str, partition: int) -> NoReturn:
    raise NotLeaderOrFollower(f"{topic}-{partition} is on other brokers")


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
