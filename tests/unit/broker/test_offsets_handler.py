"""ListOffsets where a new leader does not know yet how far its predecessors let readers see."""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch
from sim_disk import SimDisk

from tidelog.broker.handlers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetsHandler
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context
from tidelog.clock import SystemClock
from tidelog.cluster.image import TOPIC_RESOURCE, MetadataImage
from tidelog.cluster.records import AnyRecord, ConfigRecord, PartitionRecord, TopicRecord
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode
from tidelog.storage.log_dir import LogDir
from tidelog.wire.messages.data import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TOPIC = UUID(int=1)


def led(*, epoch: int, isr: tuple[int, ...]) -> PartitionRecord:
    return PartitionRecord(TOPIC, 0, 1, epoch, (1, 2), isr)


async def unsettled() -> Partitions:
    """Two records were visible and a third was not, when this broker, alone in sync, was elected again."""
    directory = LogDir.open(SimDisk(), "/data", cluster_id="c", node_id=1, new_id=lambda: UUID(int=9))
    partitions = Partitions(directory, BrokerConfig(node_id=1), SystemClock())
    image = MetadataImage("c")

    async def follow(*records: AnyRecord) -> None:
        nonlocal image
        before, image = image, image.apply(records)
        await partitions.follow(before, image)

    await follow(TopicRecord("orders", TOPIC), led(epoch=0, isr=(1, 2)))
    replica = partitions.get("orders", 0)
    for time in (NOW, NOW + 10, NOW + 20):
        replica.append(batch(b"value", timestamps=[time]), acks=1, now_ms=NOW)
    replica.log.flush()
    replica.follower_fetched(2, 2, 0, 0)
    assert replica.high_watermark == 2
    await follow(ConfigRecord(TOPIC_RESOURCE, "orders", "min.insync.replicas", "2"), led(epoch=1, isr=(1,)))
    assert not replica.is_settled
    return partitions


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize(
    ("timestamp", "offset"), [(EARLIEST, 0), (NOW + 10, 1), (NOW + 20, None), (MAX_TIMESTAMP, None), (LATEST, None)]
)
def test_what_cannot_change_any_more_is_told_also_by_a_leader_that_is_not_settled(
    replica_id: int, timestamp: int, offset: int | None
) -> None:
    """A follower so far behind that it must begin anew asks for the start; without it the leader may never settle."""

    async def ask() -> tuple[int, int]:
        handler = OffsetsHandler(await unsettled(), for_brokers=True)
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=1, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=replica_id, isolation_level=0, topics=(ListOffsetsTopic(name="orders", partitions=(asked,)),)
        )
        context = cast("Context", Version(7))
        answer: Any = (await handler.list_offsets(context, request)).topics[0].partitions[0]
        return answer.error_code, answer.offset

    if replica_id >= 0 and timestamp == LATEST:
        offset = 3  # a follower is told where the log ends, whatever of it is safe
    expected = (ErrorCode.NONE, offset) if offset is not None else (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert asyncio.run(ask()) == expected


class Version:
    """All that this handler asks of a request's context."""

    def __init__(self, version: int) -> None:
        self.version = version
