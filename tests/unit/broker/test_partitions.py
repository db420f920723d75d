"""The replicas of a broker, kept in step with the metadata."""

import asyncio
import sys
from pathlib import Path
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW
from sim_disk import SimDisk

from tidelog.broker.partitions import Partitions
from tidelog.clock import SystemClock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import PartitionRecord, TopicRecord
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.errors import StorageOffline
from tidelog.ids import TopicId, TopicPartition
from tidelog.storage.log_dir import LogDir

DELETED, NEW, OTHER = (TopicId(UUID(int=number)) for number in (1, 2, 3))


def test_a_directory_that_is_still_a_deleted_topics_keeps_no_other_topic_from_being_hosted() -> None:
    async def follow() -> None:
        directory = LogDir.open(SimDisk(), "/data", cluster_id="c", node_id=1, new_id=lambda: UUID(int=9))
        directory.create_log(TopicPartition("again", 0), DELETED, TopicConfig(), now_ms=NOW)
        del directory.logs[TopicPartition("again", 0)]
        partitions = Partitions(directory, BrokerConfig(node_id=1), SystemClock())
        image = MetadataImage("c").apply(
            record
            for name, topic_id in (("again", NEW), ("other", OTHER))
            for record in (TopicRecord(name, topic_id), PartitionRecord(topic_id, 0, 1, 0, (1,), (1,)))
        )
        with pytest.raises(StorageOffline, match=r"again-0 cannot be hosted yet.*holds topic id"):
            await partitions.follow(MetadataImage("c"), image)
        assert partitions.get("other", 0).is_leader
        # Once it is known to be a leftover, the next look at the image puts things right.
        directory.delete_leftovers("again", DELETED)
        await partitions.follow(image, image)
        assert partitions.get("again", 0).is_leader

    asyncio.run(follow())
