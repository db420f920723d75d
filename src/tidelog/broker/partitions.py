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
        self._unforgotten = False
        """Checkpoints on disk still speak of logs that were removed."""
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
        self.is_removed: Callable[[UUID], bool] = lambda topic_id: False
        """Whether there was a topic of this id, as far as is known."""
        self.may_miss_removals = False
        """Whether a topic may be removed and made anew without this broker hearing of it: it is away, and what it is
        told when it is back is only what there is."""

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._by_name.values():
            for replica in replicas:
                if replica is not None:
                    yield replica

    @property
    def is_complete(self) -> bool:
        """Whether everything that the image has for this broker is here."""
        return not self._incomplete

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
        and every replica learns who leads it. What the disk prevents of it is told at the end, and done when the image
        is followed again: nothing else may wait for it."""
        if before.configs != after.configs:
            self._reconfigure(before, after)
        failure: StorageOffline | None = None
        for name, topic in before.topics.items():
            now = after.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                try:
                    await self._remove(topic)
                except OSError as error:
                    failure = StorageOffline(f"{name} is not removed from disk yet: {error}")
        acts = self.may_act(after)
        for name, topic in after.topics.items():
            known = before.topics.get(name) is topic and name in self._by_name and acts == self._acted
            if not known or name in self._incomplete:
                try:
                    await self._host(topic, self.topic_config(after, name), acts)
                except StorageOffline as error:
                    failure = error
        self._acted = acts
        if failure is not None:
            raise failure

    async def _host(self, topic: TopicImage, config: TopicConfig, acts: bool) -> None:
        replicas = self._by_name.get(topic.name, [])
        self._by_name[topic.name] = self._by_id[topic.topic_id] = replicas
        self._incomplete.add(topic.name)
        failure: StorageOffline | None = None
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition)
            if partition.partition == len(replicas):
                replicas.append(None)
            try:
                await self._host_one(place, topic, partition, replicas, config, acts)
            except (OSError, KafkaError) as error:
                failure = StorageOffline(f"{place} is not in step yet: {error}")
                await asyncio.sleep(0)
        if failure is not None:
            raise failure
        self._incomplete.discard(topic.name)

    async def _host_one(
        self,
        place: TopicPartition,
        topic: TopicImage,
        partition: PartitionImage,
        replicas: Hosted,
        config: TopicConfig,
        acts: bool,
    ) -> None:
        replica = replicas[partition.partition]
        if self._node_id in partition.replicas:
            if replica is None:
                await self._forget_removed()
                self._make_way(place, topic.topic_id, acts)
                replica = replicas[partition.partition] = self._create(place, topic, partition, config)
                await asyncio.sleep(0)  # each costs a few file operations, and others have their turn
            if acts:
                self._assume(replica, partition)
        elif replica is not None:
            replicas[partition.partition] = None
            await self._drop([replica])

    def _make_way(self, place: TopicPartition, topic_id: UUID, acts: bool) -> None:
        """What is there in the name of `place` may be of a topic that was removed while this broker was away."""
        found = self.directory.topic_id_of(place)
        if found is None or found == topic_id or not (self.is_removed(found) or self.may_miss_removals):
            return
        if not acts:
            # An image from before this process began may be older than what is on its disk.
            raise StorageOffline(f"its directory is of another topic of that name, with id {found}")
        if self.is_removed(found):
            self.directory.delete_log(place)()
        else:
            kept_in = self.directory.set_aside(place)
            log.warning("a directory of a topic that is gone is set aside", partition=str(place), kept_in=kept_in)

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
            self._begin_to_lead(replica, partition)
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

    def _begin_to_lead(self, replica: Replica, partition: PartitionImage) -> None:
        try:
            replica.lead(
                partition.leader_epoch,
                node_id=self._node_id,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                monotonic_ms=self._clock.monotonic_ms(),
            )
        except StorageOffline as error:
            # Where an epoch begins is written down. A disk that does not take that takes nothing else either.
            if replica.on_refused is not None:
                replica.on_refused(replica, error)
            raise

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
        self._unforgotten = True
        failure: OSError | None = None
        for replica in replicas:
            try:
                delete = self.directory.delete_log(replica.partition)
                await loop.run_in_executor(None, delete)
            except OSError as error:
                failure = error  # what is left goes when its name is needed, or with the next start
        await self._forget_removed()
        if failure is not None:
            raise failure

    async def _forget_removed(self) -> None:
        """Before a name can be used again: or a crash would hand the new topic the old one's offsets."""
        if self._unforgotten:
            await self.checkpoint()
            self._unforgotten = False

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
            try:
                self.broker_config = self._static_config.with_dynamic(after.broker_config(node))
            except InvalidConfig as error:  # they were valid for whoever changed them, with other files
                log.error("settings changed at run time are ignored", error=str(error))
                self.broker_config = self._static_config
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
