"""One partition of a coordinator's internal topic: its shard, loaded from the log, driven by requests, timers and the
high watermark.

It moves records and answers; what they say is decided by the shard, in what order things happen by
`coordination.Runtime`.
"""

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog.broker.flusher import Flusher
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.coordination import EFFECT, NOBODY, Outcome, Producer, Released, Runtime, Shard
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_ID
from tidelog.storage.log import Verification
from tidelog.wire.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    batch_of,
    iter_batches,
    iter_records,
)

ACKS_ALL: Final = -1
LOAD_BYTES: Final = 1024 * 1024
"""Read between two turns of the loop, so that loading a long history holds up nobody."""
COMMIT_MARKER: Final = 1

Rec = TypeVar("Rec")
S = TypeVar("S", bound=Shard[Any])
Done = Callable[[Any], None]
"""Told the response, or the KafkaError to answer instead."""


Decide = Callable[[S, int, int], Outcome[Any, Rec]]
"""Given the shard, the waiter by which a deferred answer is completed later, and the time."""

OnEffect = Callable[["ShardHost[Any, Any]", Any], None]
"""Carries out what a shard decided to have done, once that decision is safe."""


class RecordFormat(Protocol[Rec]):
    """How a coordinator's records are written to its topic."""

    def encode(self, records: Sequence[Rec]) -> Buffer:
        """The payload of a batch that holds them: records of one moment."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> Rec | None:
        """None: a record of a kind that is not ours to know."""
        ...


class TransactionEnd(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


def no_effects(host: "ShardHost[Any, Any]", effect: Any) -> None:
    raise TypeError(f"nobody here carries out {effect!r}")


class ShardHost(Generic[S, Rec]):
    """One partition of the internal topic, its shard and its runtime."""

    def __init__(
        self,
        replica: Replica,
        shard: S,
        records: RecordFormat[Rec],
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
        on_effect: OnEffect = no_effects,
    ) -> None:
        self.replica = replica
        self.shard = shard
        self._records = records
        self._flusher = flusher
        self._clock = clock
        self._loop = loop
        self._on_effect = on_effect
        self.failure: KafkaError | None = None
        """Why it is over: its disk is gone, or another broker, or this one in a newer epoch, has the partition."""
        self._runtime: Runtime[Rec] | None = None
        self._verification: Verification | None = None
        self._patient = False
        """What is written now is waited for by nobody."""
        self._unhurried = False
        """Something in the log waits for company before it is synced."""
        self._waiting: dict[int, Done] = {}
        self._last_waiter = 0
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    # -- loading ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        partition_log = self.replica.log
        offset = partition_log.start_offset
        # To the end, also what is not safe yet: this leader will make it safe, and nobody hears of it before.
        while offset < (end := partition_log.end_offset):
            piece = partition_log.read(offset, LOAD_BYTES, upper=end)
            for header, batch in iter_batches(piece.file.read(piece.position, piece.length)):
                self._replay(header, batch)
                offset = header.last_offset + 1
            if piece.length == 0:
                break  # what compaction left of the end holds no batch
            await asyncio.sleep(0)
        if self.failure is not None:
            return  # what it would do from now on is for its successor to do
        self._runtime = Runtime(
            self.shard,
            self._append,
            end_offset=partition_log.end_offset,
            committed_offset=self.replica.high_watermark,
        )
        self._answer(self._runtime.loaded(now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms()))
        self._arm()

    def _replay(self, header: BatchHeader, batch: memoryview) -> None:
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else NO_PRODUCER_ID
        for record in iter_records(batch):
            if header.attributes & CONTROL:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                self.shard.replay_marker(header.producer_id, kind == COMMIT_MARKER)
                continue
            known = self._records.decode(bytes(record.key or b""), record.value and bytes(record.value))
            if known is not None:
                self.shard.replay(known, record.offset, producer_id)

    # -- events -----------------------------------------------------------------------------------------------------

    def submit(
        self,
        decide: "Decide[S, Rec]",
        done: Done,
        verification: Verification | None = None,
        *,
        patiently: bool = False,
    ) -> None:
        """Decide now; `done` when the answer may be known outside. `verification`: the transaction coordinator's word
        for records that are part of a transaction. `patiently`: unless this answers somebody else too, its records may
        be synced together with what follows them."""
        runtime = self._runtime
        if runtime is None:
            done(self.failure or _still_loading())
            return
        waiter = self._wait(done)
        decided = partial(decide, self.shard, waiter, self._clock.now_ms())
        if patiently:
            decided = partial(self._decide_patiently, decided)
        self._verification = verification
        released = runtime.run(waiter, decided, monotonic_ms=self._clock.monotonic_ms())
        self._verification = None
        self._patient = False
        self._answer(released)
        if self._unhurried and not patiently and waiter in self._waiting:
            self._see_to_flush()
        self._arm()

    def _decide_patiently(self, decide: Callable[[], Outcome[Any, Rec]]) -> Outcome[Any, Rec]:
        outcome = decide()
        self._patient = not outcome.completions
        return outcome

    @property
    def is_settled(self) -> bool:
        """Whether what its shard knows is all safe, so that it may be told at once."""
        return self._runtime is not None and self._runtime.is_settled

    def end_transaction(self, end: TransactionEnd, done: Done) -> bool:
        """Write a marker: what the shard keeps of this producer's transaction counts from now on, or never. `done` is
        told None when it is safe. True if it is in the log by now."""
        runtime = self._runtime
        if runtime is None:
            done(self.failure or _still_loading())
            return False
        placed = False

        def write() -> int:
            nonlocal placed
            appended = self.replica.append_marker(
                end.producer_id,
                end.producer_epoch,
                committed=end.committed,
                coordinator_epoch=end.coordinator_epoch,
                now_ms=self._clock.now_ms(),
                transaction_version=end.transaction_version,
            )
            placed = True
            self._see_to_flush()
            return appended.last_offset + 1

        self._answer(runtime.end_transaction(self._wait(done), write, end.producer_id, end.committed))
        return placed

    def _wait(self, done: Done) -> int:
        waiter = self._last_waiter = self._last_waiter + 1
        self._waiting[waiter] = done
        return waiter

    def apply(self, outcomes: Callable[[S, int], Iterable[Outcome[Any, Rec]]]) -> None:
        """Make outcomes true that nobody waits for, each before the next is asked for."""
        runtime = self._runtime
        if runtime is None:
            return
        for outcome in outcomes(self.shard, self._clock.now_ms()):
            self._answer(runtime.run(NOBODY, partial(_same, outcome), monotonic_ms=self._clock.monotonic_ms()))
        self._arm()

    def on_watermark(self) -> None:
        if self._runtime is not None:
            self._answer(self._runtime.commit(self.replica.high_watermark))

    def fail(self, error: KafkaError) -> None:
        self.failure = self.failure or error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._runtime is not None:
            self._answer(self._runtime.fail(error))

    def _append(self, records: Sequence[Rec], producer: Producer | None) -> int:
        now_ms = self._clock.now_ms()
        payload = self._records.encode(records)
        if producer is None:
            batch = batch_of(payload, len(records), now_ms)
        else:
            batch = batch_of(
                payload,
                len(records),
                now_ms,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                attributes=TRANSACTIONAL,
            )
        # Prepared: these are our own records, all with keys, in the codec they should have.
        appended = self.replica.append(
            batch,
            acks=ACKS_ALL,
            now_ms=now_ms,
            prepared=True,
            from_coordinator=producer is not None,
            verification=self._verification,
        )
        self._see_to_flush()
        return appended.last_offset + 1

    def _see_to_flush(self) -> None:
        if not self.replica.config.flush_on_ack:
            return
        self._unhurried = self._patient
        if self._patient:
            self._flusher.mark_lazily(self.replica)
        else:
            self._flusher.mark(self.replica)

    def _answer(self, released: list[Released]) -> None:
        for waiter, answer in released:
            if waiter == EFFECT:
                self._on_effect(self, answer)
                continue
            done = self._waiting.pop(waiter, None)
            if done is not None:
                done(answer)

    # -- timers -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One loop timer for the earliest deadline. It may ring early, when deadlines moved on: that costs one look."""
        deadline = self._runtime.next_deadline_ms if self._runtime is not None else None
        if deadline is None or (self._timer is not None and self._timer_ms <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline
        delay = max(deadline - self._clock.monotonic_ms(), 0) / 1000
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        runtime = self._runtime
        if runtime is not None and runtime.failure is None:
            self._answer(runtime.expire(now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms()))
            self._arm()


def _still_loading() -> KafkaError:
    return KafkaError("the coordinator is still loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _same(outcome: Outcome[Any, Rec]) -> Outcome[Any, Rec]:
    return outcome
