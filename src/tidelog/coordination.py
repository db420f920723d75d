"""A decider whose records are in the log before it answers: what group and transaction coordinators have in common.

A *shard* holds the state of one partition of an internal topic. Its handlers only read: they return an `Outcome`, and
the `Runtime` makes it true in a fixed order, in one go, before the shard sees the next request:

    1. append the outcome's records to the log as one batch (refused: nothing happened, the request gets the error)
    2. replay each of them: the only way durable state changes, here and when a partition is loaded
    3. `remember` what the outcome wants kept in memory only (who waits for a rebalance, a group's history)
    4. set and cancel timers
    5. hold the response and the effects back until the high watermark has passed everything that is in the log by now

So the next request sees the records of the one before although they may not be on disk yet, but nobody *outside* learns
of a state that a crash could take back: all responses, also of requests that only read, wait for the log as it stood
when they were decided. They are released in the order in which they were decided.

Kafka keeps snapshots of uncommitted state to roll back to. Here the log is that snapshot: if a flush fails or
leadership is lost, `fail` answers everybody with the error, and the owner throws the shard away and loads a new one by
`replay`. State and log can not disagree, since an append that is refused changes nothing at all.

A response may also be *deferred*: the outcome has none, and a later outcome (another member's request, a timer)
completes it by the id of whoever waits.

An *effect* is work for the owner that must not begin before the decision behind it is safe: the markers of a
transaction. It is handed out once, like an answer. After a failure the shard that is loaded next hands it out again, so
an effect must bear being carried out twice.

Nothing here does I/O or reads a clock. Timers run on monotonic time, so that a jump of the wall clock evicts nobody;
handlers are given the wall clock, for what is written down.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tidelog.errors import ErrorCode, KafkaError, invariant
from tidelog.ids import NO_PRODUCER_ID

R_co = TypeVar("R_co", covariant=True)
Rec = TypeVar("Rec")
Rec_contra = TypeVar("Rec_contra", contravariant=True)

Waiter = int
"""Names one request that is to be answered, for as long as the shard is loaded."""

NOBODY: Final[Waiter] = -1
"""Who waits for the outcome of a timer."""

EFFECT: Final[Waiter] = -2
"""In place of a waiter: what is released is no answer but work for the owner of the runtime."""

RETRY_MS: Final = 1_000
"""After which a timer rings again whose outcome the log refused. It may be all that ever ends something."""

TimerKey = tuple[str, ...]
"""What a timer is for, most general word first: ("session", group, member)."""


class Timer(NamedTuple):
    """From now on `key` expires after this long; setting it again moves it. `None` cancels it."""

    key: TimerKey
    after_ms: int | None


class Completion(NamedTuple):
    """A response to somebody who was deferred earlier."""

    waiter: Waiter
    response: Any


class Producer(NamedTuple):
    """In whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Outcome(msgspec.Struct, Generic[R_co, Rec], frozen=True):
    """What should happen because of one request or timer. Without a response the request is deferred."""

    response: R_co | None = None
    records: Sequence[Rec] = ()
    timers: tuple[Timer, ...] = ()
    completions: tuple[Completion, ...] = ()
    memory: tuple[Any, ...] = ()
    """Handed to `Shard.remember`, after the records were replayed."""
    producer: Producer | None = None
    """The records are part of this producer's transaction."""
    effects: tuple[Any, ...] = ()
    """What the owner has to do once the records are committed."""


class Shard(Protocol[Rec]):
    def replay(self, record: Rec, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record of the log. With a producer id it is part of a transaction that is still open."""
        ...

    def replay_batch(self, records: Sequence[Rec], first_offset: int, producer_id: int) -> None:
        """Apply all records of an outcome, as `replay` would one after the other."""
        ...

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: what it wrote counts from now on, or never."""
        ...

    def remember(self, item: Any) -> None:
        """Apply something that is not in the log."""
        ...

    def on_loaded(self, now_ms: int) -> Outcome[None, Rec]:
        """The whole log was replayed: whose timers start now, and which effects may not have been carried out?"""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, Rec]: ...


Append = Callable[[Sequence[Rec], Producer | None], int]
"""Writes one batch and returns the log's end after it, or raises KafkaError having written nothing."""


class Released(NamedTuple):
    waiter: Waiter
    answer: Any  # a response, or the KafkaError to tell instead; for EFFECT the effect


