"""The production cleaner of one process, at work in the time of the world: each replica is compacted by its own broker,
when that has time for it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.replication.loop import Answered, BrokerClock, Loop, Task

from tidelog.broker.cleaner import Cleaner
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig
from tidelog.errors import KafkaError, NotLeaderOrFollower
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact
from tidelog.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.seat import Seat

EVERY_MS = 120


class Here:
    """The partitions of data of one broker, as its cleaner looks at them."""

    def __init__(self, broker: "Broker", directory: LogDir) -> None:
        self._broker = broker
        self.directory = directory
        self.broker_config = BrokerConfig(node_id=broker.id)

    @property
    def _seats(self) -> "list[Seat]":
        return self._broker.seats[: len(self._broker.world.data)]

    def __iter__(self) -> Iterator[Replica]:
        return (seat.replica for seat in self._seats if seat.replica is not None)

    def get(self, topic: str, partition: int) -> Replica:
        for replica in self:
            if replica.partition == (topic, partition):
                return replica
        raise NotLeaderOrFollower(f"{topic}-{partition} is not here")


class Worker:
    """In place of a process of its own: it works on the files while the broker goes on."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def compact(self, request: CompactionRequest) -> CompactionResult:
        broker, answer = self._broker, Answered()

        def work() -> None:
            result: CompactionResult | Exception
            try:
                result = compact(broker.disk, request)
            except (KafkaError, OSError) as error:
                result = error
            broker.world.timer(broker, broker.dice.randint(0, 40), lambda: answer.set(result))

        broker.world.timer(broker, broker.dice.randint(0, 40), work)
        return cast(CompactionResult, await answer)


class CleanerTask(Task):
    """The cleaner asks for the loop that it runs on."""

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, None, None], done: Callable[[Task], None]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._done = [done]
        self._step()

    def _step(self) -> None:
        asyncio._set_running_loop(cast(Any, self._loop))
        try:
            super()._step()
        finally:
            asyncio._set_running_loop(None)


class Compacting:
    def __init__(self, broker: "Broker", directory: LogDir) -> None:
        self._broker = broker
        self._here = Here(broker, directory)
        self._loop = Loop(broker)
        self._cleaner: Cleaner | None = None
        self._task: Task | None = None
        self._busy = False
        self._wait()

    def _wait(self) -> None:
        self._broker.world.timer(self._broker, self._broker.dice.randint(1, EVERY_MS), self._run)

    def _run(self) -> None:
        self._wait()
        if self._broker.image is None or self._busy:
            return
        if self._cleaner is None:
            clock = BrokerClock(self._broker)
            self._cleaner = Cleaner(cast(Any, self._here), cast(Any, Worker(self._broker)), clock)
        self._busy = True
        self._task = CleanerTask(self._loop, self._cleaner.run(), self._done)

    def _done(self, task: Task) -> None:
        self._busy = False

    def forget(self, replica: Replica) -> None:
        if self._cleaner is not None:
            self._cleaner.forget([replica])
