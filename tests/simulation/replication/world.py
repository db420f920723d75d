"""Brokers, a controller and clients with one clock, one seed and one thing happening at a time."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from sim_disk import PowerLost
from tests.simulation.network import Network
from tests.simulation.replication import controller as control
from tests.simulation.replication.broker import Broker
from tests.simulation.replication.checks import Checks
from tests.simulation.replication.disk import BadDisk
from tests.simulation.replication.following import Answer
from tests.simulation.replication.names import places
from tests.simulation.replication.owners import Owners
from tests.simulation.replication.readers import Readers

from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, StorageOffline

COMPACTED_BYTES = 700
"""Of segments that are compacted: many, since the active one is not."""


class Plan(NamedTuple):
    """What a seed decides before anything happens."""

    brokers: int
    replicas: int
    minimum: int
    flush_on_ack: bool
    """Without it, processes die but the power stays: the promise is Kafka's."""
    segment_bytes: int
    index_interval: int
    mood: str
    """What happens more than other things: leaders change, disks are replaced, or replicas move."""

    @classmethod
    def roll(cls, dice: Random) -> "Plan":
        brokers = dice.choice([3, 3, 4, 5])
        replicas = dice.choice([3, 3, 3, 2, min(4, brokers)])
        return cls(
            brokers=brokers,
            replicas=replicas,
            minimum=min(replicas, dice.choice([1, 2, 2, 2])),
            flush_on_ack=dice.random() < 0.8,
            segment_bytes=dice.choice([700, 1500, 1 << 20]),
            index_interval=dice.choice([0, 4096]),
            mood=dice.choice(["mixed", "mixed", "leaders", "disks", "moves"]),
        )