class Runtime(Generic[Rec]):
    """Drives one loaded shard: `run` with the decision of each request, `commit` when the watermark moves, `expire`
    when `next_deadline_ms` has come. Each returns the answers that may now be sent and the effects that are due."""

    def __init__(self, shard: Shard[Rec], append: Append[Rec], *, end_offset: int, committed_offset: int) -> None:
        self.shard = shard
        self._append = append
        self._end_offset = end_offset
        self._committed_offset = committed_offset
        self._held: deque[tuple[int, Released]] = deque()
        self._deferred: set[Waiter] = set()
        self._timers = Timers()
        self.failure: KafkaError | None = None

    # -- events -------------------------------------------------------------------------------------------------------

    def loaded(self, *, now_ms: int, monotonic_ms: int) -> list[Released]:
        return self.run(NOBODY, lambda: self.shard.on_loaded(now_ms), monotonic_ms=monotonic_ms)

    def run(self, waiter: Waiter, decide: Callable[[], Outcome[Any, Rec]], *, monotonic_ms: int) -> list[Released]:
        """Let the shard decide, and make the outcome true. Its KafkaError, or the log's refusal, is the answer."""
        if self.failure is not None:
            return [] if waiter == NOBODY else [Released(waiter, self.failure)]
        try:
            outcome = decide()
            self._write(outcome)
        except KafkaError as error:
            if waiter != NOBODY:
                self._hold(waiter, error)
        else:
            self._follow_up(waiter, outcome, monotonic_ms)
        return self._release()

    def end_transaction(
        self, waiter: Waiter, write: Callable[[], int], producer_id: int, committed: bool
    ) -> list[Released]:
        """A marker goes into this shard's log: `write` appends it and returns the log's end. Answered with None."""
        if self.failure is not None:
            return [Released(waiter, self.failure)]
        try:
            self._end_offset = write()
        except KafkaError as error:
            self._hold(waiter, error)
        else:
            self.shard.replay_marker(producer_id, committed)
            self._hold(waiter, None)
        return self._release()

    def commit(self, offset: int) -> list[Released]:
        """The high watermark is at `offset` now."""
        self._committed_offset = max(self._committed_offset, offset)
        return self._release()

    def expire(self, *, now_ms: int, monotonic_ms: int) -> list[Released]:
        """Run the timers whose time has come."""
        for key in self._timers.due(monotonic_ms):
            if self.failure is not None:
                break
            try:
                outcome = self.shard.on_timer(key, now_ms)
                self._write(outcome)
            except KafkaError:
                self._timers.set(Timer(key, RETRY_MS), monotonic_ms)
            else:
                self._follow_up(NOBODY, outcome, monotonic_ms)
        return self._release()

    def fail(self, error: KafkaError) -> list[Released]:
        """The log can no longer be written, or is not ours any more. Everybody is told; this runtime is over."""
        self.failure = error
        waiters = [held.waiter for _, held in self._held if held.waiter != EFFECT] + sorted(self._deferred)
        self._held.clear()
        self._deferred.clear()
        self._timers = Timers()
        return [Released(waiter, error) for waiter in waiters]

    # -- what the owner needs to know ---------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in the log that a crash could take back."""
        return self.failure is None and self._committed_offset >= self._end_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def unanswered(self) -> int:
        return len(self._held) + len(self._deferred)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _write(self, outcome: Outcome[Any, Rec]) -> None:
        records, producer = outcome.records, outcome.producer
        if records:
            end = self._end_offset = self._append(records, producer)
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            self.shard.replay_batch(records, end - len(records), producer_id)

    def _follow_up(self, waiter: Waiter, outcome: Outcome[Any, Rec], monotonic_ms: int) -> None:
        """Everything an outcome wants once its records are in the log."""
        for item in outcome.memory:
            self.shard.remember(item)
        for timer in outcome.timers:
            self._timers.set(timer, monotonic_ms)
        if outcome.response is None and waiter != NOBODY:
            invariant(waiter not in self._deferred, f"request {waiter} is deferred twice")
            self._deferred.add(waiter)
        elif waiter != NOBODY:
            self._hold(waiter, outcome.response)
        for completion in outcome.completions:
            if completion.waiter in self._deferred:
                self._deferred.discard(completion.waiter)
                self._hold(completion.waiter, completion.response)
        for effect in outcome.effects:
            self._hold(EFFECT, effect)

    def _hold(self, waiter: Waiter, answer: Any) -> None:
        self._held.append((self._end_offset, Released(waiter, answer)))

    def _release(self) -> list[Released]:
        released = []
        while self._held and self._held[0][0] <= self._committed_offset:
            released.append(self._held.popleft()[1])
        return released


class Timers:
    """Deadlines by key. Moving one further away, which every heartbeat does, only writes a number: the heap learns of
    it when the old deadline comes up."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        self._stale = 0

    def set(self, timer: Timer, monotonic_ms: int) -> None:
        key, after_ms = timer
        old = self._deadlines.get(key)
        if after_ms is None:
            if old is not None:
                del self._deadlines[key]
                self._note_stale()
            return
        deadline = monotonic_ms + after_ms
        self._deadlines[key] = deadline
        if old is None or deadline < old:
            heappush(self._heap, (deadline, key))
            if old is not None:
                self._note_stale()

    def due(self, monotonic_ms: int) -> list[TimerKey]:
        """The keys that expired, earliest first; they are no longer set."""
        keys = []
        while self._settle() is not None and self._heap[0][0] <= monotonic_ms:
            key = heappop(self._heap)[1]
            del self._deadlines[key]
            keys.append(key)
        return keys

    @property
    def next_deadline_ms(self) -> int | None:
        return self._settle()

    def __len__(self) -> int:
        return len(self._deadlines)

    def _settle(self) -> int | None:
        """Bring the heap's top up to date; the earliest deadline."""
        heap, deadlines = self._heap, self._deadlines
        while heap:
            deadline, key = heap[0]
            actual = deadlines.get(key)
            if actual == deadline:
                return deadline
            heappop(heap)
            if actual is not None and actual > deadline:
                heappush(heap, (actual, key))
        return None

    def _note_stale(self) -> None:
        # Entries of cancelled timers would otherwise stay until their time: a group that is joined and left all day.
        self._stale += 1
        if self._stale > len(self._deadlines) + 64:
            self._heap = [(deadline, key) for key, deadline in self._deadlines.items()]
            heapify(self._heap)
            self._stale = 0


_AS_COORDINATOR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_code(error: KafkaError) -> ErrorCode:
    """An error of the log below, in words that make a coordinator's client do the right thing: retry, look for the
    coordinator again, or give up."""
    return _AS_COORDINATOR.get(error.code, error.code)
