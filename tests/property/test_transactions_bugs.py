"""A checker counts only once it has caught a bug: each of these is a line that somebody could have forgotten, and the
lives of `test_transactions_model` find it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import txn_machine  # noqa: F401  # where the disk and its helpers are found
from txn_world_whole import run

from tidelog.broker.coordinators.markers import MarkerWriter
from tidelog.broker.coordinators.transactions import TransactionRoom
from tidelog.coordination import Outcome, Released, Runtime
from tidelog.errors import ErrorCode
from tidelog.groups.offsets import Offsets
from tidelog.ids import NO_PRODUCER_ID
from tidelog.storage.log import Log
from tidelog.storage.open_transactions import OpenTransactions
from tidelog.storage.producer_state import ProducerStates
from tidelog.transactions import ending, shard
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import State

SEEDS = 500
SECONDS = 5.0

Plant = pytest.MonkeyPatch


def a_write_is_not_verified(plant: Plant) -> None:
    """The log lets everybody open a transaction, as it was before KIP-890."""
    plant.setattr(ProducerStates, "needs_verification", lambda self, header: False)
    plant.setattr(ProducerStates, "check_transactional", lambda self, header, verification: None)


def an_end_is_not_asked_for_its_epoch(plant: Plant) -> None:
    honest = shard.end

    def end(transaction: Any, memory: Any, request: Any, *rest: Any) -> Any:
        if transaction is not None and transaction.state is State.ONGOING:
            request = msgspec.structs.replace(request, producer_epoch=transaction.producer_epoch)
        return honest(transaction, memory, request, *rest)

    plant.setattr(shard, "end", end)


def a_delayed_end_of_the_first_protocol_counts(plant: Plant) -> None:
    plant.setattr(ending, "is_delayed", lambda memory, context: False)


def a_transaction_is_complete_before_its_markers_are_safe(plant: Plant) -> None:
    honest = MarkerWriter._append
    plant.setattr(MarkerWriter, "_append", lambda self, end, partition, *_: honest(self, end, partition) and [])


def the_last_stable_offset_does_not_wait_for_the_marker_to_be_safe(plant: Plant) -> None:
    plant.setattr(
        OpenTransactions,
        "first_unstable_offset",
        lambda self, high_watermark: next(iter(self.open.values()), None),
    )
    plant.setattr(
        Log,
        "last_stable_offset",
        lambda self, high_watermark: self.producers.transactions.first_unstable_offset(0) or self.end_offset,
    )


def offsets_count_before_the_marker(plant: Plant) -> None:
    honest = Offsets.replay
    plant.setattr(
        Offsets,
        "replay",
        lambda self, key, value, offset, producer_id=NO_PRODUCER_ID: honest(self, key, value, offset, NO_PRODUCER_ID),
    )


def offsets_of_an_aborted_transaction_count(plant: Plant) -> None:
    honest = Offsets.replay_marker
    plant.setattr(Offsets, "replay_marker", lambda self, producer_id, committed: honest(self, producer_id, True))


def answers_do_not_wait_for_the_log(plant: Plant) -> None:
    def hold(self: Runtime[Any], waiter: int, answer: Any) -> None:
        self._held.append((0, Released(waiter, answer)))

    plant.setattr(Runtime, "_hold", hold)


def a_restart_forgets_markers(plant: Plant) -> None:
    honest = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now_ms: int) -> Any:
        outcome = honest(self, now_ms)
        return type(outcome)(timers=outcome.timers)

    plant.setattr(TransactionShard, "on_loaded", on_loaded)


def a_partition_that_is_not_open_yet_needs_no_marker(plant: Plant) -> None:
    plant.setattr(
        TransactionRoom,
        "_is_over",
        lambda self, partition, error: (
            error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)
        ),
    )


def nobody_tells_readers_what_was_aborted(plant: Plant) -> None:
    plant.setattr(Log, "aborted_in", lambda self, fetch_offset, records: [])


def a_retry_is_written_again(plant: Plant) -> None:
    honest = ProducerStates.check

    def check(self: ProducerStates, *batch: int) -> None:
        honest(self, *batch)

    plant.setattr(ProducerStates, "check", check)


def nothing_times_out(plant: Plant) -> None:
    plant.setattr(TransactionShard, "on_timer", lambda self, key, now_ms: Outcome())


def a_restart_forgets_open_transactions(plant: Plant) -> None:
    plant.setattr(OpenTransactions, "load", lambda self, first_offsets: self.open.clear())


def a_restart_takes_the_next_transaction_for_the_last(plant: Plant) -> None:
    plant.setattr(TransactionRoom, "_begun_next", lambda self, markers, partition: None)


def what_was_open_at_a_restart_is_not_asked_for_again(plant: Plant) -> None:
    plant.setattr(ProducerStates, "doubtful", property(lambda self: set(), lambda self, _: None), raising=False)


def a_restart_forgets_the_next_transaction(plant: Plant) -> None:
    honest = TransactionShard.markers_written
    plant.setattr(
        TransactionShard, "markers_written", lambda self, markers, now_ms, ahead: honest(self, markers, now_ms)
    )


BUGS: dict[Callable[[Plant], None], int] = {
    a_write_is_not_verified: 0,
    an_end_is_not_asked_for_its_epoch: 60,
    a_delayed_end_of_the_first_protocol_counts: 39,
    a_transaction_is_complete_before_its_markers_are_safe: 1548,
    the_last_stable_offset_does_not_wait_for_the_marker_to_be_safe: 0,
    offsets_count_before_the_marker: 0,
    offsets_of_an_aborted_transaction_count: 0,
    answers_do_not_wait_for_the_log: 16,
    a_restart_forgets_markers: 11,
    a_partition_that_is_not_open_yet_needs_no_marker: 120,
    nobody_tells_readers_what_was_aborted: 0,
    a_retry_is_written_again: 35,
    nothing_times_out: 0,
    a_restart_forgets_open_transactions: 3,
    a_restart_takes_the_next_transaction_for_the_last: 53,
    a_restart_forgets_the_next_transaction: 53,
    what_was_open_at_a_restart_is_not_asked_for_again: 736,
}
"""With the seed to begin with: one that found it, unless the lives have changed since."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_planted_bugs_are_found(bug: Callable[[Plant], None], monkeypatch: Plant) -> None:
    bug(monkeypatch)
    for seed in range(BUGS[bug], BUGS[bug] + SEEDS):
        try:
            run(seed, seconds=SECONDS)
        except Exception:
            return
    pytest.fail("nobody noticed")
