"""The runtime: what happens in which order, who is answered when, and what a failing log leaves behind."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.coordination import (
    NOBODY,
    Completion,
    Outcome,
    Producer,
    Runtime,
    Timer,
    TimerKey,
    Timers,
    coordinator_code,
)
from tidelog.errors import ErrorCode, KafkaError, StorageOffline

NO_ROOM = KafkaError("no room", ErrorCode.MESSAGE_TOO_LARGE)


class Tally:
    """A shard that counts: records add up, everything that happens to it is noted."""

    def __init__(self) -> None:
        self.total = 0
        self.notes: list[str] = []

    def replay(self, record: int, offset: int, producer_id: int = -1) -> None:
        self.total += record
        self.notes.append(f"replay {record} at {offset} by {producer_id}")

    def replay_batch(self, records: Sequence[int], first_offset: int, producer_id: int) -> None:
        for offset, record in enumerate(records, first_offset):
            self.replay(record, offset, producer_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.notes.append(f"marker {producer_id} {committed}")

    def remember(self, item: Any) -> None:
        self.notes.append(f"remember {item}")

    def on_loaded(self, now_ms: int) -> Outcome[None, int]:
        return Outcome(timers=(Timer(("tick",), 100),))

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, int]:
        self.notes.append(f"{key[0]} at {now_ms}")
        return Outcome(records=(1000,), completions=(Completion(5, "ticked"),))


class Log:
    def __init__(self) -> None:
        self.records: list[tuple[int, Producer | None]] = []
        self.refusal: KafkaError | None = None

    def append(self, records: Sequence[int], producer: Producer | None) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.records += [(record, producer) for record in records]
        return len(self.records)


@pytest.fixture
def shard() -> Tally:
    return Tally()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def runtime(shard: Tally, log: Log) -> Runtime[int]:
    return Runtime(shard, log.append, end_offset=0, committed_offset=0)


def run(runtime: Runtime[int], waiter: int, outcome: Outcome[Any, int]) -> list[tuple[int, Any]]:
    return [tuple(released) for released in runtime.run(waiter, lambda: outcome, monotonic_ms=0)]


def test_append_then_replay_then_remember(runtime: Runtime[int], shard: Tally, log: Log) -> None:
    run(runtime, 1, Outcome("done", records=(3, 4), memory=("x",), producer=Producer(9, 0)))
    assert shard.notes == ["replay 3 at 0 by 9", "replay 4 at 1 by 9", "remember x"]
    assert log.records == [(3, Producer(9, 0)), (4, Producer(9, 0))]


def test_answers_wait_for_the_watermark_in_order(runtime: Runtime[int], shard: Tally) -> None:
    assert run(runtime, 1, Outcome("one", records=(1,))) == []
    assert run(runtime, 2, Outcome("reads")) == [], "it has seen a record that could still be lost"
    assert run(runtime, 3, Outcome("three", records=(1, 1))) == []
    assert shard.total == 3, "but whoever decides next sees everything"
    assert runtime.commit(1) == [(1, "one"), (2, "reads")]
    assert runtime.commit(2) == []
    assert runtime.commit(3) == [(3, "three")]
    assert run(runtime, 4, Outcome("four")) == [(4, "four")]


def test_deferred_until_somebody_completes_it(runtime: Runtime[int]) -> None:
    assert run(runtime, 1, Outcome()) == []
    assert runtime.unanswered == 1
    assert run(runtime, 2, Outcome("two", completions=(Completion(1, "one"),))) == [(2, "two"), (1, "one")]
    assert run(runtime, 3, Outcome("three", completions=(Completion(1, "again"),))) == [(3, "three")]
    assert run(runtime, 4, Outcome(completions=(Completion(4, "own"),))) == [(4, "own")]


def test_refused_append_changes_nothing(runtime: Runtime[int], shard: Tally, log: Log) -> None:
    run(runtime, 1, Outcome())
    log.refusal = NO_ROOM
    outcome = Outcome("no", records=(1,), timers=(Timer(("a",), 1),), memory=("x",), completions=(Completion(1, "no"),))
    assert run(runtime, 2, outcome) == [(2, NO_ROOM)]
    assert shard.notes == []
    assert runtime.next_deadline_ms is None
    assert runtime.unanswered == 1
    log.refusal = None
    assert run(runtime, 3, Outcome("yes", records=(1,))) == []
    assert runtime.commit(1) == [(3, "yes")]


def test_error_of_a_decision_is_its_answer_and_keeps_its_turn(runtime: Runtime[int]) -> None:
    def refuse() -> Outcome[Any, int]:
        raise NO_ROOM

    run(runtime, 1, Outcome("one", records=(1,)))
    assert runtime.run(2, refuse, monotonic_ms=0) == []
    assert runtime.commit(1) == [(1, "one"), (2, NO_ROOM)]


def test_timer_runs_once_and_completes_others(runtime: Runtime[int], shard: Tally) -> None:
    runtime.loaded(now_ms=0, monotonic_ms=0)
    run(runtime, 5, Outcome())
    assert runtime.next_deadline_ms == 100
    assert runtime.expire(now_ms=7_099, monotonic_ms=99) == []
    assert shard.notes == []
    assert runtime.expire(now_ms=7_100, monotonic_ms=100) == []
    assert shard.notes == ["tick at 7100", "replay 1000 at 0 by -1"]
    assert runtime.commit(1) == [(5, "ticked")]
    assert runtime.next_deadline_ms is None


def test_failure_tells_everybody_and_ends_the_runtime(runtime: Runtime[int], shard: Tally) -> None:
    runtime.loaded(now_ms=0, monotonic_ms=0)
    run(runtime, 1, Outcome("one", records=(1,)))
    run(runtime, 2, Outcome())
    gone = StorageOffline("the disk is gone")
    assert runtime.fail(gone) == [(1, gone), (2, gone)]
    assert runtime.commit(1) == []
    assert run(runtime, 3, Outcome("three", records=(1,))) == [(3, gone)]
    assert run(runtime, NOBODY, Outcome(records=(1,))) == []
    assert runtime.expire(now_ms=9_999, monotonic_ms=9_999) == []
    assert shard.total == 1


def test_timers_that_move_and_go() -> None:
    timers = Timers()
    for name, after_ms in (("a", 10), ("b", 20), ("c", 30)):
        timers.set(Timer((name,), after_ms), 0)
    timers.set(Timer(("a",), 10), 15)
    timers.set(Timer(("c",), 1), 15)
    timers.set(Timer(("b",), None), 15)
    timers.set(Timer(("never",), None), 15)
    assert timers.next_deadline_ms == 16
    assert timers.due(24) == [("c",)]
    assert timers.due(25) == [("a",)]
    assert timers.due(1_000) == []
    assert len(timers) == 0


def test_timers_of_a_busy_day_take_the_room_of_those_that_are_set() -> None:
    timers = Timers()
    for turn in range(10_000):
        timers.set(Timer((f"m{turn}",), 1_000_000), turn)
        timers.set(Timer((f"m{turn}",), None), turn)
        timers.set(Timer(("alive",), 1_000_000), turn)
    assert len(timers) == 1
    assert len(timers._heap) < 200


def test_errors_of_the_log_in_a_coordinators_words() -> None:
    assert coordinator_code(StorageOffline("gone")) is ErrorCode.NOT_COORDINATOR
    assert coordinator_code(NO_ROOM) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator_code(KafkaError("", ErrorCode.NOT_ENOUGH_REPLICAS)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator_code(KafkaError("", ErrorCode.FENCED_MEMBER_EPOCH)) is ErrorCode.FENCED_MEMBER_EPOCH
