"""Bugs in what producers and groups are promised: for `mutations`, with the clients that suffer from each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any
from unittest.mock import patch

import msgspec

from tidelog.broker.coordinators.markers import MarkerWriter
from tidelog.broker.coordinators.shard_host import ShardHost
from tidelog.cluster.refusals import Refusals
from tidelog.coordination import EFFECT, Outcome, Released, Runtime
from tidelog.errors import ErrorCode
from tidelog.groups import consumer_reconcile
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.storage import log as log_module
from tidelog.storage.log import Log
from tidelog.storage.producer_state import ProducerStates
from tidelog.transactions import shard
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import State
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatResponse
from tidelog.wire.messages.offsets import OffsetCommitResponse
from tidelog.wire.messages.transactions import EndTxnResponse

Plant = Callable[[], Any]

RETRIES = {"retries": True}
TRANSACTIONS = {"transactions": True, "partitions": 2}
GROUPS = {"groups": True, "partitions": 3}


@contextmanager
def followers_forget_producers() -> Iterator[None]:
    """They copy batches and not who wrote them: who retries after a failover writes twice."""
    with patch.object(log_module, "replay_batch", lambda *_: None):
        yield


@contextmanager
def retries_are_new_batches() -> Iterator[None]:
    with patch.object(ProducerStates, "check", lambda *_: None):
        yield


@contextmanager
def what_follows_a_refused_batch_is_out_of_order() -> Iterator[None]:
    """As in Kafka: then librdkafka begins a new epoch, and may write twice what is in the log already."""
    with patch.object(Refusals, "check", lambda *_: None):
        yield


@contextmanager
def coordinators_answer_before_it_is_safe() -> Iterator[None]:
    """A commit is told that the next coordinator may never hear of."""

    def hold(self: Runtime[Any], waiter: int, answer: Any) -> None:
        self._held.append((0, Released(waiter, answer)))

    with patch.object(Runtime, "_hold", hold):
        yield


def _not_held(kind: Callable[[int, Any], bool]) -> Any:
    """All is held back as it should be, but for what is of this kind."""
    hold = Runtime._hold

    def hasty(self: Runtime[Any], waiter: int, answer: Any) -> None:
        if kind(waiter, answer):
            self._held.appendleft((0, Released(waiter, answer)))
        else:
            hold(self, waiter, answer)

    return patch.object(Runtime, "_hold", hasty)


@contextmanager
def ends_are_told_before_they_are_safe() -> Iterator[None]:
    """The next coordinator has never heard of it, and lets the transaction time out."""
    with _not_held(lambda waiter, answer: isinstance(answer, EndTxnResponse)):
        yield


@contextmanager
def markers_are_written_before_the_decision_is_safe() -> Iterator[None]:
    """The next coordinator decides anew, and some partitions have their marker already."""
    with _not_held(lambda waiter, answer: waiter == EFFECT):
        yield


@contextmanager
def delayed_ends_count() -> Iterator[None]:
    """Whatever their epoch: one of the last transaction ends the next."""
    honest = shard.end

    def end(transaction: Any, memory: Any, request: Any, *rest: Any) -> Any:
        if transaction is not None and transaction.state is State.ONGOING:
            request = msgspec.structs.replace(request, producer_epoch=transaction.producer_epoch)
        return honest(transaction, memory, request, *rest)

    with patch.object(shard, "end", end):
        yield


@contextmanager
def new_coordinators_write_no_markers() -> Iterator[None]:
    """What was decided before a failover is never carried out: readers wait for ever."""
    on_loaded = TransactionShard.on_loaded

    def forgetful(self: TransactionShard, now_ms: int) -> Any:
        return Outcome(timers=on_loaded(self, now_ms).timers)

    with patch.object(TransactionShard, "on_loaded", forgetful):
        yield


@contextmanager
def new_coordinators_set_no_timers() -> Iterator[None]:
    on_loaded = TransactionShard.on_loaded

    def forgetful(self: TransactionShard, now_ms: int) -> Any:
        return Outcome(effects=on_loaded(self, now_ms).effects)

    with patch.object(TransactionShard, "on_loaded", forgetful):
        yield


@contextmanager
def transactions_complete_before_their_markers_are_safe() -> Iterator[None]:
    """A leader that has written a marker and is replaced before anybody copied it."""
    honest = MarkerWriter._append
    with patch.object(MarkerWriter, "_append", lambda self, end, partition, *_: honest(self, end, partition) and []):
        yield


@contextmanager
def followers_forget_what_was_aborted() -> Iterator[None]:
    """They copy markers and not what these end: who reads there, or after a failover, sees what was aborted."""
    append = Log.append_as_follower

    def careless(self: Log, *given: Any, **options: Any) -> int:
        with patch.object(ProducerStates, "aborted_by", lambda *_: None):
            return append(self, *given, **options)

    with patch.object(Log, "append_as_follower", careless):
        yield


@contextmanager
def writes_are_not_verified() -> Iterator[None]:
    """A write that comes late opens a transaction that nobody will end."""
    with (
        patch.object(ProducerStates, "needs_verification", lambda *_: False),
        patch.object(ProducerStates, "check_transactional", lambda *_: None),
    ):
        yield


@contextmanager
def commits_are_told_before_they_are_safe() -> Iterator[None]:
    """The next coordinator has never heard of it, and the group reads again what was done."""
    with _not_held(lambda waiter, answer: isinstance(answer, OffsetCommitResponse)):
        yield


@contextmanager
def assignments_are_told_before_they_are_safe() -> Iterator[None]:
    """The next coordinator decides anew, and gives the same to somebody else."""
    with _not_held(lambda waiter, answer: isinstance(answer, ConsumerGroupHeartbeatResponse)):
        yield


@contextmanager
def members_get_what_others_still_have() -> Iterator[None]:
    step = consumer_reconcile._step
    with patch.object(consumer_reconcile, "_step", lambda *given: step(*given[:-1], lambda slot: None)):
        yield


@contextmanager
def anybody_commits() -> Iterator[None]:
    """One who was silent for so long that others went on in its place takes them back."""
    with patch.object(ConsumerGroup, "check_commit", lambda *given, **options: ErrorCode.NONE):
        yield


@contextmanager
def timers_run_by_the_wall_clock() -> Iterator[None]:
    """One that jumps back by days lets a transaction stay open for days."""
    init = ShardHost.__init__

    def wrong(self: ShardHost[Any, Any], *given: Any) -> None:
        init(self, *given)
        clock = copy(self._clock)
        clock.monotonic_ms = clock.now_ms  # type: ignore[method-assign]
        self._clock = clock

    with patch.object(ShardHost, "__init__", wrong):
        yield


BUGS: dict[Plant, dict[str, Any]] = {
    followers_forget_producers: RETRIES,
    retries_are_new_batches: RETRIES,
    what_follows_a_refused_batch_is_out_of_order: RETRIES,
    coordinators_answer_before_it_is_safe: TRANSACTIONS,
    new_coordinators_write_no_markers: TRANSACTIONS,
    new_coordinators_set_no_timers: TRANSACTIONS,
    transactions_complete_before_their_markers_are_safe: TRANSACTIONS,
    ends_are_told_before_they_are_safe: TRANSACTIONS,
    markers_are_written_before_the_decision_is_safe: TRANSACTIONS,
    delayed_ends_count: TRANSACTIONS,
    followers_forget_what_was_aborted: TRANSACTIONS,
    writes_are_not_verified: TRANSACTIONS,
    timers_run_by_the_wall_clock: {**TRANSACTIONS, "clocks": True},
    commits_are_told_before_they_are_safe: GROUPS,
    assignments_are_told_before_they_are_safe: GROUPS,
    members_get_what_others_still_have: GROUPS,
    anybody_commits: GROUPS,
}
"""With how to run the worlds that show it."""
