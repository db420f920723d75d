"""A client that gives each batch a sequence number and sends it until it is acknowledged: it must be there once, in
order, and at the offset that was told, through any failover."""

from collections import Counter
from random import Random

from batches import read_values
from tests.simulation.replication.checks import require
from tests.simulation.replication.world import World

from tidelog.cluster.image import NO_LEADER
from tidelog.errors import ErrorCode

PRODUCER_ID = 7
ANSWER_MS = 150
CLIENT = -2


class IdempotentClient:
    """One batch at a time: what comes after it is sent when it is acknowledged. Late copies of it may still be under
    way then."""

    def __init__(self, world: World, dice: Random) -> None:
        self._world = world
        self._dice = dice
        self._sequence = 0
        self._number = dice.randrange(len(world.data))
        """Of the partition it writes to."""
        self._values: list[bytes] = []
        self._sent_ms = -ANSWER_MS
        self._waits = False
        self.acknowledged: list[bytes] = []
        self.retries = 0

    def step(self) -> None:
        if not self._values:
            first = self._sequence
            self._values = [b"s%d" % number for number in range(first, first + self._dice.randint(1, 3))]
        elif self._waits and self._world.now - self._sent_ms < ANSWER_MS:
            return
        else:
            self.retries += 1
        target = self._world.controller.partition(self._number).leader
        if target != NO_LEADER:
            self._send(target)

    def _send(self, target: int) -> None:
        world, sequence, values = self._world, self._sequence, self._values
        self._waits, self._sent_ms = True, world.now
        seat = world.brokers[target].seats[self._number]

        def answered(code: ErrorCode) -> None:
            if sequence == self._sequence:
                self._answered(code)

        def arrives() -> None:
            if sequence == self._sequence:
                self._look_for_gaps(target)
            seat.produce(values, -1, answered, (PRODUCER_ID, 0, sequence))

        world.send(CLIENT, target, arrives)

    def _look_for_gaps(self, target: int) -> None:
        """Whoever leads now, and has heard of it, knows all that was acknowledged."""
        replica = self._world.brokers[target].seats[self._number].replica
        partition = self._world.controller.partition(self._number)
        if replica is None or not replica.is_leader or replica.leader_epoch != partition.leader_epoch:
            return
        known = next((each for each in replica.log.producers if each.producer_id == PRODUCER_ID), None)
        require(
            known is None or known.last_sequence + 1 >= self._sequence,
            f"{target} leads and knows sequences up to {known and known.last_sequence}, {self._sequence - 1} was "
            f"acknowledged",
        )

    def _answered(self, code: ErrorCode) -> None:
        self._waits = False
        if code is ErrorCode.NONE:
            self.acknowledged += self._values
            self._sequence += len(self._values)
            self._values = []

    def check(self) -> None:
        """In the end, of what was not deleted."""
        world = self._world
        leader = world.brokers[world.controller.partition(self._number).leader].seats[self._number]
        below = world.checks[self._number].deleted_below
        held = [value for _, value in read_values(leader.log, below) if value.startswith(b"s")]
        twice = sorted(value for value, count in Counter(held).items() if count > 1)
        require(not twice, f"there twice: {twice}")
        require(held == sorted(held, key=lambda value: int(value[1:])), "batches are out of order")