class World:
    def __init__(
        self,
        seed: int,
        log: Callable[[str], None] | None = None,
        *,
        partitions: int = 1,
        transactions: bool = False,
        groups: bool = False,
        compaction: bool = False,
    ) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.plan = Plan.roll(self.dice)
        self.now = 0
        self.steps = 0
        self.network = Network(Random(self.dice.random()))
        found = places(partitions, transactions=transactions, groups=groups)
        self.checks = [
            Checks(number, place, compacted=compaction and number < partitions) for number, place in enumerate(found)
        ]
        self.data = self.checks[:partitions]
        self.producer_ids = count(1_000)
        self.is_journaled = seed % 2 == 0
        """Whether a synced directory takes earlier changes of others with it: no program may count on that."""
        self.is_stormy = True
        """Until it calms down, and everything has to come right."""
        self.flips = 0
        """Bits of any disk, ever."""
        self.found = 0
        """Damage that a recovery has found and cut off."""
        self.readers = Readers(self) if transactions else None
        self.owners = Owners(self) if groups else None
        self.controller = control.Controller(self)
        self._log = log
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        config = TopicConfig(
            min_insync_replicas=self.plan.minimum,
            flush_on_ack=self.plan.flush_on_ack,
            segment_bytes=min(self.plan.segment_bytes, COMPACTED_BYTES if compaction else 1 << 30),
            cleanup_policy=frozenset({"compact" if compaction else "delete"}),
            min_cleanable_dirty_ratio=0.0,
            index_interval_bytes=self.plan.index_interval,
            retention_ms=-1,
        )
        self.brokers = {
            node: Broker(self, node, config, Random(self.dice.random())) for node in range(1, self.plan.brokers + 1)
        }
        for checks in self.checks:
            if self.readers is not None:
                checks.fate = partial(self.readers.fate, checks.number)
            checks.brokers = {node: broker.seats[checks.number] for node, broker in self.brokers.items()}

    def number_of(self, topic: str) -> int:
        """Of the only partition of an internal topic."""
        return next(checks.number for checks in self.checks if checks.place.topic == topic)

    # -- time ------------------------------------------------------------------------------------------------------

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay, self._sequence, action))

    def run_until(self, end: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action = heapq.heappop(queue)
            self.steps += 1
            action()
        self.now = end

    def say(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.now:>6} {text}")

    def timer(self, broker: Broker, delay: int, action: Callable[[], None]) -> None:
        """In the process that is running now; if it is paused then, when it is resumed."""
        boot = broker.boots
        self.at(delay, lambda: self._arrive(broker, boot, action))

    def _arrive(self, broker: Broker, boot: int, action: Callable[[], None]) -> None:
        if not broker.up or broker.boots != boot:
            return
        if broker.paused:
            broker.inbox.append(lambda: self._arrive(broker, boot, action))
        else:
            self.act(broker, action)

    def act(self, broker: Broker, action: Callable[[], None]) -> None:
        try:
            action()
        except PowerLost:
            self.say(f"{broker.id}: the power goes in the middle of something")
            self.crash(broker, power=True)
        except (OSError, StorageOffline) as error:
            self.say(f"{broker.id}: the disk fails: {error}")
        for seat in broker.seats:
            if broker.up and seat.replica is not None:
                if seat.replica.log.failure is not None:
                    self.die(broker, f"its log has failed: {seat.replica.log.failure}")
                else:
                    seat.checks.visible(seat)
                    if self.readers is not None:
                        self.readers.look(seat)

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, sender: int, receiver: int, action: Callable[[], None]) -> None:
        """To a broker. What is under way to a process when it dies is lost with its connections."""
        broker = self.brokers[receiver]
        for delay in self.network.delays(sender, receiver):
            self.deliver(broker, delay, action)

    def deliver(self, broker: Broker, delay: int, action: Callable[[], None]) -> None:
        boot = broker.boots
        self.at(delay, lambda: self._arrive(broker, boot, action))

    def ask(
        self, sender: Broker, receiver: Broker, handle: Callable[[], Answer], then: Callable[[Answer], None]
    ) -> None:
        def handled() -> None:
            answer = handle()
            self.send(receiver.id, sender.id, lambda: then(answer))

        self.send(sender.id, receiver.id, handled)

    def call(
        self,
        sender: Broker,
        purpose: str,
        number: int,
        handle: Callable[[], object],
        then: Callable[[ErrorCode, Any], None],
    ) -> None:
        boot = sender.boots

        def handled() -> None:
            answer = self.controller.receive(sender.id, boot, purpose, number, handle)
            if answer is not None and sender.boots == boot:
                self.send(control.ID, sender.id, lambda: then(*answer))

        for delay in self.network.delays(sender.id, control.ID):
            self.at(delay, handled)

    # -- what can happen to a process ------------------------------------------------------------------------------

    def start(self, broker: Broker) -> None:
        if not broker.up:
            self.act(broker, broker.start)
            if broker.up and broker.directory is None:
                broker.stop(clean=False)  # it could not read what it needs for that
            if not broker.up:
                self.at(50, lambda: self.start(broker))

    def crash(self, broker: Broker, *, power: bool) -> None:
        """kill -9, or with it all that was not synced."""
        broker.stop(clean=False)
        broker.disk.crash_after = None
        broker.disk.fail_on.clear()
        if power and self.plan.flush_on_ack:
            broker.disk.crash(broker.dice)

    def die(self, broker: Broker, why: str) -> None:
        """It ends itself, and is started again later."""
        self.say(f"{broker.id}: gives up: {why}")
        self.crash(broker, power=True)
        self.at(100, lambda: self.start(broker))

    def stop_cleanly(self, broker: Broker) -> None:
        self.say(f"{broker.id}: stops")
        broker.stop(clean=True)
        self.at(80, lambda: self.start(broker))

    @property
    def victim(self) -> Broker | None:
        """On whose disk bits flipped. One at a time: a record that is damaged everywhere is lost."""
        return next((broker for broker in self.brokers.values() if broker.disk.flips), None)

    def replace_disk(self, broker: Broker) -> None:
        broker.disk = BadDisk(journaled=self.is_journaled)
        for seat in broker.seats:
            seat.claimed = 0

    def pause(self, broker: Broker) -> None:
        broker.paused = True

    def resume(self, broker: Broker) -> None:
        if broker.up and broker.paused:
            broker.paused = False
            inbox, broker.inbox = broker.inbox, []
            for action in inbox:
                action()
