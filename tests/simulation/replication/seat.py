"""One partition at one broker: the production replica and log, as leader and as follower."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from batches import NOW, batch
from tests.simulation.replication.checks import Checks, partition_of
from tests.simulation.replication.following import ANSWER_MS, Answer, Following
from tests.simulation.replication.names import TOPIC_IDS

from tidelog.cluster import follower
from tidelog.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, OffsetOutOfRange
from tidelog.ids import TopicId
from tidelog.storage.log import Log, Verification, delete_segments
from tidelog.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

LAG_MAX_MS = 200


class Waiting(NamedTuple):
    needed: int
    base: int
    values: list[bytes]
    answer: Callable[[ErrorCode], None]


class Seat(Following):
    def __init__(self, broker: "Broker", number: int) -> None:
        self.broker = broker
        self.world = broker.world
        self.id = broker.id
        self.number = number
        self.place = broker.world.checks[number].place
        self.topic_id = TOPIC_IDS[self.place.topic]
        self.config: TopicConfig = broker.config
        self.dice: Random = broker.dice
        self.checks: Checks = broker.world.checks[number]
        self.claimed = 0
        """Before it everything was said to be safe on this disk, and was not taken back."""
        self.forget()

    def forget(self) -> None:
        """The process ended, or the partition is not here any more."""
        self.replica: Replica | None = None
        self.checked = 0
        self.stable_checked = 0
        self._waiting: list[Waiting] = []
        self._flushing = False
        self._after_flush: list[Callable[[], None]] = []
        self._wished_ms: int | None = None
        self._asked: tuple[int, int, list[tuple[int, int]]] | None = None
        self._asked_ms = 0

    @property
    def log(self) -> Log:
        assert self.replica is not None
        return self.replica.log

    @property
    def directory(self) -> LogDir:
        assert self.broker.directory is not None
        return self.broker.directory

    @property
    def directory_id(self) -> str:
        return self.broker.directory_id

    @property
    def broker_epoch(self) -> int | None:
        return self.broker.broker_epoch

    @property
    def is_away(self) -> bool:
        return not self.broker.up or self.broker.stopping

    def say(self, text: str) -> None:
        self.broker.say(f"{self.number}: {text}" if self.number else text)

    def tick(self) -> None:
        replica = self.replica
        if replica is None:
            return
        if replica.is_leader:
            self._keep_in_sync(replica)
        elif self._wished_ms is None or self.world.now - self._wished_ms > ANSWER_MS:
            self.fetch()
        chance = self.dice.random()
        if chance < 0.03:
            self._checkpoint()
        elif chance < 0.06:
            self.flush(lambda: None)

    def note_watermark(self) -> None:
        if self.replica is not None:
            self.directory.high_watermarks[self.place] = self.replica.known_watermark

    def _checkpoint(self) -> None:
        self.broker.checkpoint()

    # -- roles -----------------------------------------------------------------------------------------------------

    def learn(self, image: MetadataImage) -> None:
        partition = partition_of(image, self.place)
        if self.id in partition.replicas:
            if self.replica is None:
                self._open(partition)
            self._assume(partition)
        elif self.replica is not None:
            self._drop()

    def _open(self, partition: PartitionImage) -> None:
        if self.directory.has_log(self.place):
            log = self.directory.open_log(self.place, TopicId(self.topic_id), self.config, now_ms=NOW)
            log.flush()
        else:
            log = self.directory.create_log(self.place, TopicId(self.topic_id), self.config, now_ms=NOW)
        watermark = None if len(partition.replicas) == 1 else self.directory.high_watermarks.get(self.place, 0)
        self.replica = Replica(log, self.topic_id, -1, watermark)
        self.replica.on_watermark = self._watermark_moved
        self.checks.opened(self)
        self.say(f"opens its log: {log.start_offset}..{log.end_offset}, watermark {self.replica.high_watermark}")

    def _drop(self) -> None:
        self.say("drops its log")
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.broker.rooms is not None and self.replica is not None:
            self.broker.rooms.let_go(self.replica)
        if self.broker.compacting is not None and self.replica is not None:
            self.broker.compacting.forget(self.replica)
        self.forget()
        self.claimed = 0
        self.directory.delete_log(self.place)()
        self.directory.checkpoint()

    def _assume(self, partition: PartitionImage) -> None:
        replica = self.replica
        assert replica is not None
        before = replica.leader_epoch
        if partition.leader == self.id and not replica.is_damaged:
            replica.lead(
                partition.leader_epoch,
                node_id=self.id,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                monotonic_ms=self.world.now,
            )
        else:
            leader = NO_LEADER if partition.leader == self.id else partition.leader
            replica.follow(leader, partition.leader_epoch, partition.partition_epoch)
            self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if before != partition.leader_epoch:
            role = "leads" if replica.is_leader else f"follows {replica.leader}"
            self.say(f"{role} in epoch {partition.leader_epoch} at {replica.log.end_offset}")
            self._wished_ms = None
            self.checks.role_changed(self)
            if self.broker.rooms is not None:
                self.broker.rooms.role_changed(replica)
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
        sent_ms = self._asked_ms = self.world.now
        broker_epoch = self.broker_epoch

        def answered(code: ErrorCode, answer: Any) -> None:
            followers = replica.followers
            if self.replica is not replica or followers is None or self._asked is not asked:
                return
            if code is ErrorCode.NONE and answer.leader_epoch == replica.leader_epoch and answer.leader == self.id:
                self._assume(answer)
            elif (
                code is ErrorCode.INELIGIBLE_REPLICA
                and asked[:2] == (replica.leader_epoch, replica.partition_epoch)
                and sent_ms == self._asked_ms  # if it was sent again, that may still be granted
            ):
                followers.asked = None

        self.broker.call(
            f"in sync {self.number} {asked[:2]}",
            lambda: self.world.controller.alter_isr(self.id, broker_epoch, self.number, *asked),
            answered,
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
            self.checks.believed(self)
            piece = replica.read_as_follower(wish.fetch_offset, self.dice.choice([1, 300, 5000]), min_one=True)
            return Answer(piece.file.read(piece.position, piece.length), replica.high_watermark, log.start_offset)
        except OffsetOutOfRange:
            return Answer(bounds=(log.start_offset, log.end_offset))
        except KafkaError as error:
            return Answer(error=error.code)
        except OSError as error:
            self.say(f"cannot read: {error}")
            return Answer(error=ErrorCode.KAFKA_STORAGE_ERROR)

    def produce(
        self,
        values: list[bytes],
        acks: int,
        answer: Callable[[ErrorCode], None],
        producer: tuple[int, int, int] | None = None,
    ) -> None:
        """`producer`: its id, epoch and first sequence number."""
        # An empty value is a tombstone's.
        self.append(batch(*(cast(bytes, value or None) for value in values), producer=producer), values, acks, answer)

    def append(
        self,
        records: bytearray,
        values: list[bytes],
        acks: int,
        answer: Callable[[ErrorCode], None],
        verification: Verification | None = None,
    ) -> None:
        replica = self.replica
        try:
            if replica is None:
                raise KafkaError("not here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            appended = replica.append(records, acks=acks, now_ms=NOW, verification=verification)
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
            self.checks.raised(self)
            self.checks.visible(self)
            self._settle()
            if self.broker.rooms is not None:
                self.broker.rooms.watermark_moved(replica)

    def _settle(self) -> None:
        replica = self.replica
        assert replica is not None
        while self._waiting and self._waiting[0].needed <= replica.high_watermark and replica.is_leader:
            done = self._waiting.pop(0)
            if replica.in_sync < self.config.min_insync_replicas:
                done.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
                continue
            self.checks.acknowledged(self, done.base, done.values, self.config.min_insync_replicas)
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
            self.checks.deleted_below = max(self.checks.deleted_below, offset)
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
            self.world.timer(self.broker, 1 + self.dice.randint(0, self.broker.slow_ms), complete)

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

        self.world.timer(self.broker, self.dice.randint(0, 2 + self.broker.slow_ms), run)
