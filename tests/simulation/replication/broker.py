"""A broker as a process: it can crash, be paused, lose its disk. What it has of each partition is a `Seat`."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.replication.compacting import Compacting
from tests.simulation.replication.disk import BadDisk
from tests.simulation.replication.rooms import Rooms
from tests.simulation.replication.seat import Seat

from tidelog.cluster.image import MetadataImage
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode
from tidelog.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tests.simulation.replication.world import World

TICK_MS = 40
HEARTBEAT_MS = 75
PATH = "/data"


class Broker:
    def __init__(self, world: "World", node_id: int, config: TopicConfig, dice: Random) -> None:
        self.world = world
        self.id = node_id
        self.config = config
        self.dice = dice
        self.disk = BadDisk(journaled=world.is_journaled)
        self.up = False
        self.paused = False
        self.stopping = False
        self.boots = 0
        self.inbox: list[Callable[[], None]] = []
        self.directory: LogDir | None = None
        self.directory_id = ""
        self.slow_ms = 0
        self.skew_ms = 0
        """By which its wall clock is wrong."""
        self.broker_epoch: int | None = None
        self.image: MetadataImage | None = None
        self.rooms: Rooms | None = None
        self.compacting: Compacting | None = None
        self.seats = [Seat(self, number) for number in range(len(world.checks))]

    def say(self, text: str) -> None:
        self.world.say(f"{self.id}: {text}")

    @property
    def leads(self) -> bool:
        return any(seat.replica is not None and seat.replica.is_leader for seat in self.seats)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.boots += 1
        self.up = True
        self.paused = False
        self.stopping = False
        self.incarnation = UUID(int=self.dice.getrandbits(128))
        self.broker_epoch = None
        self.image = None
        self._requests = 0
        self._told_ms = -1000
        self._behind = False
        for seat in self.seats:
            seat.forget()
        self.directory = LogDir.open(
            self.disk,
            PATH,
            cluster_id="simulated",
            node_id=self.id,
            new_id=lambda: UUID(int=self.dice.getrandbits(128)),
        )
        self.directory_id = self.directory.directory_id
        self.rooms = Rooms(self) if len(self.seats) > len(self.world.data) else None
        self.compacting = Compacting(self, self.directory) if self.config.compacted else None
        self.say("starts")
        self.world.timer(self, self.dice.randint(1, TICK_MS), self.tick)

    def stop(self, *, clean: bool) -> None:
        """The process ends; what happens to the disk is not said here."""
        self.up = False
        self.inbox.clear()
        if self.directory is not None:
            if clean:
                self._note_watermarks()
            self.directory.close(clean=clean)
        for seat in self.seats:
            seat.forget()
        self.directory = None

    def tick(self) -> None:
        now = self.world.now
        self.world.timer(self, TICK_MS, self.tick)
        if now - self._told_ms >= HEARTBEAT_MS:
            self._told_ms = now
            self._tell_controller()
        if self._behind:
            self._follow_image()
        for seat in self.seats:
            seat.tick()

    def _note_watermarks(self) -> None:
        for seat in self.seats:
            seat.note_watermark()

    def checkpoint(self) -> None:
        assert self.directory is not None
        self._note_watermarks()
        self.directory.checkpoint()

    # -- the controller --------------------------------------------------------------------------------------------

    def call(self, purpose: str, handle: Callable[[], object], then: Callable[[ErrorCode, Any], None]) -> None:
        self._requests += 1
        self.world.call(self, purpose, self._requests, handle, then)

    def _tell_controller(self) -> None:
        controller = self.world.controller
        if self.broker_epoch is None:
            incarnation, directory_id = self.incarnation, self.directory_id
            self.call("life", lambda: controller.register(self.id, incarnation, directory_id), self._registered)
            return
        epoch = self.broker_epoch
        version = self.image.version if self.image is not None else -1
        stopping = self.stopping
        caught_up = self.image is not None
        self.call(
            "life",
            lambda: controller.heartbeat(self.id, epoch, version, caught_up=caught_up, stopping=stopping),
            self._beaten,
        )

    def _registered(self, code: ErrorCode, answer: Any) -> None:
        if code is ErrorCode.NONE:
            self.broker_epoch = answer

    def _beaten(self, code: ErrorCode, may_stop: Any) -> None:
        if code is ErrorCode.STALE_BROKER_EPOCH:
            self.world.die(self, "somebody else is this broker now")
        elif self.stopping and code is ErrorCode.NONE and may_stop:
            self.world.stop_cleanly(self)

    def learn(self, image: MetadataImage) -> None:
        """Roles only from an image that knows this process: an older one may say that it leads."""
        known = image.brokers.get(self.id)
        if self.broker_epoch is None or known is None or known.broker_epoch != self.broker_epoch:
            return
        if self.image is not None and image.version <= self.image.version:
            return
        self.image = image
        self._behind = True
        self._follow_image()

    def _follow_image(self) -> None:
        """What the disk prevents is done later."""
        assert self.image is not None
        for seat in self.seats:
            if seat.place.topic in self.image.topics:
                seat.learn(self.image)
        self._behind = False
