"""Random lives of transactions: producers of both protocols come back, time out, are replaced, lose answers and send
late; coordinators are killed; logs refuse; markers crawl. `txn_world` says what must hold all the while.

A failing run names its seed; `run(seed)` repeats it. A checker counts only once it has caught a bug: the second half
plants some, each a line that somebody could have forgotten, and shows that the same lives find them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "transactions"))

from txn_world import World

from tidelog.coordination import EFFECT, Outcome, Runtime
from tidelog.errors import ErrorCode, InvariantViolated, KafkaError
from tidelog.transactions import ending, shard
from tidelog.transactions.draft import Draft
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Transaction

SEEDS = 2000
STEPS = 250
SEEDS_FOR_A_BUG = 600


KNOWN = ((13096, 600),)
"""Seeds and steps that found something once."""


def run(seed: int, steps: int = STEPS) -> None:
    world = World(seed)
    try:
        for _ in range(steps):
            world.step()
        world.heal()
        world.check_new_life()
    except BaseException as error:
        error.add_note(f"run({seed}, {steps}) repeats this")
        raise


@pytest.mark.parametrize("part", range(4))
def test_random_lives(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        run(seed)


@pytest.mark.parametrize(("seed", "steps"), KNOWN)
def test_lives_that_went_wrong_once(seed: int, steps: int) -> None:
    run(seed, steps)


# Planted bugs ---------------------------------------------------------------------------------------------------------

Plant = pytest.MonkeyPatch


def a_delayed_end_of_the_first_protocol_counts(plant: Plant) -> None:
    plant.setattr(ending, "is_delayed", lambda memory, context: False)


def an_end_is_not_asked_for_its_epoch(plant: Plant) -> None:
    honest = shard.end

    def end(transaction: Any, memory: Any, request: Any, *rest: Any) -> Any:
        if transaction is not None and transaction.state is State.ONGOING:
            request = msgspec.structs.replace(request, producer_epoch=transaction.producer_epoch)
        return honest(transaction, memory, request, *rest)

    plant.setattr(shard, "end", end)


def an_addition_is_not_asked_for_its_epoch(plant: Plant) -> None:
    honest = shard.add

    def add(transaction: Any, memory: Any, asked: Any, *rest: Any, **more: Any) -> Any:
        return honest(transaction, memory, asked if transaction is None else transaction.identity, *rest, **more)

    plant.setattr(shard, "add", add)


def the_second_protocol_keeps_its_epoch(plant: Plant) -> None:
    honest = Transaction.ended

    def ended(self: Transaction, *arguments: Any) -> Transaction:
        return msgspec.structs.replace(honest(self, *arguments), producer_epoch=self.producer_epoch)

    plant.setattr(Transaction, "ended", ended)


def a_timeout_keeps_the_epoch(plant: Plant) -> None:
    honest = Transaction.fenced

    def fenced(self: Transaction, now_ms: int, *, may_go_on: bool) -> Transaction:
        return msgspec.structs.replace(honest(self, now_ms, may_go_on=may_go_on), producer_epoch=self.producer_epoch)

    plant.setattr(Transaction, "fenced", fenced)


def nothing_times_out(plant: Plant) -> None:
    plant.setattr(TransactionShard, "on_timer", lambda self, key, now_ms: Outcome())


def markers_are_handed_out_before_the_decision_is_committed(plant: Plant) -> None:
    honest = Runtime._hold

    def hold(self: Runtime[Any], waiter: int, answer: Any) -> None:
        honest(self, waiter, answer)
        if waiter == EFFECT:
            self._held.appendleft((0, self._held.pop()[1]))

    plant.setattr(Runtime, "_hold", hold)


def markers_are_forgotten_by_a_restart(plant: Plant) -> None:
    honest = TransactionShard.on_loaded
    plant.setattr(
        TransactionShard, "on_loaded", lambda self, now_ms: msgspec.structs.replace(honest(self, now_ms), effects=())
    )


def a_restart_aborts_what_was_decided(plant: Plant) -> None:
    honest = TransactionShard.replay

    def replay(self: TransactionShard, record: Any, offset: int, producer_id: int = -1) -> None:
        honest(self, record, offset, producer_id)
        found = self.find(record.transactional_id)
        if found is not None and found.state is State.PREPARE_COMMIT and not self.coordinator_epoch % 2:
            self._transactions[found.transactional_id] = msgspec.structs.replace(found, state=State.PREPARE_ABORT)

    plant.setattr(TransactionShard, "replay", replay)


def open_transactions_have_no_timer_after_a_restart(plant: Plant) -> None:
    honest = TransactionShard.on_loaded
    plant.setattr(
        TransactionShard, "on_loaded", lambda self, now_ms: msgspec.structs.replace(honest(self, now_ms), timers=())
    )


def the_next_transaction_does_not_wait_for_markers(plant: Plant) -> None:
    honest = shard.add

    def add(transaction: Any, *rest: Any, **more: Any) -> Any:
        if transaction is not None and transaction.state.is_prepared:
            transaction = transaction.completed(transaction.update_ms)
        return honest(transaction, *rest, **more)

    plant.setattr(shard, "add", add)


def a_write_is_not_verified(plant: Plant) -> None:
    plant.setattr(
        shard,
        "verify",
        lambda transaction, ahead, asked, partitions, version: dict.fromkeys(partitions, ErrorCode.NONE),
    )


def a_new_producer_leaves_the_old_transaction_open(plant: Plant) -> None:
    honest = shard.initialise

    def initialise(transaction: Any, *rest: Any) -> Any:
        if transaction is not None and transaction.state is State.ONGOING:
            transaction = msgspec.structs.replace(transaction, state=State.COMPLETE_ABORT)
        return honest(transaction, *rest)

    plant.setattr(shard, "initialise", initialise)


def a_partition_gets_no_marker(plant: Plant) -> None:
    honest = Draft._step

    def step(self: Draft, after: Transaction) -> None:
        honest(self, after)
        self._effects = [each._replace(partitions=each.partitions[:1]) for each in self._effects]

    plant.setattr(Draft, "_step", step)


BUGS: tuple[Callable[[Plant], None], ...] = (
    a_delayed_end_of_the_first_protocol_counts,
    an_end_is_not_asked_for_its_epoch,
    an_addition_is_not_asked_for_its_epoch,
    the_second_protocol_keeps_its_epoch,
    a_timeout_keeps_the_epoch,
    nothing_times_out,
    markers_are_handed_out_before_the_decision_is_committed,
    markers_are_forgotten_by_a_restart,
    a_restart_aborts_what_was_decided,
    open_transactions_have_no_timer_after_a_restart,
    the_next_transaction_does_not_wait_for_markers,
    a_write_is_not_verified,
    a_new_producer_leaves_the_old_transaction_open,
    a_partition_gets_no_marker,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_planted_bugs_are_found(bug: Callable[[Plant], None], monkeypatch: Plant) -> None:
    bug(monkeypatch)
    for seed in range(SEEDS_FOR_A_BUG):
        try:
            run(seed)
        except (AssertionError, InvariantViolated, KafkaError):
            return
    pytest.fail("nobody noticed")
