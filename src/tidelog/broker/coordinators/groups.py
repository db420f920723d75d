"""The group coordinator put together: settings for its shards, the topic they live in, and the topics they may know."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final
from uuid import uuid4

from tidelog.broker.coordinators.coordinator import Coordinator, InternalTopic
from tidelog.broker.flusher import Flusher
from tidelog.broker.handlers.groups import GroupCoordinator, GroupRecords
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.clock import Clock
from tidelog.cluster.image import GROUP_RESOURCE, MetadataImage
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig, GroupConfig
from tidelog.errors import InvalidConfig, KafkaError
from tidelog.groups.consumer_groups import ConsumerGroups
from tidelog.groups.consumer_heartbeat import ConsumerGroupSettings
from tidelog.groups.consumer_topics import Topic
from tidelog.groups.group import BATCH_BYTES, GroupSettings
from tidelog.groups.insight import GroupInsight, insight
from tidelog.groups.lag_samples import LagSample, LagSamples
from tidelog.groups.shard import GroupShard
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
MINUTE_MS: Final = 60_000
NEWS_MS: Final = 1_000
"""Samples taken because somebody asked are kept at most this often, unless an offset went back."""

log = get_logger("groups")


class ImageTopics:
    """The metadata image as consumer groups look at it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.version

    def find(self, name: str) -> Topic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else Topic(TopicId(topic.topic_id), len(topic.partitions))

    def name_of(self, topic_id: TopicId) -> str | None:
        return self._image.names_by_id.get(topic_id)

    def names(self) -> Iterable[str]:
        return (name for name, topic in self._image.topics.items() if not topic.internal)


class GroupRoom:
    """Makes the coordinator and keeps its shards up to date with the metadata."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        metadata: Metadata,
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
        dice: Random,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._dice = dice
        self._partitions = partitions
        self._clock = clock
        self._consumer_groups: dict[int, ConsumerGroups] = {}
        """By partition: a shard that is made again, in a newer epoch, takes the place of what it was before."""
        self.lag_samples = LagSamples()
        self.coordinator: GroupCoordinator = Coordinator(
            InternalTopic(
                OFFSETS_TOPIC,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            ),
            self._make_shard,
            GroupRecords(),
            partitions=partitions,
            metadata=metadata,
            flusher=flusher,
            clock=clock,
            loop=loop,
            new_topic_id=uuid4,
        )

    def _make_shard(self, replica: Replica) -> GroupShard:
        config = self._config
        settings = GroupSettings(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            batch_bytes=min(BATCH_BYTES, replica.config.max_message_bytes // 2),
        )
        topics = ImageTopics(self._metadata.image)
        consumer_groups = ConsumerGroups(self._consumer_settings({}), settings, self._dice, topics)
        consumer_groups.settings_changed(self._settings_of_groups(self._metadata.image))
        self._consumer_groups[replica.partition.partition] = consumer_groups
        return GroupShard(settings, self._dice, consumer_groups, self._topic_id_of)

    def _topic_id_of(self, name: str) -> TopicId:
        """As of now: by the same image a commit is given the id of its topic."""
        topic = self._metadata.image.topics.get(name)
        return NO_TOPIC_ID if topic is None else TopicId(topic.topic_id)

    def _consumer_settings(self, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
        config = self._config
        own = GroupConfig.resolve(config, overrides)
        return ConsumerGroupSettings(
            group_consumer_session_timeout_ms=own.consumer_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=own.consumer_heartbeat_interval_ms,
            group_consumer_max_size=config.group_consumer_max_size,
            group_consumer_migration_policy=config.group_consumer_migration_policy,
        )

    def _settings_of_groups(self, image: MetadataImage) -> dict[str, ConsumerGroupSettings]:
        found = {}
        for (kind, name), overrides in image.configs.items():
            if kind != GROUP_RESOURCE or not overrides:
                continue
            try:
                found[name] = self._consumer_settings(overrides)
            except InvalidConfig as error:
                # Valid when they were stored; since then this broker was started with other bounds.
                log.error("a group's settings are ignored", group=name, error=str(error))
        return found

    async def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """New topics may match a subscription; offsets of deleted ones are nobody's any more."""
        topics = ImageTopics(after)
        for consumer_groups in self._consumer_groups.values():
            consumer_groups.topics_changed(topics)
        if before.configs != after.configs:
            settings_of = self._settings_of_groups(after)
            for consumer_groups in self._consumer_groups.values():
                consumer_groups.settings_changed(settings_of)
        gone = [
            TopicPartition(name, partition.partition)
            for name, topic in before.topics.items()
            if name not in after.topics or after.topics[name].topic_id != topic.topic_id
            for partition in topic.partitions
        ]
        if gone:
            self._apply(lambda shard, now_ms: shard.on_partitions_deleted(gone))

    async def expire_offsets(self) -> None:
        self._apply(lambda shard, now_ms: shard.expiry(now_ms))

    async def sample_lag(self) -> None:
        """Note where every group stands. A few at a time: there may be thousands."""
        self.lag_samples.begin_round()
        for host in list(self.coordinator.hosts):
            for group_id in list(host.shard.offsets.groups()):
                self._sample(host.shard, group_id)
                await asyncio.sleep(0)
        self.lag_samples.end_round()

    def _sample(self, shard: GroupShard, group_id: str) -> None:
        for partition in shard.offsets.of(group_id):
            for sample in self._now(shard, group_id, partition):
                self.lag_samples.note(group_id, partition, sample)

    def _now(self, shard: GroupShard, group_id: str, partition: TopicPartition) -> tuple[LagSample, ...]:
        """Where the group stands at this moment; nothing if the partition is no more, or on other brokers."""
        committed = shard.offsets.of(group_id)[partition].offset
        try:
            replica = self._partitions.get(*partition)
        except KafkaError:
            return ()
        end = replica.high_watermark
        if not replica.is_leader:
            end = max(end, committed)  # a follower hears of the watermark a moment later than the group
        return (LagSample(self._clock.now_ms(), committed, end),)

    def insight(self, shard: GroupShard, group_id: str) -> GroupInsight | None:
        """With where the group stands right now as the last sample. It is kept only if it is news: who asks often must
        not push out what was noted before."""

        def samples(group_id: str, partition: TopicPartition) -> tuple[LagSample, ...]:
            known = self.lag_samples.of(group_id, partition)
            now = self._now(shard, group_id, partition)
            for sample in now:
                if not known or sample.committed < known[-1].committed or sample.at_ms - known[-1].at_ms >= NEWS_MS:
                    self.lag_samples.note(group_id, partition, sample)
            return (*known, *now)

        name_of = ImageTopics(self._metadata.image).name_of
        return insight(shard, group_id, samples, name_of, self._clock.now_ms())

    def _apply(self, outcomes: Any) -> None:
        for host in self.coordinator.hosts:
            host.apply(outcomes)
