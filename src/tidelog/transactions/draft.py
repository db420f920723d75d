"""Collects what a request, timer or report changes, so that several decisions can follow each other in one outcome."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from tidelog.coordination import Completion, Outcome, Timer, TimerKey
from tidelog.transactions.context import Context, Markers, Memory, Parked, Verdict
from tidelog.transactions.records import TransactionRecord
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Transaction
from tidelog.wire.schema import Message

TransactionOutcome = Outcome[Any, TransactionRecord]

TIMEOUT: Final = "timeout"
PARKED: Final = "parked"

PARKED_MS: Final = 250
"""For which a request waits for markers before its client is asked to come back. Clients wait 20 ms and more between
two attempts, markers take a few: waiting is what makes transactions that follow each other fast."""

PARKED_MAX: Final = 8
"""Requests of one transactional id that wait. A producer has one under way, and brokers one per partition leader."""

_NO_MEMORY: Final = Memory()


class Remember(NamedTuple):
    """For `TransactionShard.remember`. None forgets."""

    transactional_id: str
    memory: Memory | None


class Draft:
    def __init__(
        self, transactions: Mapping[str, Transaction], memories: Mapping[str, Memory], coordinator_epoch: int
    ) -> None:
        self._transactions = transactions
        self._memories = memories
        self._coordinator_epoch = coordinator_epoch
        self._changed: dict[str, Transaction] = {}
        self._remembered: dict[str, Memory] = {}
        self._timers: dict[TimerKey, int | None] = {}
        self._effects: list[Markers] = []
        self._completions: list[Completion] = []

    # -- how things stand ---------------------------------------------------------------------------------------------

    def transaction(self, transactional_id: str | None) -> Transaction | None:
        if transactional_id is None:
            return None
        return self._changed.get(transactional_id) or self._transactions.get(transactional_id)

    def memory(self, transactional_id: str | None) -> Memory:
        if transactional_id is None:
            return _NO_MEMORY
        return self._remembered.get(transactional_id) or self._memories.get(transactional_id, _NO_MEMORY)

    # -- what is to change --------------------------------------------------------------------------------------------

    def take(self, transactional_id: str, verdict: Verdict) -> None:
        """Everything of a verdict but its answer."""
        for step in verdict.steps:
            self._step(step)
        if verdict.memory is not None:
            self._remembered[transactional_id] = verdict.memory

    def _step(self, after: Transaction) -> None:
        transactional_id = after.transactional_id
        before = self.transaction(transactional_id)
        was_open = before is not None and before.state is State.ONGOING
        is_open = after.state is State.ONGOING
        if is_open != was_open:
            self.set_timer(TIMEOUT, transactional_id, after.timeout_ms if is_open else None)
        if after.state.is_prepared and after.partitions:
            self._effects.append(markers_of(after, self._coordinator_epoch))
        self._changed[transactional_id] = after

    def set_timer(self, kind: str, transactional_id: str, after_ms: int | None) -> None:
        self._timers[kind, transactional_id] = after_ms

    def park(self, transactional_id: str, request: Message, context: Context) -> bool:
        """Keep a request until the markers are written, if there is room."""
        memory = self.memory(transactional_id)
        if context.waiter < 0 or len(memory.parked) >= PARKED_MAX:
            return False
        if not memory.parked:
            self.set_timer(PARKED, transactional_id, PARKED_MS)
        parked = (*memory.parked, Parked(request, context))
        self._remembered[transactional_id] = replace(memory, parked=parked)
        return True

    def unpark(self, transactional_id: str) -> tuple[Parked, ...]:
        memory = self.memory(transactional_id)
        if memory.parked:
            self.set_timer(PARKED, transactional_id, None)
            self._remembered[transactional_id] = replace(memory, parked=())
        return memory.parked

    def complete(self, parked: Parked, response: Message) -> None:
        self._completions.append(Completion(parked.context.waiter, response))

    def outcome(self, response: Any = None) -> TransactionOutcome:
        return Outcome(
            response,
            # They are written together, so the last word about each is all that is needed.
            records=tuple([each.record() for each in self._changed.values()]),
            timers=tuple([Timer(*each) for each in self._timers.items()]),
            completions=tuple(self._completions),
            memory=tuple(Remember(*each) for each in self._remembered.items()),
            effects=tuple(self._effects),
        )


def markers_of(transaction: Transaction, coordinator_epoch: int) -> Markers:
    return Markers(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=transaction.state.is_committed,
        coordinator_epoch=coordinator_epoch,
        partitions=tuple(sorted(transaction.partitions)),
        transaction_version=transaction.client_version,
        ends=transaction.ends,
    )
