"""The controller misses whoever is silent, whatever goes wrong meanwhile, and finds leaders at any price if told."""

import asyncio
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from pictures import only, picture

from tidelog.broker.metadata import Decide
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.broker.peers.office import Office
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.clock import SystemClock
from tidelog.cluster.image import NO_LEADER, MetadataImage
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.peers import HeartbeatRequest

SESSION_MS = BrokerConfig().broker_session_timeout_ms


class Machine:
    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.offset = 100


class Scene:
    """Broker 1 is the controller of five. Its quorum is an image in memory, and the time is what it is told."""

    def __init__(self, image: MetadataImage, *, unclean: bool = False) -> None:
        self.machine = Machine(image)
        self.node_id = self.leader_id = 1
        self.leads = True
        self.refuses: set[int] = set()
        """Which changes, counted from 1."""
        self.changes = 0
        self.now_ms = 0
        self.on_leader = lambda leader: None
        self.office = Office(
            cast(Quorum, self),
            cast(QuorumMetadata, self),
            BrokerConfig(),
            lambda image, topic: TopicConfig(unclean_leader_election_enable=unclean),
            lambda node: cast(PeerLink, self),
            cast(SystemClock, self),
        )

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def call(self, request: object, *, timeout: float) -> None:
        raise Unreachable("nobody is there")

    async def change(self, decide: Decide) -> MetadataImage:
        self.changes += 1
        if self.changes in self.refuses:
            raise KafkaError("the quorum did not take the change in time", ErrorCode.REQUEST_TIMED_OUT)
        self.machine.image = self.image.apply(decide(self.image))
        return self.image

    async def look(self, now_ms: int) -> None:
        self.now_ms = now_ms
        await self.office._look()

    def fenced(self) -> list[int]:
        return [node for node, broker in self.image.brokers.items() if broker.fenced]


def test_who_could_not_be_fenced_is_fenced_later() -> None:
    """Silence is noticed once. The quorum had no time for it then, and for others that were silent too."""

    async def story() -> None:
        scene = Scene(picture(2, 1, 3))
        scene.office._on_leader(1)
        await scene.look(0)
        scene.changes, scene.refuses = 0, {1, 2}
        await scene.look(SESSION_MS)
        assert scene.fenced() == [4, 5]
        await scene.look(SESSION_MS + 50)
        assert scene.fenced() == [2, 3, 4, 5]
        assert only(scene.image).leader == 1

    asyncio.run(story())


def test_a_broker_that_came_back_just_before_the_controller_changed_is_missed_like_the_others() -> None:
    """That it is back is committed when the new controller has taken office already. Then it dies, and never speaks to
    this one: it would lead for ever."""

    async def story() -> None:
        scene = Scene(picture(2, 1, away=(3, 4, 5)))
        scene.office._on_leader(1)
        await scene.look(0)
        scene.machine.image = scene.image.apply([msgspec.structs.replace(scene.image.brokers[3], fenced=False)])
        await scene.look(100)
        await scene.look(100 + SESSION_MS)
        assert 3 in scene.fenced()

    asyncio.run(story())


@pytest.mark.parametrize("unclean", [True, False])
def test_a_replica_that_comes_back_leads_at_any_price_where_that_is_wanted(unclean: bool) -> None:
    """Nobody was there when the last in sync died, and that one will not be back."""

    async def story() -> None:
        scene = Scene(picture(2, 3, leader=NO_LEADER, isr=(2,), away=(2, 3)), unclean=unclean)
        beat = HeartbeatRequest(node_id=3, broker_epoch=30, metadata_offset=100, wants_stop=False)
        await scene.office.heartbeat(beat, None)
        assert only(scene.image).leader == (3 if unclean else NO_LEADER)
        assert only(scene.image).isr == ((3,) if unclean else (2,))

    asyncio.run(story())
