"""What was asked of the quorum and not answered: it holds the watermark back, so it must neither outlive the process
that was to join nor be granted to its successor, which may have less."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import cast
from uuid import UUID

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from batches import NOW, batch, create_log
from pictures import TOPIC_ID, only, picture
from sim_disk import SimDisk

from tidelog.broker.metadata import Decide
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.isr import LOOK_SECONDS, IsrKeeper
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.clock import SystemClock
from tidelog.cluster import brokers
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError

LAG_MAX_MS = 60_000


class Scene:
    """Broker 1 leads, alone in sync, and broker 2 has all of it: one record. Its quorum is an image in memory."""

    def __init__(self) -> None:
        self.image = picture(1, 2, isr=(1,))
        self.has_quorum = True
        self.comes_first: Callable[[], None] | None = None
        """What the quorum decides just before it hears of this broker's wish, which must be decided anew then."""
        log = create_log(SimDisk(), "/data/orders-0", TopicConfig())
        self.replica = Replica(log, TOPIC_ID, -1, 0)
        self.follow()
        self.write()
        self.hear_of_2(1, broker_epoch=20)

    def write(self) -> None:
        self.replica.append(batch(b"a"), acks=-1, now_ms=NOW)
        self.replica.log.flush()
        self.replica.advance_watermark()

    def hear_of_2(self, offset: int, broker_epoch: int) -> None:
        self.replica.follower_fetched(2, offset, broker_epoch, SystemClock().monotonic_ms())

    def follow(self) -> None:
        now = only(self.image)
        self.replica.lead(
            now.leader_epoch,
            node_id=1,
            partition_epoch=now.partition_epoch,
            replicas=now.replicas,
            isr=now.isr,
            monotonic_ms=SystemClock().monotonic_ms(),
        )

    async def change(self, decide: Decide) -> MetadataImage:
        if not self.has_quorum:
            raise KafkaError("the quorum did not take the change in time", ErrorCode.REQUEST_TIMED_OUT)
        records = decide(self.image)
        if self.comes_first is not None:
            self.comes_first()
            self.comes_first = None
            records = decide(self.image)
        self.image = self.image.apply(records)
        self.follow()
        return self.image

    async def catch_up(self) -> None:
        """It always has."""

    # -- broker 2 --------------------------------------------------------------------------------------------------

    def fence_2(self) -> None:
        self.image = self.image.apply(brokers.fence(self.image, 2))

    def restart_2(self) -> None:
        """With nothing on its disk."""
        known = self.image.brokers[2]
        registered = msgspec.structs.replace(known, incarnation=UUID(int=22), broker_epoch=21)
        self.image = self.image.apply([registered])
        self.hear_of_2(0, broker_epoch=21)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def keep(scene: Scene, then: Callable[[], Coroutine[None, None, None]]) -> None:
    """`then`, while somebody keeps the in-sync set as it should be."""

    async def run() -> None:
        partitions, metadata = cast(Partitions, [scene.replica]), cast(QuorumMetadata, scene)
        keeper = IsrKeeper(1, partitions, metadata, LAG_MAX_MS, SystemClock())
        keeper.start()
        try:
            await then()
        finally:
            await keeper.stop()

    asyncio.run(run())


async def looks(number: int = 3) -> None:
    await asyncio.sleep(number * LOOK_SECONDS)


def test_who_has_everything_joins(scene: Scene) -> None:
    keep(scene, looks)
    assert only(scene.image).isr == (1, 2)


def test_what_was_asked_for_one_process_is_not_granted_to_its_successor(scene: Scene) -> None:
    """The wish stands while there is nobody to hear it, and 2 comes back with an empty disk meanwhile."""
    scene.has_quorum = False

    async def story() -> None:
        await looks()
        scene.restart_2()
        scene.has_quorum = True
        await looks()
        assert only(scene.image).isr == (1,), "it does not have what was acknowledged"
        scene.hear_of_2(1, broker_epoch=21)
        await looks()
        assert only(scene.image).isr == (1, 2)

    keep(scene, story)


def test_nor_if_it_restarts_between_two_rounds_of_asking(scene: Scene) -> None:
    scene.comes_first = scene.restart_2
    keep(scene, looks)
    assert only(scene.image).isr == (1,), "it does not have what was acknowledged"


def test_who_is_gone_before_its_joining_was_granted_holds_nothing_back_for_ever(scene: Scene) -> None:
    scene.has_quorum = False

    async def story() -> None:
        await looks()
        scene.write()
        scene.fence_2()
        scene.has_quorum = True
        await looks()
        assert scene.replica.high_watermark == 2, "broker 1 alone is in sync, and has it"

    keep(scene, story)


def test_nor_who_is_fenced_just_before_its_joining_is_decided(scene: Scene) -> None:
    scene.comes_first = scene.fence_2

    async def story() -> None:
        await looks()
        scene.write()
        assert scene.replica.high_watermark == 2, "broker 1 alone is in sync, and has it"

    keep(scene, story)
