"""What passes by itself is waited for: no descriptor is free, or the leadership of the quorum is on its way."""

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from sim_disk import SimDisk

from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.clock import SystemClock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION
from tidelog.cluster.metadata_machine import MetadataMachine
from tidelog.cluster.quorum_store import QuorumStore, open_log
from tidelog.cluster.records import ProducerIdsRecord
from tidelog.consensus.errors import HandingOver
from tidelog.consensus.raft import Proposed
from tidelog.consensus.settings import DEFAULTS


class OutOfDescriptors(SimDisk):
    """Once for each file that is called so."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names_left = set(names)

    def before(self, operation: str, path: str) -> None:
        for name in [each for each in self.names_left if each in path and operation == "create"]:
            self.names_left.discard(name)
            raise OSError(errno.EMFILE, operation, path)
        super().before(operation, path)


class Scene:
    """A quorum of one."""

    def __init__(self, disk: SimDisk | None = None, snapshot_bytes: int = 1 << 20) -> None:
        self.disk = disk or SimDisk()
        self.failures: list[str] = []
        stored = open_log(self.disk, "/data/metadata", METADATA_PARTITION, METADATA_CONFIG, now_ms=0)
        self.quorum = Quorum(
            QuorumStore.open(stored, 1, new_directory_id="AAAAAAAAAAAAAAAAAAAAAQ"),
            MetadataMachine("test-cluster"),
            cluster_id="test-cluster",
            own_address=("127.0.0.1", 1),
            voters={1: ("127.0.0.1", 1)},
            settings=DEFAULTS,
            snapshot_bytes=snapshot_bytes,
            dice=Random(0),
            clock=SystemClock(),
            loop=asyncio.get_running_loop(),
            on_failure=self.failures.append,
        )
        self.metadata = QuorumMetadata(self.quorum)

    async def lead(self) -> None:
        self.metadata.start()
        self.quorum.start()
        self.quorum.form()
        await until(lambda: self.quorum.leads and self.quorum.machine.offset > 0)

    async def stop(self) -> None:
        await self.metadata.stop()
        await self.quorum.stop()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 10))


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def test_a_sync_or_snapshot_that_finds_no_descriptor_is_tried_again() -> None:
    """The broker left its cluster for it, as if its disk were broken."""

    async def story() -> None:
        disk = OutOfDescriptors("-0000000001.checkpoint")  # the first snapshot
        scene = Scene(disk, snapshot_bytes=1)
        disk.names_left.add("quorum-state")
        await scene.lead()
        await scene.metadata.change(lambda image: [ProducerIdsRecord(1000)])
        await until(lambda: scene.quorum.raft.snapshot is not None)
        assert not disk.names_left
        assert scene.failures == []
        await scene.stop()

    run(story)


def test_a_change_waits_while_the_quorum_is_handed_over() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.lead()
        propose, refusals = scene.quorum.raft.propose, [HandingOver("to 2")]

        def hand_over_first(data: bytes, count: int = 1) -> Proposed:
            if refusals:
                raise refusals.pop()
            return propose(data, count)

        scene.quorum.raft.propose = hand_over_first  # type: ignore[method-assign]
        await scene.metadata.change(lambda image: [ProducerIdsRecord(1000)])
        assert scene.metadata.image.next_producer_id == 1000
        await scene.stop()

    run(story)


def test_metadata_is_followed_also_after_somebody_could_not() -> None:
    """Who no longer follows leads on what others lead by now, and still says that it is there."""

    async def story() -> None:
        scene = Scene()
        await scene.lead()
        seen: list[int] = []

        async def stumble(before: MetadataImage, after: MetadataImage) -> None:
            seen.append(after.next_producer_id)
            raise OSError(errno.EIO, "cannot read")

        scene.metadata.subscribe(stumble)
        for next_id in (1000, 2000):
            await scene.metadata.change(lambda image, next_id=next_id: [ProducerIdsRecord(next_id)])  # type: ignore[misc]
        assert seen == [1000, 2000]
        await scene.stop()

    run(story)
