"""Producers, a network, a broker and its disk, all from one seed, and what must hold of them (invariants 25-31).

- Readers of committed records see a transaction whole, in the order in which it was written, once, and only if its
  producer asked for the commit; what its producer was told is what they see, of offsets too.
- The last stable offset is where the visible part of the log says it is, and in the end nothing holds it back.
- Nobody is fenced but by another producer of the same transactional id, or by having been silent for too long.
- What was seen once is seen again, in the same place, whatever happened to the broker meanwhile.
"""

import gc
import heapq
from collections.abc import Callable
from contextlib import suppress
from errno import EIO
from random import Random
from typing import Any

from sim_disk import PowerLost
from txn_client import REPLACED, TXN_TIMEOUT_MS, Client, Place, Refused, Txn
from txn_line import Line
from txn_machine import START_MS, Machine, MachineDisk
from txn_readers import Readers
from txn_writer import compact_log

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode, StorageOffline
from tidelog.transactions.transaction import EPOCH_LAST, Transaction
from tidelog.wire.frames import decode_response_header, encode_request
from tidelog.wire.messages.admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest
from tidelog.wire.schema import Message, decode, encode, spec_of

NAMES = ("alpha", "beta")
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("c", 0))
STUCK_MAX = 20.0
STUCK_FIRST = (EndTxnRequest, TxnOffsetCommitRequest, AddPartitionsToTxnRequest)
SECONDS = 2.0
"""In which producers live, of a time that costs nothing."""


