"""A client that numbers its batches and has several under way, as librdkafka: each must be there once, in order, and at
the offset that was told, through any failover."""

from collections import Counter
from random import Random
from typing import NamedTuple

from batches import read_values
from tests.simulation.replication.checks import require
from tests.simulation.replication.world import World

from tidelog.cluster.image import NO_LEADER
from tidelog.errors import ErrorCode

PRODUCER_ID = 7
ANSWER_MS = 150
CLIENT = -2
UNDER_WAY = 3
APART_MS = 12
"""At most, on one connection."""


class Numbered(NamedTuple):
    sequence: int
    values: list[bytes]


class IdempotentClient:
    """Sends a few batches one behind the other, and when each is answered or given up sends again what was not
    acknowledged. Late copies may still be under way then."""

    def __init__(self, world: World, dice: Random) -> None:
        self._world = world
        self._dice = dice
        self._next = 0
        self._number = dice.randrange(len(world.data))
        """Of the partition it writes to."""
        self._waiting: list[Numbered] = []
        """What is not acknowledged, in order."""
        self._unanswered: set[int] = set()
        self._sent_ms = -ANSWER_MS
        self._flight = 0
        self._cut = False
        """One of those under way was written, and not acknowledged: it may have been cut off since."""
        self.acknowledged: list[bytes] = []
        self.retries = 0

    def step(self) -> None:
        if self._unanswered and self._world.now - self._sent_ms < ANSWER_MS:
            return
        self.retries += bool(self._waiting)
        for _ in range(self._dice.randint(1, UNDER_WAY) - len(self._waiting)):
            end = self._next + self._dice.randint(1, 3)
            self._waiting.append(Numbered(self._next, [b"s%d" % number for number in range(self._next, end)]))
            self._next = end
        target = self._world.controller.partition(self._number).leader
        if target != NO_LEADER:
            self._send(target)

    def _send(self, target: int) -> None:
        world, batches = self._world, list(self._waiting)
        self._flight += 1
        self._cut = False
        self._unanswered, self._sent_ms = {batch.sequence for batch in batches}, world.now
        flight, delays = self._flight, sorted(self._dice.randint(0, APART_MS) for _ in batches[1:])
        copies = 0

        def arrive() -> None:
            nonlocal copies
            copies += 1
            if flight == self._flight:
                self._look_for_gaps(target)
            for batch, delay in zip(batches, [0, *delays], strict=True):
                self._arrive(target, batch, delay, flight if copies == 1 else 0)

        world.send(CLIENT, target, arrive)

    def _arrive(self, target: int, batch: Numbered, delay: int, flight: int) -> None:
        broker = self._world.brokers[target]
        written = False

        def answered(code: ErrorCode) -> None:
            if flight == self._flight:
                self._cut = self._cut or (written and code is not ErrorCode.NONE)
                self._answered(batch, code)

        def produce() -> None:
            nonlocal written
            broker.seats[self._number].produce(batch.values, -1, answered, (PRODUCER_ID, 0, batch.sequence))
            written = True  # or it was refused at once, and answered

        if delay:
            self._world.timer(broker, delay, produce)
        else:
            produce()

    def _look_for_gaps(self, target: int) -> None:
        """Whoever leads now, and has heard of it, knows all that was acknowledged."""
        replica = self._world.brokers[target].seats[self._number].replica
        partition = self._world.controller.partition(self._number)
        if replica is None or not replica.is_leader or replica.leader_epoch != partition.leader_epoch:
            return
        known = next((each for each in replica.log.producers if each.producer_id == PRODUCER_ID), None)
        first = self._waiting[0].sequence if self._waiting else self._next
        require(
            known is None or known.last_sequence + 1 >= first,
            f"{target} leads and knows sequences up to {known and known.last_sequence}, {first - 1} was acknowledged",
        )

    def _answered(self, batch: Numbered, code: ErrorCode) -> None:
        self._unanswered.discard(batch.sequence)
        if code is ErrorCode.NONE:
            # That the ones before are in the log too is known from it, if their own answers are bad or lost.
            while self._waiting and self._waiting[0].sequence <= batch.sequence:
                self.acknowledged += self._waiting.pop(0).values
        elif batch in self._waiting[1:]:
            # It would begin a new epoch, and send the ones before again that may be in the log.
            out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            # Compaction leaves only the last batch of a producer: who has it from there knows no retry of one before.
            compacted = self._world.checks[self._number].compacted
            require(not out_of_order or self._cut or compacted, f"{batch} is out of order behind others")

    def check(self) -> None:
        """In the end, of what was not deleted."""
        world = self._world
        leader = world.brokers[world.controller.partition(self._number).leader].seats[self._number]
        below = world.checks[self._number].deleted_below
        held = [value for _, value in read_values(leader.log, below) if value.startswith(b"s")]
        twice = sorted(value for value, count in Counter(held).items() if count > 1)
        require(not twice, f"there twice: {twice}")
        require(held == sorted(held, key=lambda value: int(value[1:])), "batches are out of order")
