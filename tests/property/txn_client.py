"""Producers as real clients behave, told as generators: they yield how long they wait and are sent what came.

What a client asked for and was told is all that the model knows of a transaction.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.record_batch import TRANSACTIONAL, build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import Message

if TYPE_CHECKING:
    from txn_world_whole import World

Life = Generator[float, Any, Any]

REQUEST_TIMEOUT = 1.0
QUICK_TIMEOUT = 0.15
TXN_TIMEOUT_MS = 8_000
OK = ErrorCode.NONE
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
REPLACED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

Place = tuple[str, int]


class Refused(Exception):
    def __init__(self, code: ErrorCode, attempts: int) -> None:
        super().__init__(code.name)
        self.code = code
        self.attempts = attempts


@dataclass
class Txn:
    """One transaction as its client knows it."""

    number: int
    client: "Client"
    opened_at: float
    writes: dict[bytes, Place] = field(default_factory=dict)  # those that were acknowledged, by value
    tried: set[bytes] = field(default_factory=set)
    with_offsets: bool = False
    asked_commit: bool = False
    told: bool | None = None  # committed or not, if that is certain
    identity: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        return f"txn {self.number} of {self.client.name} {self.identity}"


class Client:
    def __init__(self, world: "World", number: int, name: str, second: bool) -> None:
        self.world = world
        self.number = number
        self.name = name
        self.second = second
        self.dice = world.dice
        self.connection: Any = None
        self.producer_id = self.epoch = -1
        self.sequences: dict[Place, int] = {}
        self.added: set[Place] = set()
        self.offsets_added = False
        self.doubtful_init = False
        """A request for an identity was given up, and may arrive at any time."""
        self.init_until = -1.0
        self.started_at = world.now
        self.txn: Txn | None = None
        self.dead = False
        self.usual: list[Place] = []

    # -- requests ------------------------------------------------------------------------------------------------------

    def call(self, request: Message, version: int, attempts_max: int = 1_000_000) -> Life:
        """(answer, attempts): again and again, on a new connection when there is none any more."""
        attempts = 0
        while attempts < attempts_max:
            if self.world.eager and self.connection is not None and self.connection.machine is not self.world.machine:
                self.connection = None  # whose loss it notices at once
            if self.connection is None or not self.connection.usable:
                self.connection = self.world.connect(self)
                if self.connection is None:
                    yield self.dice.choice((0.002, 0.02, 0.1)) if self.world.eager else 0.1
                    continue
            attempts += 1
            self.connection.send(request, version)
            quick = self.world.eager and attempts_max > 1
            answer = yield QUICK_TIMEOUT if quick else REQUEST_TIMEOUT
            if answer is not None:
                return answer, attempts
            self.connection.abandon()
            self.connection = None
            if isinstance(request, InitProducerIdRequest):
                self.doubtful_init = True
        return None, attempts

    def settle(self, request: Message, version: int, code_of: Any, attempts_max: int = 1_000_000) -> Life:
        """Until the answer is not one to come back for. Raises Refused."""
        total = 0
        while True:
            answer, attempts = yield from self.call(request, version, attempts_max)
            total += attempts
            if answer is None:
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, total)
            code = ErrorCode(code_of(answer))
            self.world.trace(f"{self.name}/{self.number} {type(request).__name__} {code.name} {total}")
            if code is OK:
                return answer
            if code not in RETRIED:
                raise Refused(code, total)
            yield self.dice.choice((0.005, 0.02, 0.1))

    # -- life ----------------------------------------------------------------------------------------------------------

    def life(self) -> Life:
        try:
            yield from self.init(keep=False)
            while True:
                yield self.dice.choice((0, 0, 0.001, 0.05, 1.0))
                yield from self.transaction()
        except Refused as refused:
            self.world.gave_up(self, refused)
        self.dead = True
        self.init_until = min(self.init_until, self.world.now)

    def init(self, *, keep: bool) -> Life:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=TXN_TIMEOUT_MS,
            producer_id=self.producer_id if keep else -1,
            producer_epoch=self.epoch if keep else -1,
        )
        self.init_until = float("inf")
        answer = yield from self.settle(request, 5 if self.second else 4, lambda each: each.error_code)
        self.init_until = self.world.now
        self._become(answer.producer_id, answer.producer_epoch)
        return None

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    def transaction(self) -> Life:
        txn = self.txn = self.world.begin(self)
        self.added, self.offsets_added = set(), False
        try:
            if self.world.eager:
                yield from self.usual_writes(txn)
            for _ in range(self.dice.choice((0, 0, 0, 0, 0, 1) if self.world.eager else (0, 1, 1, 2, 2, 3, 4))):
                yield self.dice.choice((0, 0, 0, 0.001, 0.02, self.world.pause()))
                if self.dice.random() < (0.6 if self.world.sticky else 0.25):
                    yield from self.commit_offsets(txn)
                else:
                    yield from self.write(txn, self.dice.choice(self.world.places))
            yield self.dice.choice((0, 0, 0, 0.01, self.world.pause()))
        except Refused as refused:
            if refused.code in REPLACED:
                raise
            yield from self.give_up(txn)
            return None
        yield from self.end(txn, self.dice.random() < 0.7)
        return None

    def usual_writes(self, txn: Txn) -> Life:
        """Mostly to where it has written before."""
        if not self.usual:
            self.usual = self.dice.sample(self.world.places, self.dice.choice((1, 2, 3)))
        for place in self.usual:
            if self.dice.random() < 0.85:
                yield self.dice.choice((0, 0, 0, 0, 0, 0.001, self.world.pause()))
                yield from self.write(txn, place)
        if self.number % 2 and self.dice.random() < 0.85:
            yield from self.commit_offsets(txn)
        return None

    def give_up(self, txn: Txn) -> Life:
        """After an error that leaves a transaction which can only be aborted. What is still under way may come late,
        so the first protocol asks for a new epoch as well (KIP-360)."""
        if self.second or self.dice.random() < 0.5:
            yield from self.end(txn, False)
        else:
            txn.told = False
        if not self.second:
            yield from self.init(keep=True)
        return None

    def write(self, txn: Txn, place: Place) -> Life:
        if not self.second and place not in self.added:
            yield from self.add(place)
        values = [b"%d:%d" % (txn.number, len(txn.tried) + i) for i in range(self.dice.choice((1, 1, 2)))]
        txn.tried.update(values)
        sequence = self.sequences.get(place, 0)
        batch = build_batch(
            [Record(i, self.world.now_ms, value, value, ()) for i, value in enumerate(values)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=place[1], records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=500,
            topic_data=(TopicProduceData(name=place[0], partition_data=(data,)),),
        )
        yield from self.settle(
            request,
            12 if self.second else 11,
            lambda each: each.responses[0].partition_responses[0].error_code,
            attempts_max=1 if self.dice.random() < 0.3 else 1_000_000,  # not everybody waits for ever
        )
        self.sequences[place] = sequence + len(values)
        txn.writes.update(dict.fromkeys(values, place))
        return None

    def add(self, place: Place) -> Life:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=place[0], partitions=(place[1],)),),
        )
        yield from self.settle(
            request, 3, lambda each: each.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
        self.added.add(place)
        return None

    def commit_offsets(self, txn: Txn) -> Life:
        """Of a group that only this transaction knows, and of one that all transactions of this id commit to."""
        for group in (f"only-{txn.number}", f"of-{self.name}"):
            if not self.second and not self.offsets_added:
                request: Message = AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=group,
                )
                yield from self.settle(request, 3, lambda each: each.error_code)
                self.offsets_added = True
            partition = TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=txn.number, committed_metadata=None
            )
            request = TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
            )
            yield from self.settle(
                request, 5 if self.second else 4, lambda each: each.topics[0].partitions[0].error_code
            )
        txn.with_offsets = True
        return None

    def end(self, txn: Txn, committed: bool) -> Life:
        nothing = not (txn.tried or self.added or self.offsets_added or txn.with_offsets)
        if nothing and not (self.second and not committed):
            return None  # a client does not end what it did not begin
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        txn.asked_commit = txn.asked_commit or committed
        self.world.ending()
        try:
            answer = yield from self.settle(request, 5 if self.second else 4, lambda each: each.error_code)
        except Refused as refused:
            if refused.attempts == 1 or not txn.asked_commit:
                txn.told = False  # its only request to commit was refused, so it never will be
            if refused.code in REPLACED:
                raise
            if committed and self.second and refused.code is ErrorCode.TRANSACTION_ABORTABLE:
                yield from self.end(txn, False)
                return None
            if not self.second and refused.code is ErrorCode.INVALID_TXN_STATE:
                yield from self.init(keep=True)
                return None
            raise
        if committed:
            txn.told = True
        elif not txn.asked_commit:
            txn.told = False
        if self.second:
            self._become(answer.producer_id, answer.producer_epoch)
        return None
