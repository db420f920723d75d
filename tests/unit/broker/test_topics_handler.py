"""A leader of the quorum takes a change and dies before it can say so. The broker that asked decides again on the image
it then has, and finds its own work: no error for whoever waits for it."""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from sim_disk import SimDisk

from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.metadata import Decide, Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context
from tidelog.clock import SystemClock
from tidelog.cluster.image import MetadataImage
from tidelog.config import BrokerConfig
from tidelog.ids import NO_TOPIC_ID
from tidelog.storage.log_dir import LogDir
from tidelog.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)

ANYBODY = cast(Context, None)
TOPIC_ID = UUID(int=7)


class Unsaid(Metadata):
    """Takes every change, and has it decided again."""

    async def change(self, decide: Decide) -> MetadataImage:
        for _ in range(2):
            self.image = self.image.apply(decide(self.image))
        return self.image

    async def settle(self) -> None:
        """Nobody follows it."""


def handler() -> TopicsHandler:
    config = BrokerConfig()
    directory = LogDir.open(SimDisk(), "/data", cluster_id=None, node_id=1, new_id=lambda: UUID(int=1))
    partitions = Partitions(directory, config, SystemClock())
    return TopicsHandler(Unsaid(MetadataImage("test-cluster")), partitions, lambda: TOPIC_ID, config.node_id)


async def create(topics: TopicsHandler) -> Any:
    wish = CreatableTopic(name="orders", num_partitions=2, replication_factor=1, assignments=(), configs=())
    (result,) = (await topics.create_topics(ANYBODY, CreateTopicsRequest(topics=(wish,)))).topics
    return result


async def delete(topics: TopicsHandler, name: str | None, topic_id: UUID) -> DeletableTopicResult:
    wish = DeleteTopicState(name=name, topic_id=cast(Any, topic_id))
    (result,) = (await topics.delete_topics(ANYBODY, DeleteTopicsRequest(topics=(wish,), timeout_ms=1))).responses
    return result


def test_what_was_created_by_the_first_attempt_is_created() -> None:
    async def story() -> None:
        topics = handler()
        created = await create(topics)
        assert (created.error_code, created.topic_id, created.num_partitions) == (0, TOPIC_ID, 2)

    asyncio.run(story())


def test_what_was_deleted_by_the_first_attempt_is_deleted() -> None:
    async def story() -> None:
        for name, topic_id in (("orders", NO_TOPIC_ID), (None, TOPIC_ID)):
            topics = handler()
            await create(topics)
            assert (await delete(topics, name, topic_id)).error_code == 0
            assert (await delete(topics, name, topic_id)).error_code != 0, "there was nothing any more"

    asyncio.run(story())
