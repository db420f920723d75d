"""Producers, a coordinator and partitions, joined by a network that delays, loses and reorders; all from one seed.

The model is simple: each transaction of each producer knows what was asked and told, and each partition knows whose
writes it holds and how they ended. Whatever happens,

- no write opens a transaction that is over (28),
- all writes of a transaction end alike, as a commit only if its producer asked for one, and as it was told (29),
- who was replaced by another producer changes nothing any more (27),
- nobody is told to mark what a crash could still take back, and once nothing new happens every transaction ends, and
  the log alone says the same (30, 31).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from txn_producer import Producer, Txn
from txn_sim import Sim, add, codes_of

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Markers, TransactionSettings
from tidelog.transactions.records import TransactionRecord, decode_record, encode_record
from tidelog.transactions.state import State
from tidelog.transactions.transaction import EPOCH_LAST, Identity, Transaction
from tidelog.wire.messages.transactions import EndTxnRequest
from tidelog.wire.schema import Message

NAMES = ("a", "b")
PARTITIONS = (TopicPartition("out", 0), TopicPartition("out", 1), TopicPartition("__consumer_offsets", len("group")))
TOO_FEW = KafkaError("too few replicas", ErrorCode.NOT_ENOUGH_REPLICAS)
CRASHED = KafkaError("crashed", ErrorCode.NOT_COORDINATOR)

Answer = Callable[[Any], None]


@dataclass
class Partition:
    """What a log does: fence by epoch, ask before it opens a transaction, end what is open at a marker."""

    open: dict[int, list[Txn]] = field(default_factory=dict)  # by producer id
    epochs: dict[int, int] = field(default_factory=dict)
    coordinators: dict[int, int] = field(default_factory=dict)
    markers: int = 0


@dataclass
class Channel:
    """A connection to the coordinator: in order, and for as long as it takes."""

    number: int
    queue: deque[tuple[Message, int, Answer]] = field(default_factory=deque)
    stuck: bool = False  # what is in it may arrive very late


class World:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.trouble = self.dice.choice((0.01, 0.05, 0.15))
        settings = TransactionSettings(transactional_id_expiration_ms=20_000)
        self.sim = Sim(settings).load()
        self.sim.marking = False
        if self.dice.random() < 0.3:
            self._age()
        self.committed = 0  # the high watermark, while it stands still
        self.partitions = {each: Partition() for each in PARTITIONS}
        self.channels: list[Channel] = []
        self.loose: list[Callable[[], None]] = []  # whatever else is under way, in no order
        self.waiting: dict[int, Answer] = {}
        self.producers: list[Producer] = []
        self.txns: list[Txn] = []
        self.taken: dict[str, Identity] = {}  # the newest identity that InitProducerId gave
        self.losing = True

    def _age(self) -> None:
        """A transactional id whose epochs are about to run out."""
        aged = Transaction(
            transactional_id=NAMES[0],
            producer_id=900,
            producer_epoch=EPOCH_LAST - self.dice.randrange(4),
            timeout_ms=10_000,
            update_ms=self.sim.now_ms,
        )
        self.sim.run(lambda: Outcome(records=(aged.record(),)))

    # -- what happens -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.dice.random()
        busy = [each for each in self.channels if each.queue and (not each.stuck or self.dice.random() < 0.05)]
        if draw < self.trouble:
            self.dice.choices(
                (self._watermark, self._refuse, self.crash, self._let_time_pass, self._expire, self._kill),
                (6, 2, 3, 6, 1, 3),
            )[0]()
        elif draw < 0.4:
            self._some_producer().act()
        elif draw < 0.7 and busy:
            self._deliver(self.dice.choice(busy))
        elif self.loose:
            self.loose.pop(self.dice.randrange(len(self.loose)))()
        elif self.sim.holding or self.sim.refusal:
            self.sim.refusal = None
            self.sim.release()
        else:
            self.sim.advance(1)
        self._collect()

    def _let_time_pass(self) -> None:
        self.sim.advance(self.dice.choice((100, 300, 5_000)))

    def _refuse(self) -> None:
        self.sim.refusal = TOO_FEW

    def _kill(self) -> None:
        if self.producers:
            self.dice.choice(self.producers).dead = True

    def _expire(self) -> None:
        self.sim.advance(11_000)
        self.sim.expire_ids()

    def _some_producer(self) -> Producer:
        alive = [each for each in self.producers if not each.dead]
        if not alive or self.dice.random() < self.trouble / 3:
            second = self.dice.random() < 0.5
            self.producers.append(Producer(self, self.dice.choice(NAMES), second))
            return self.producers[-1]
        return self.dice.choice(alive)

    def _watermark(self) -> None:
        if self.sim.holding:
            self.sim.release()
        else:
            self.sim.holding = True
            self.committed = len(self.sim.log)

    def crash(self) -> None:
        """What was not committed may be there or not. Connections end; what the coordinator had others do goes on."""
        old = self.sim
        committed = self.committed if old.holding else len(old.log)
        released = old.runtime.fail(CRASHED)
        old.log = old.log[: self.dice.randint(committed, len(old.log))]
        self.channels.clear()
        self.sim = old.reloaded(compacted=self.dice.random() < 0.5, marking=False)
        for waiter, error in released:
            answer = self.waiting.pop(waiter, None)
            if answer is not None and not self._lost():
                answer(error)
        self.waiting.clear()

    def _collect(self) -> None:
        """Answers and markers that came out of the coordinator."""
        sim = self.sim
        for markers in sim.markers:
            self._check_committed(markers)
            self._mark(markers)
        sim.markers = []
        for waiter in list(sim.answers):
            answer = self.waiting.pop(waiter, None)
            released = sim.answers.pop(waiter)
            if answer is not None:
                answer(released)

    def _check_committed(self, markers: Markers) -> None:
        """Nobody may learn of a decision that a crash could take back."""
        log = self.sim.log[: self.committed] if self.sim.holding else self.sim.log
        key = encode_record(TransactionRecord(markers.transactional_id, None))[0]
        values = [value for each, value in log if each == key]
        record = decode_record(key, values[-1]) if values else None
        assert record is not None, f"{markers} of nothing"
        assert record.value is not None
        state = State.PREPARE_COMMIT if markers.committed else State.PREPARE_ABORT
        assert record.value.transaction_status == state.number, f"{markers} are not committed"

    def _lost(self) -> bool:
        return self.losing and self.dice.random() < self.trouble

    # -- between producers and the coordinator ------------------------------------------------------------------------

    def connect(self) -> Channel:
        numbers = [each.number for each in self.channels] + [each.connection.number for each in self.producers]
        channel = Channel(max(numbers, default=0) + 1)
        self.channels.append(channel)
        return channel

    def send(self, channel: Channel, request: Message, version: int, answer: Answer) -> None:
        if not self._lost():
            channel.queue.append((request, version, lambda each: None if self._lost() else answer(each)))

    def _deliver(self, channel: Channel) -> None:
        if channel.queue:
            request, version, answer = channel.queue.popleft()
            self._submit(request, version, answer, channel.number)

    def _submit(self, request: Message, version: int, answer: Answer, connection: int = 0) -> None:
        name, asked = who_asks(request)
        taken = self.taken.get(name)
        written = len(self.sim.log)
        waiter = self.sim.submit(request, version, connection)
        if taken is not None and asked is not None and asked < taken:
            assert len(self.sim.log) == written, f"{asked} was replaced by {taken} and still changed something"
        self.waiting[waiter] = self._noting_owner(name, answer) if asked is None else answer

    def _noting_owner(self, name: str, answer: Answer) -> Answer:
        def note(response: Any) -> None:
            if not isinstance(response, KafkaError) and not response.error_code:
                given = Identity(response.producer_id, response.producer_epoch)
                self.taken[name] = max(given, self.taken.get(name, given))
            answer(response)

        return note

    # -- writes -------------------------------------------------------------------------------------------------------

    def write(self, txn: Txn, where: TopicPartition, answer: Answer) -> None:
        """On its way to the partition's leader, for however long."""
        if not self._lost():
            self.loose.append(lambda: self._arrive(txn, where, answer))

    def _arrive(self, txn: Txn, where: TopicPartition, answer: Answer) -> None:
        partition = self.partitions[where]
        producer_id, epoch = txn.identity
        if epoch < partition.epochs.get(producer_id, -1):
            answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif partition.open.get(producer_id) and epoch == partition.epochs[producer_id]:
            self._append(partition, txn, answer)
        else:
            # The first of this transaction here: the second protocol adds, the first one must have added before.
            guard = partition.markers
            request = add(txn.identity, where, version=5, name=txn.name, verify_only=not txn.second)

            def decided(response: Any) -> None:
                if isinstance(response, KafkaError) or response is None:
                    answer(ErrorCode.NOT_ENOUGH_REPLICAS)
                    return
                (code,) = codes_of(response).values()
                if code is ErrorCode.NONE and guard != partition.markers:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS
                if code is ErrorCode.NONE:
                    self._append(partition, txn, answer)
                else:
                    answer(code)

            self.loose.append(lambda: self._submit(request, 5, decided))

    def _append(self, partition: Partition, txn: Txn, answer: Answer) -> None:
        producer_id, epoch = txn.identity
        if epoch < partition.epochs.get(producer_id, -1):
            answer(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        already = partition.open.setdefault(producer_id, [])
        assert all(each is txn for each in already), f"{txn} is mixed up with {already}"
        # Where it is open a marker is still to come. An abort may find more to abort, a commit no more than was asked.
        assert not (txn.told if already else txn.is_over), f"a write is taken for {txn}, which is over"
        already.append(txn)
        partition.epochs[producer_id] = epoch
        if not self._lost():
            answer(ErrorCode.NONE)

    # -- markers ------------------------------------------------------------------------------------------------------

    def _mark(self, markers: Markers) -> None:
        missing = set(markers.partitions)
        coordinator = self.sim

        def write(where: TopicPartition) -> None:
            self._apply_marker(self.partitions[where], markers)
            missing.discard(where)
            if not missing:
                self.loose.append(report)

        def report() -> None:
            if self.sim is coordinator:
                self.waiting[coordinator.report(markers)] = heard

        def heard(answer: Any) -> None:
            if isinstance(answer, KafkaError) and self.sim is coordinator:
                self.loose.append(report)

        self.loose += [lambda where=where: write(where) for where in markers.partitions]  # type: ignore[misc]
        if not missing:
            self.loose.append(report)

    def _apply_marker(self, partition: Partition, markers: Markers) -> None:
        producer_id = markers.producer_id
        if markers.coordinator_epoch < partition.coordinators.get(producer_id, 0):
            return  # of a coordinator that has a successor
        assert markers.producer_epoch >= partition.epochs.get(producer_id, -1), "a marker of an older epoch"
        partition.coordinators[producer_id] = markers.coordinator_epoch
        partition.epochs[producer_id] = markers.producer_epoch
        partition.markers += 1
        for txn in partition.open.pop(producer_id, ()):
            txn.end(markers.committed)

    # -- in the end ---------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Producers are gone, nothing is lost any more, what is under way arrives."""
        self.losing = False
        self.sim.refusal = None
        self.sim.release()
        for producer in self.producers:
            producer.dead = True
        for _ in range(10_000):
            self._collect()
            for channel in self.channels:
                while channel.queue:
                    self._deliver(channel)
                    self._collect()
            if self.loose:
                self.loose.pop(self.dice.randrange(len(self.loose)))()
            elif any(each.state.is_running for each in self.sim.shard.all()) or self.waiting:
                self.sim.advance(10_001)
            else:
                break
        self._check_ends()

    def _check_ends(self) -> None:
        states = {each.transactional_id: each.state for each in self.sim.shard.all()}
        assert not any(state.is_running for state in states.values()), f"not ended: {states}"
        assert not self.waiting, "somebody was never answered"
        for where, partition in self.partitions.items():
            assert not any(partition.open.values()), f"readers of {where} wait for ever"
        for txn in self.txns:
            assert txn.told is None or txn.result in (None, txn.told), f"{txn} was told otherwise"
        for compacted in (False, True):
            self._compare(compacted)

    def _compare(self, compacted: bool) -> None:
        other = self.sim.reloaded(compacted=compacted, marking=False)
        assert other.shard.dump() == self.sim.shard.dump()
        prepared = {each.transactional_id for each in self.sim.shard.all() if each.state.is_prepared}
        assert {each.transactional_id for each in other.markers} == prepared

    def check_new_life(self) -> None:
        """Whatever happened, the next producer works."""
        name, second = self.dice.choice(NAMES), self.dice.random() < 0.5
        producer = Producer(self, name, second)
        self.producers.append(producer)
        for _ in range(300):
            assert not producer.dead, f"a new producer cannot work: {producer.why}"
            if producer.committed == 2:
                return
            producer.act()
            for channel in self.channels:
                self._deliver(channel)
            self._collect()
            while self.loose:
                self.loose.pop(0)()
                self._collect()
        raise AssertionError("a new producer gets nothing done")


def who_asks(request: Any) -> tuple[str, Identity | None]:
    """Of which transactional id, and as whom. InitProducerId asks as nobody."""
    if isinstance(request, EndTxnRequest) or hasattr(request, "group_id"):
        return request.transactional_id, Identity(request.producer_id, request.producer_epoch)
    if hasattr(request, "transaction_timeout_ms"):
        return request.transactional_id or "", None
    if request.transactions:
        each = request.transactions[0]
        return each.transactional_id, Identity(each.producer_id, each.producer_epoch)
    return request.v3_and_below_transactional_id, Identity(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
