"""A broker as a process around the production replica and log: it can crash, be paused, lose its disk."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from batches import NOW, batch
from sim_disk import SimDisk
from tests.simulation.replication.checks import partition_of
from tests.simulation.replication.following import ANSWER_MS, Answer, Following
from tests.simulation.replication.names import PLACE, TOPIC, TOPIC_ID

from tidelog.cluster import follower
from tidelog.cluster.image import MetadataImage, PartitionImage
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, OffsetOutOfRange
from tidelog.ids import TopicId
from tidelog.storage.log import Log, delete_segments
from tidelog.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tests.simulation.replication.world import World

TICK_MS = 40
HEARTBEAT_MS = 75
LAG_MAX_MS = 200
PATH = "/data"


class Waiting(NamedTuple):
    needed: int
    base: int
    values: list[bytes]
    answer: Callable[[ErrorCode], None]


class Broker(Following):
    def __init__(self, world: "World", node_id: int, config: TopicConfig, dice: Random) -> None:
        self.world = world
        self.id = node_id
        self.config = config
        self.dice = dice
        self.disk = SimDisk()
        self.up = False
        self.paused = False
        self.boots = 0
        self.inbox: list[Callable[[], None]] = []
        self.replica: Replica | None = None
        self.directory: LogDir | None = None
        self.directory_id = ""
        self.checked = 0
        self.slow_ms = 0
        self.claimed = 0
        """Before it everything was said to be safe on this disk, and was not taken back."""

    @property
    def log(self) -> Log:
        assert self.replica is not None
        return self.replica.log

    def say(self, text: str) -> None:
        self.world.say(f"{self.id}: {text}")

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.boots += 1
        self.up = True
        self.paused = False
        self.stopping = False
        self.incarnation = UUID(int=self.dice.getrandbits(128))
        self.broker_epoch: int | None = None
        self.image: MetadataImage | None = None
        self.replica = None
        self._requests = 0
        self._told_ms = -1000
        self._behind = False
        self._forget_replica()
        self.directory = LogDir.open(
            self.disk,
            PATH,
            cluster_id="simulated",
            node_id=self.id,
            new_id=lambda: UUID(int=self.dice.getrandbits(128)),
        )
        self.directory_id = self.directory.directory_id
        self.say("starts")
        self.world.timer(self, self.dice.randint(1, TICK_MS), self.tick)

    def _forget_replica(self) -> None:
        self.replica = None
        self.checked = 0
        self._waiting: list[Waiting] = []
        self._flushing = False
        self._after_flush: list[Callable[[], None]] = []
        self._wished_ms: int | None = None
        self._asked: tuple[int, int, list[tuple[int, int]]] | None = None
        self._asked_ms = 0

    def stop(self, *, clean: bool) -> None:
        """The process ends; what happens to the disk is not said here."""
        self.up = False
        self.inbox.clear()
        if self.directory is not None:
            if clean:
                self._note_watermark()
            self.directory.close(clean=clean)
        self._forget_replica()
        self.directory = None

    def tick(self) -> None:
        now = self.world.now
        self.world.timer(self, TICK_MS, self.tick)
        if now - self._told_ms >= HEARTBEAT_MS:
            self._told_ms = now
            self._tell_controller()
        if self._behind:
            self._follow_image()
        replica = self.replica
        if replica is None:
            return
        if replica.is_leader:
            self._keep_in_sync(replica)
        elif self._wished_ms is None or now - self._wished_ms > ANSWER_MS:
            self.fetch()
        chance = self.dice.random()
        if chance < 0.03:
            self._checkpoint()
        elif chance < 0.06:
            self.flush(lambda: None)

    def _note_watermark(self) -> None:
        assert self.directory is not None
        if self.replica is not None:
            self.directory.high_watermarks[PLACE] = self.replica.high_watermark

    def _checkpoint(self) -> None:
        assert self.directory is not None
        self._note_watermark()
        self.directory.checkpoint()

    # -- the controller --------------------------------------------------------------------------------------------

    def _call(self, purpose: str, handle: Callable[[], object], then: Callable[[ErrorCode, Any], None]) -> None:
        self._requests += 1
        self.world.call(self, purpose, self._requests, handle, then)

    def _tell_controller(self) -> None:
        controller = self.world.controller
        if self.broker_epoch is None:
            incarnation, directory_id = self.incarnation, self.directory_id
            self._call("life", lambda: controller.register(self.id, incarnation, directory_id), self._registered)
            return
        epoch = self.broker_epoch
        version = self.image.version if self.image is not None else -1
        stopping = self.stopping
        caught_up = self.image is not None
        self._call(
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
        if TOPIC not in self.image.topics:
            return
        partition = partition_of(self.image)
        if self.id in partition.replicas:
            if self.replica is None:
                self._open(partition)
            self._assume(partition)
        elif self.replica is not None:
            self._drop()
        self._behind = False

    def _open(self, partition: PartitionImage) -> None:
        assert self.directory is not None
        if self.directory.has_log(PLACE):
            log = self.directory.open_log(PLACE, TopicId(TOPIC_ID), self.config, now_ms=NOW)
            log.flush()
        else:
            log = self.directory.create_log(PLACE, TopicId(TOPIC_ID), self.config, now_ms=NOW)
        watermark = None if len(partition.replicas) == 1 else self.directory.high_watermarks.get(PLACE, 0)
        self.replica = Replica(log, TOPIC_ID, -1, watermark)
        self.replica.on_watermark = self._watermark_moved
        self.world.checks.opened(self)
        self.say(f"opens its log: {log.start_offset}..{log.end_offset}, watermark {self.replica.high_watermark}")

    def _drop(self) -> None:
        assert self.directory is not None
        self.say("drops its log")
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._forget_replica()
        self.claimed = 0
        self.directory.delete_log(PLACE)()
        self.directory.checkpoint()

    def _assume(self, partition: PartitionImage) -> None:
        replica = self.replica
        assert replica is not None
        before = replica.leader_epoch
        if partition.leader == self.id:
            replica.lead(
                partition.leader_epoch,
                node_id=self.id,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                monotonic_ms=self.world.now,
            )
        else:
            replica.follow(partition.leader, partition.leader_epoch, partition.partition_epoch)
            self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if before != partition.leader_epoch:
            role = "leads" if replica.is_leader else f"follows {partition.leader}"
            self.say(f"{role} in epoch {partition.leader_epoch} at {replica.log.end_offset}")
            self._wished_ms = None
            self.world.checks.role_changed(self)
            if not replica.is_leader:
                self.fetch()

    # -- as a leader -----------------------------------------------------------------------------------------------

    def _keep_in_sync(self, replica: Replica) -> None:
        followers = replica.followers
        if followers is None:
            return
        if followers.asked is None:
            wanted = replica.wanted_isr(LAG_MAX_MS, self.world.now)
            if wanted is None:
                return
            followers.asked = wanted
            members = [(node, followers.broker_epoch_of(node)) for node in sorted(wanted)]
            self._asked = (replica.leader_epoch, replica.partition_epoch, members)
            self._ask(replica)
        elif self.world.now - self._asked_ms > ANSWER_MS:
            self._ask(replica)

    def _ask(self, replica: Replica) -> None:
        asked = self._asked
        assert asked is not None
        assert self.broker_epoch is not None
        self._asked_ms = self.world.now
        broker_epoch = self.broker_epoch

        def answered(code: ErrorCode, answer: Any) -> None:
            followers = replica.followers
            if self.replica is not replica or followers is None or self._asked is not asked:
                return
            if code is ErrorCode.NONE and answer.leader_epoch == replica.leader_epoch and answer.leader == self.id:
                self._assume(answer)
            elif code is ErrorCode.INELIGIBLE_REPLICA and asked[:2] == (replica.leader_epoch, replica.partition_epoch):
                followers.asked = None  # decided: only one request is ever under way

        self._call(
            f"in sync {asked[:2]}", lambda: self.world.controller.alter_isr(self.id, broker_epoch, *asked), answered
        )

    def serve(self, node: int, broker_epoch: int, wish: follower.Wish) -> Answer:
        """The leader's side of a follower's fetch."""
        replica = self.replica
        if replica is None:
            return Answer(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = replica.log
        try:
            replica.check_leader()
            replica.check_follower_epoch(wish.leader_epoch)
            parting = replica.parts_at(wish.fetch_offset, wish.last_fetched_epoch)
            if parting is not None:
                return Answer(parting=parting)
            replica.follower_fetched(node, wish.fetch_offset, broker_epoch, self.world.now)
            self.world.checks.believed(self)
            piece = replica.read_as_follower(wish.fetch_offset, self.dice.choice([1, 300, 5000]), min_one=True)
            return Answer(piece.file.read(piece.position, piece.length), replica.high_watermark, log.start_offset)
        except OffsetOutOfRange:
            return Answer(bounds=(log.start_offset, log.end_offset))
        except KafkaError as error:
            return Answer(error=error.code)

    def produce(
        self,
        values: list[bytes],
        acks: int,
        answer: Callable[[ErrorCode], None],
        producer: tuple[int, int, int] | None = None,
    ) -> None:
        """`producer`: its id, epoch and first sequence number."""
        replica = self.replica
        try:
            if replica is None:
                raise KafkaError("not here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            appended = replica.append(batch(*values, producer=producer), acks=acks, now_ms=NOW)
        except KafkaError as error:
            answer(error.code)
            return
        if acks == 1:
            answer(ErrorCode.NONE)
        else:
            self._waiting.append(Waiting(appended.last_offset + 1, appended.base_offset, values, answer))
            self._settle()
        if self.config.flush_on_ack:
            self.flush(lambda: None)

    def _watermark_moved(self, replica: Replica) -> None:
        if replica is self.replica:
            self.world.checks.raised(self)
            self.world.checks.visible(self)
            self._settle()

    def _settle(self) -> None:
        replica = self.replica
        assert replica is not None
        while self._waiting and self._waiting[0].needed <= replica.high_watermark and replica.is_leader:
            done = self._waiting.pop(0)
            if replica.in_sync < self.config.min_insync_replicas:
                done.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
                continue
            self.world.checks.acknowledged(self, done.base, done.values, self.config.min_insync_replicas)
            done.answer(ErrorCode.NONE)

    def _fail_waiting(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.answer(code)

    def delete_records(self, keep: int) -> None:
        replica = self.replica
        if replica is None or not replica.is_leader or replica.log.failure is not None:
            return
        offset = replica.high_watermark - keep
        if offset > replica.log.start_offset:
            self.say(f"deletes records before {offset}")
            self.world.checks.deleted_below = max(self.world.checks.deleted_below, offset)
            replica.advance_start_offset(offset)
            delete_segments(replica.log.expire(NOW, replica.high_watermark))

    # -- the disk --------------------------------------------------------------------------------------------------

    def flush(self, then: Callable[[], None]) -> None:
        """Decided now, done in a thread, and known later."""
        replica = self.replica
        if replica is None or replica.log.failure is not None:
            return
        self._after_flush.append(then)
        if not self._flushing:
            self._begin_flush(replica)

    def _begin_flush(self, replica: Replica) -> None:
        log = replica.log
        flush = log.begin_flush()
        waiting, self._after_flush = self._after_flush, []
        if flush is None:
            for then in waiting:
                then()
            return
        self._flushing = True

        def run() -> None:
            if not log.closed:
                flush.run()
            self.world.timer(self, 1 + self.dice.randint(0, self.slow_ms), complete)

        def complete() -> None:
            if self.replica is not replica:
                return
            self._flushing = False
            log.complete_flush(flush)
            replica.advance_watermark()
            for then in waiting:
                then()
            if self._after_flush and not self._flushing:
                self._begin_flush(replica)

        self.world.timer(self, self.dice.randint(0, 2 + self.slow_ms), run)