class World:
    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.dice = Random(seed)
        self.tracing = tracing
        self.now = 0.0
        self.trouble = self.dice.choice((0.0, 0.01, 0.05, 0.12))
        self.crashes = self.dice.choice((0, 1, 2, 4))
        self.crashes_at_ends = self.dice.choice((0, 0, 1, 3))
        self.compacting = self.dice.random() < 0.5
        self.sticky = self.dice.random() < 0.25
        """Requests about transactions tend to arrive just after their producers gave them up."""
        self.eager = Random(f"{seed} eager").random() < 0.35
        """Producers follow themselves closely in the same few places, a broker that falls is back at once, and so are
        they. Not from the dice of the rest, so that other worlds stay what they were."""
        if self.eager:
            self.sticky, self.crashes_at_ends = False, self.dice.choice((2, 4, 6))
        self.places = PLACES
        self.clients: list[Client] = []
        self.txns: list[Txn] = []
        self.readers = Readers(self, PLACES, NAMES)
        self.healing = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.machine: Machine | None = None
        self._boot(MachineDisk())
        self._prepare()

    @property
    def now_ms(self) -> int:
        return START_MS + int(self.now * 1000)

    def trace(self, text: str) -> None:
        if self.tracing:
            print(f"{self.now:9.4f} {text}")

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self.now + seconds, event)

    def run_until(self, end: float) -> None:
        while True:
            times = [self._events[0][0]] if self._events else []
            if self.machine is not None and (when := self.machine.loop.next_time) is not None:
                times.append(when)
            if not times or min(times) > end:
                break
            self.now = max(self.now, min(times))
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
                self._spin()
            self._spin()
        self.now = max(self.now, end)
        self._spin()

    def _spin(self) -> None:
        machine = self.machine
        if machine is None:
            return
        if not machine.dead:
            machine.spin(self.now)
        if machine.dead:
            self._fall(power=True)

    # -- the broker's lives --------------------------------------------------------------------------------------------

    def _boot(self, disk: MachineDisk) -> None:
        self.trace("power on")
        self.machine = Machine(disk, self.now, self.dice)
        if not self.healing and self.dice.random() < 0.1:
            disk.crash_after = self.dice.randint(0, 60)  # it does not even come up
        self._spin()

    def _fall(self, *, power: bool) -> None:
        """What was not synced is there after a kill, and may or may not be there after a power loss."""
        machine, self.machine = self.machine, None
        assert machine is not None
        self.trace("power lost" if power else "killed")
        disk = machine.power_off()
        if power:
            disk.crash(self.dice)
        disk.dead = False
        disk.fail_on.clear()
        pauses = (0.001, 0.01, 0.1) if self.eager else (0.01, 0.5, 3.0)
        self.after(self.dice.choice(pauses), lambda: self._boot(disk))

    def _stop_cleanly(self) -> None:
        machine = self.machine
        assert machine is not None
        self.trace("clean stop")
        try:
            machine.directory.close(clean=True)
        except (PowerLost, OSError):
            self._fall(power=True)
        else:
            self._fall(power=False)

    def mishap(self) -> None:
        machine = self.machine
        if machine is None or not machine.ready:
            return
        kind = self.dice.choice(("kill", "power", "power", "mid-write", "mid-write", "sync fails", "stop"))
        self.trace(kind)
        if kind == "kill":
            self._fall(power=False)
        elif kind == "power":
            self._fall(power=True)
        elif kind == "mid-write":
            machine.disk.crash_after = self.dice.randint(0, 30)
        elif kind == "sync fails":
            machine.disk.fail_on["sync"] = EIO
            self.after(self.dice.choice((0.05, 2.0)), lambda: self._fall_if(machine))
        else:
            self._stop_cleanly()

    def _fall_if(self, machine: Machine) -> None:
        if self.machine is machine:
            self._fall(power=True)

    # -- by the clock --------------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """What a broker does without being asked."""
        machine = self.machine
        if machine is None or not machine.ready or machine.dead or machine.directory.failure is not None:
            return
        draw = self.dice.random()
        try:
            if draw < 0.4:
                machine.background_work(machine.background.checkpoint())
            elif draw < 0.5:
                machine.background_work(machine.background.settle())
            elif draw < 0.6:
                machine.background_work(machine.background.enforce_retention())
            elif self.compacting:
                for replica in machine.partitions:
                    if replica.config.compacted:
                        compact_log(replica.log, now_ms=self.now_ms, high_watermark=replica.high_watermark)
        except (PowerLost, OSError, StorageOffline):
            pass

    # -- clients -------------------------------------------------------------------------------------------------------

    def connect(self, client: Client) -> Line | None:
        machine = self.machine
        return Line(self, machine, client) if machine is not None and machine.ready else None

    def delay_of(self, request: Message) -> float:
        """How long the line by which this is sent is stuck; mostly it is not."""
        if self.sticky and isinstance(request, STUCK_FIRST):
            return self.dice.choice((0.0, 0.0, 1.05, 1.2, 1.6))
        return self.dice.choice((0.6, 1.5, 5.0, STUCK_MAX)) if self.dice.random() < self.trouble else 0.0

    def spawn(self) -> Client:
        client = Client(self, len(self.clients), self.dice.choice(NAMES), self.dice.random() < 0.5)
        self.clients.append(client)
        client.ticket = 0  # type: ignore[attr-defined]
        client.running = client.life()  # type: ignore[attr-defined]
        self.after(0, lambda: self.resume(client, 0, None))
        return client

    def resume(self, client: Any, ticket: int, value: Any) -> None:
        """With what it waited for, or with None when its time is up; whichever comes first."""
        if client.dead or ticket != client.ticket:
            return
        client.ticket += 1
        try:
            wait = client.running.send(value if client.ticket > 1 else None)
        except StopIteration:
            return
        next_ticket = client.ticket
        self.after(wait, lambda: self.resume(client, next_ticket, None))

    def pause(self) -> float:
        """Between two requests of a transaction: mostly none, sometimes so long that the transaction is given up."""
        if self.sticky:
            return self.dice.choice((0.0, 0.2, 0.5))
        if self.dice.random() < (0.97 if self.eager else 0.85):
            return 0.0
        return self.dice.choice((0.5, 3.0, TXN_TIMEOUT_MS / 1000 + 1))

    def begin(self, client: Client) -> Txn:
        txn = Txn(len(self.txns), client, self.now, identity=(client.producer_id, client.epoch))
        self.txns.append(txn)
        return txn

    def ending(self) -> None:
        """A decision is about to be taken: the moment at which going down matters most."""
        if self.crashes_at_ends and self.dice.random() < 0.2:
            self.crashes_at_ends -= 1
            self.after(self.dice.choice((0, 0.001, 0.003, 0.01, 0.03)), self.mishap)

    def gave_up(self, client: Client, refused: Refused) -> None:
        """Whoever is fenced was replaced, or slept, or may have replaced itself by a request it had given up."""
        self.trace(f"{client.name}/{client.number} gives up: {refused.code.name}")
        replaced = any(
            other.doubtful_init or other.init_until >= client.started_at
            for other in self.clients
            if other.name == client.name and other is not client
        )
        opened = client.txn.opened_at if client.txn is not None else self.now
        slept = self.now - opened > TXN_TIMEOUT_MS / 1000 * 0.9
        allowed = REPLACED | {ErrorCode.INVALID_TXN_STATE}
        if replaced or slept or client.doubtful_init:
            assert refused.code in allowed, f"{client.name}/{client.number} was told {refused.code.name}"
            return
        raise AssertionError(f"{client.name}/{client.number} was told {refused.code.name} although it is alone")

    # -- asking at once ------------------------------------------------------------------------------------------------

    def ask(self, request: Message, version: int) -> Any:
        """Somebody with a good line to the broker. None if that went down meanwhile."""
        machine = self.machine
        if machine is None or not machine.ready:
            return None
        heard: list[bytes] = []
        server = machine.accept(heard.append)
        spec = spec_of(type(request))
        frame = encode_request(spec.key, version, 7, "sim", encode(request, version))[4:]
        with suppress(PowerLost):
            server.receive(bytes(frame))
        for _ in range(200):
            self._spin()
            if heard or self.machine is not machine:
                break
            self.run_until(self.now + 0.005)
        if not heard:
            return None
        data = memoryview(heard[0])[4:]
        _, body = decode_response_header(spec.key, version, data)
        return decode(spec.response, version, bytes(data), body)

    def _prepare(self) -> None:
        """Topics of small segments, so that they are rolled all the time; one of them compacted."""
        common = {"segment.bytes": "900", "index.interval.bytes": "100"}
        plans = [("t", 2, common), ("c", 1, {**common, "cleanup.policy": "compact", "delete.retention.ms": "100"})]
        coordinators_first = self.dice.random() < 0.5
        if coordinators_first:
            self._coordinators()
        for name, count, configs in plans:
            topic = CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=1,
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
            )
            self._until(lambda wish=topic: self._created(wish))  # type: ignore[misc]
        self._coordinators()
        if self.dice.random() < 0.25:
            self._age()

    def _created(self, topic: CreatableTopic) -> bool:
        answer = self.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=1000), 6)
        return answer is not None and answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)

    def _coordinators(self) -> None:
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=("any",))

            def found(request: Message = request) -> bool:
                answer = self.ask(request, 4)
                return answer is not None and answer.coordinators[0].error_code == 0

            self._until(found)

    def _age(self) -> None:
        """A transactional id whose epochs are about to run out."""

        def aged() -> bool:
            machine = self.machine
            if machine is None or not machine.ready:
                return False
            transaction = Transaction(
                transactional_id=NAMES[0],
                producer_id=900_000,
                producer_epoch=EPOCH_LAST - self.dice.randrange(4),
                timeout_ms=TXN_TIMEOUT_MS,
                update_ms=self.now_ms,
            )
            try:
                for host in machine.transactions.coordinator.hosts:
                    host.apply(lambda shard, now_ms: [Outcome(records=(transaction.record(),))])
            except PowerLost:
                return False
            return True

        self._until(aged)

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(400):
            if done():
                return
            self.run_until(self.now + 0.05)
        raise AssertionError("the broker does not come up")

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        start = self.now
        for _ in range(self.crashes):
            self.at(start + self.dice.random() * seconds, self.mishap)
        for _ in range(6):
            self.at(start + self.dice.random() * seconds, self.tend)
        for _ in range(self.dice.choice((2, 2, 3, 4))):
            self.at(start + self.dice.random() ** 3 * seconds, self.spawn)  # type: ignore[arg-type]
        for step in range(1, 5):
            self.run_until(start + seconds * step / 4)
            self.readers.observe()
        self.heal()

    def heal(self) -> None:
        """Producers are gone, nothing is lost any more, what is under way arrives, every transaction runs out."""
        self.healing = True
        self.trouble = 0.0
        for client in self.clients:
            client.dead = True
        self.run_until(self.now + STUCK_MAX + 5)
        if self.machine is not None and self.machine.ready and self.machine.directory.failure is not None:
            self._fall(power=True)
        self.run_until(self.now + TXN_TIMEOUT_MS / 1000 + 5)
        self._until(lambda: self.machine is not None and self.machine.ready)
        self._coordinators()
        self.run_until(self.now + 3)
        self.readers.observe()
        self.readers.check_ends()
        self._fall(power=self.dice.random() < 0.5)
        self._until(lambda: self.machine is not None and self.machine.ready)
        self._coordinators()
        self.run_until(self.now + 1)
        self.readers.check_again()


def run(seed: int, *, seconds: float = SECONDS, tracing: bool = False) -> World:
    gc.disable()
    world = None
    try:
        world = World(seed, tracing=tracing)
        world.run(seconds)
    except BaseException as error:
        error.add_note(f"seed {seed}: python -m tests.property.test_transactions_model --seed {seed}")
        raise
    finally:
        gc.enable()
    return world
