"""A transaction coordinator without a broker: a shard, its runtime, a log that is a list of bytes, partitions that
remember their markers, and a clock that is a number.

Every answer is encoded in the version that was asked for, so a response that the wire cannot say fails here too.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Self

from tidelog.coordination import EFFECT, NOBODY, Outcome, Producer, Released, Runtime
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context, Markers, TransactionSettings
from tidelog.transactions.records import TransactionRecord, decode_record, encode_record
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.transaction import Identity, Transaction
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from tidelog.wire.schema import Message, encode, spec_of

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
TXN = "orders-1"
P0 = TopicPartition("out", 0)
P1 = TopicPartition("out", 1)

Entry = tuple[bytes, bytes | None]


class Sim:
    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        log: list[Entry] | None = None,
        now_ms: int = START_MS,
        new_producer_id: Callable[[], int] | None = None,
        **shard: Any,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.new_producer_id = new_producer_id or count(1000).__next__
        self.shard_arguments = shard
        self.shard = TransactionShard(self.settings, self.new_producer_id, len, **shard)
        self.log: list[Entry] = list(log or ())
        self.now_ms = now_ms
        self.answers: dict[int, Any] = {}
        self.markers: list[Markers] = []  # handed out, not yet reported
        self.marking = True  # markers are written at once
        self.holding = False  # the high watermark stands still
        self.refusal: KafkaError | None = None
        self._versions: dict[int, int] = {}
        self._last_waiter = 0
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, offset)
        self.runtime: Runtime[TransactionRecord] = Runtime(
            self.shard, self._append, end_offset=len(self.log), committed_offset=len(self.log)
        )

    def load(self) -> Self:
        self._take(self.runtime.loaded(now_ms=self.now_ms, monotonic_ms=self.now_ms))
        return self

    def _append(self, records: tuple[TransactionRecord, ...], producer: Producer | None) -> int:
        assert producer is None
        if self.refusal is not None:
            raise self.refusal
        self.log += [encode_record(record) for record in records]
        return len(self.log)

    def _take(self, released: list[Released]) -> None:
        if not self.holding:
            released = released + self.runtime.commit(len(self.log))
        for waiter, answer in released:
            if waiter == EFFECT:
                self.markers.append(answer)
                continue
            assert waiter not in self.answers, "answered twice"
            if isinstance(answer, Message):
                encode(answer, self._versions[waiter])
            self.answers[waiter] = answer
        if self.marking and self.markers:
            self.mark()

    # -- events -------------------------------------------------------------------------------------------------------

    def submit(self, request: Message, version: int | None = None, connection: int = 0) -> int:
        """Who waits; the answer is in `answers` once it is there."""
        self._last_waiter += 1
        waiter = self._last_waiter
        version = spec_of(type(request)).max if version is None else version
        self._versions[waiter] = version
        context = Context(version, waiter, connection)
        self.run(lambda: self.shard.handle(request, context, self.now_ms), waiter)
        return waiter

    def report(self, markers: Markers) -> int:
        """They are written. Who waits to hear that this was taken down."""
        self._last_waiter += 1
        self.run(lambda: self.shard.markers_written(markers, self.now_ms), self._last_waiter)
        return self._last_waiter

    def ask(self, request: Message, version: int | None = None, connection: int = 0) -> Any:
        """For what is answered at once."""
        waiter = self.submit(request, version, connection)
        assert waiter in self.answers, f"{type(request).__name__} is not answered yet"
        answer = self.answers.pop(waiter)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def mark(self, markers: Markers | None = None) -> None:
        """Every partition has its marker: of those given, or of all that were handed out."""
        written = [markers] if markers else self.markers
        if not markers:
            self.markers = []
        for each in written:
            self.run(lambda each=each: self.shard.markers_written(each, self.now_ms))

    def run(self, decide: Callable[[], Outcome[Any, TransactionRecord]], waiter: int = NOBODY) -> None:
        self._take(self.runtime.run(waiter, decide, monotonic_ms=self.now_ms))

    def release(self) -> None:
        self.holding = False
        self._take([])

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (deadline := self.runtime.next_deadline_ms) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            self._take(self.runtime.expire(now_ms=self.now_ms, monotonic_ms=self.now_ms))
        self.now_ms = end_ms

    def expire_ids(self) -> None:
        for outcome in self.shard.expiry(self.now_ms):
            self.run(lambda outcome=outcome: outcome)

    def reloaded(self, *, compacted: bool = False, marking: bool = True) -> Self:
        """Another coordinator that takes over with nothing but the log, or what compaction left of it."""
        log = list({key: (key, value) for key, value in self.log}.values()) if compacted else self.log
        other = type(self)(
            self.settings,
            log=log,
            now_ms=self.now_ms,
            new_producer_id=self.new_producer_id,
            **{**self.shard_arguments, "coordinator_epoch": self.shard.coordinator_epoch + 1},
        )
        other.marking = marking
        return other.load()

    @property
    def txn(self) -> Transaction:
        found = self.shard.find(TXN)
        assert found is not None
        return found

    # -- a producer's life --------------------------------------------------------------------------------------------

    def init(self, expected: Identity | None = None, version: int = 5, **request: Any) -> Identity:
        response = self.ask(init(expected, **request), version)
        assert response.error_code == 0, ErrorCode(response.error_code).name
        return Identity(response.producer_id, response.producer_epoch)

    def add(self, who: Identity, *partitions: TopicPartition, version: int = 3, connection: int = 0) -> ErrorCode:
        return code_of(self.ask(add(who, *partitions, version=version), version, connection))

    def end(self, who: Identity, committed: bool = True, *, version: int = 4, connection: int = 0) -> ErrorCode:
        return code_of(self.ask(end(who, committed), version, connection))

    def end2(self, who: Identity, committed: bool = True) -> Identity:
        """In the second protocol: as whom the producer goes on."""
        response = self.ask(end(who, committed), 5)
        assert response.error_code == 0, ErrorCode(response.error_code).name
        return Identity(response.producer_id, response.producer_epoch)


def at_epoch(epoch: int) -> Sim:
    """A coordinator whose transactional id has used up that many epochs of producer id 900."""
    aged = Transaction(
        transactional_id=TXN, producer_id=900, producer_epoch=epoch, timeout_ms=TIMEOUT_MS, update_ms=START_MS
    )
    sim = Sim()
    sim.run(lambda: Outcome(records=(aged.record(),)))
    return sim.reloaded()


# Requests -------------------------------------------------------------------------------------------------------------


def init(
    expected: Identity | None = None, *, name: str | None = TXN, timeout_ms: int = TIMEOUT_MS
) -> InitProducerIdRequest:
    producer_id, epoch = expected or (-1, -1)
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
    )


def topics_of(*partitions: TopicPartition) -> tuple[AddPartitionsToTxnTopic, ...]:
    names = dict.fromkeys(each.topic for each in partitions)
    return tuple(
        AddPartitionsToTxnTopic(
            name=name, partitions=tuple(each.partition for each in partitions if each.topic == name)
        )
        for name in names
    )


def batched(
    who: Identity, *partitions: TopicPartition, name: str = TXN, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        verify_only=verify_only,
        topics=topics_of(*partitions),
    )


def add(
    who: Identity, *partitions: TopicPartition, version: int = 3, name: str = TXN, verify_only: bool = False
) -> AddPartitionsToTxnRequest:
    if version >= 4:
        return AddPartitionsToTxnRequest(transactions=(batched(who, *partitions, name=name, verify_only=verify_only),))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=topics_of(*partitions),
    )


def add_offsets(who: Identity, group: str, *, name: str = TXN) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=who.producer_id, producer_epoch=who.producer_epoch, group_id=group
    )


def end(who: Identity, committed: bool = True, *, name: str = TXN) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=committed,
    )


def codes_of(response: Any) -> dict[TopicPartition, ErrorCode]:
    """Of AddPartitionsToTxn, whatever its version."""
    topics = list(response.results_by_topic_v3_and_below)
    for each in response.results_by_transaction:
        topics += each.topic_results
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    }


def code_of(response: Any) -> ErrorCode:
    if hasattr(response, "results_by_transaction"):
        codes = set(codes_of(response).values())
        assert len(codes) == 1, codes
        return codes.pop()
    return ErrorCode(response.error_code)
