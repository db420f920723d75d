"""A partition at a broker that follows: it asks its leader, and takes, cuts or begins anew by the production rules."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from batches import NOW

from tidelog.cluster import follower
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage, ErrorCode, KafkaError
from tidelog.wire.record_batch import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.world import World

ANSWER_MS = 120
FATEFUL = 6
"""One cut in so many."""


class Answer(NamedTuple):
    """A leader's, to one wish."""

    records: bytes = b""
    high_watermark: int = -1
    start_offset: int = 0
    parting: tuple[int, int] | None = None
    bounds: tuple[int, int] | None = None
    """Of the leader's log, if it has nothing at that offset."""
    error: ErrorCode = ErrorCode.NONE


class Following:
    """The half of a `Seat` that follows."""

    world: "World"
    id: int
    number: int
    broker: "Broker"
    dice: Random
    config: TopicConfig
    replica: Replica | None
    claimed: int
    _wished_ms: int | None
    say: Callable[[str], None]
    flush: Callable[[Callable[[], None]], None]
    _checkpoint: Callable[[], None]

    def fetch(self) -> None:
        replica = self.replica
        if replica is None or replica.is_leader or replica.leader < 0 or replica.log.failure is not None:
            return
        if replica.safe_offset < replica.log.end_offset:
            self.flush(self.fetch)
            return
        self._wished_ms = self.world.now
        leader = self.world.brokers[replica.leader].seats[self.number]
        wish = follower.wish_of(replica)
        broker_epoch = self.broker.broker_epoch
        assert broker_epoch is not None
        self.claimed = wish.fetch_offset
        self.world.ask(
            self.broker,
            leader.broker,
            lambda: leader.serve(self.id, broker_epoch, wish),
            self._answered(replica, wish),
        )

    def _answered(self, replica: Replica, wish: follower.Wish) -> Callable[[Answer], None]:
        def answered(answer: Answer) -> None:
            if self.replica is not replica:
                return
            self._wished_ms = None
            try:
                self._digest(replica, wish, answer)
            except CorruptMessage as error:
                # Taken for damage only where there is some: else it is the follower that is wrong.
                if not self.world.flips:
                    raise
                self.say(f"does not take that: {error}")
            except KafkaError as error:
                self.say(f"does not follow: {error}")

        return answered

    def _digest(self, replica: Replica, wish: follower.Wish, answer: Answer) -> None:
        if answer.parting is not None or answer.bounds is not None:
            self.claimed = 0
        if answer.parting is not None:
            end = follower.part(replica, wish, *answer.parting)
            self.say(f"parts at {answer.parting}: ends at {end} now")
            self._checkpoint()
            self._tempt_fate()
            self.fetch()
        elif answer.bounds is not None:
            follower.begin_anew(replica, wish, *answer.bounds, NOW)
            self.say(f"begins anew in {answer.bounds}: {replica.log.start_offset}..{replica.log.end_offset}")
            self._checkpoint()
            self._tempt_fate()
            self.fetch()
        elif answer.error is ErrorCode.NONE:
            if len(answer.records) >= HEADER_SIZE:
                # Where the leader's log begins inside a batch, this one begins with all of it.
                self.claimed = min(self.claimed, read_header(answer.records).base_offset)
            taken = follower.take(replica, answer.records, wish, NOW)
            follower.hear(replica, wish.leader_epoch, answer.high_watermark, answer.start_offset)
            if taken and self.config.flush_on_ack:
                self.flush(lambda: self._flushed(replica, wish, answer))
            elif taken:
                self.fetch()
            else:
                self.world.timer(self.broker, self.dice.randint(5, 40), self._poll)

    def _tempt_fate(self) -> None:
        """The power goes more often just after a log was cut than by chance: that is when it has most to break."""
        world = self.world
        if world.is_stormy and world.victim is None and not world.controller.spared and world.now % FATEFUL == 0:
            world.timer(self.broker, world.now // FATEFUL % 4, lambda: world.die(self.broker, "the power goes"))

    def _poll(self) -> None:
        if self._wished_ms is None:
            self.fetch()

    def _flushed(self, replica: Replica, wish: follower.Wish, answer: Answer) -> None:
        if self.replica is replica:
            follower.hear(replica, wish.leader_epoch, answer.high_watermark, answer.start_offset)
            self.fetch()
