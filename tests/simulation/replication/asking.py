"""A client that asks and waits, told as a generator: it yields while it waits, and is resumed a little later."""

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.rooms import Reply

from tidelog.cluster.image import NO_LEADER
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.replication.world import World

CLIENT = -3
ANSWER_MS = 150
LATE = 0.2
"""Share of requests of which a copy is on its way for longer."""

RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Life = Generator[None, None, Any]
Send = Callable[[int, Reply], None]
"""Ask this broker."""


class Asking:
    def __init__(self, world: "World", dice: Random, *, may_be_late: bool) -> None:
        """`may_be_late`: a request that was given up may still arrive, and twice. Else it is lost with the connection
        it was on, which for some requests is all that tells a late one."""
        self._world = world
        self._dice = dice
        self._may_be_late = may_be_late
        self._connection = 1

    def _ask(self, number: int, send: Send) -> Life:
        """The answer of whoever leads a partition; None if it does not come."""
        world = self._world
        heard: list[Any] = []
        target = world.controller.partition(number).leader
        given_up = False
        if target != NO_LEADER:
            delays = world.network.delays(CLIENT, target)
            if self._dice.random() < LATE:
                delays.append(self._dice.choice([40, 120, 400]))
            for delay in delays if self._may_be_late else delays[:1]:
                world.deliver(
                    world.brokers[target],
                    delay,
                    lambda: None if given_up and not self._may_be_late else send(target, reply),
                )

        def reply(answer: Any) -> None:
            for delay in world.network.delays(target, CLIENT):
                world.at(delay, lambda: heard.append(answer))

        deadline = world.now + ANSWER_MS
        yield
        while not heard and world.now < deadline:
            yield
        given_up = True
        if not heard:
            self._connection += 1
        return heard[0] if heard else None

    def _sleep(self, duration: int) -> Life:
        until = self._world.now + duration
        while self._world.now < until:
            yield
