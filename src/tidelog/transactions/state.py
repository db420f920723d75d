"""In which states a transactional id can be, and the table of how it gets from one to another."""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from tidelog.errors import ErrorCode, KafkaError


class State(Enum):
    """Kafka's words, as DescribeTransactions sends them, with the number that is written to the log."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    """Forgotten. In the log this is a record without a value."""
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"
    """Passed through on the way to PrepareAbort, never written: the epoch is raised, its owner is not asked."""

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    @property
    def is_prepared(self) -> bool:
        """Decided, and not all partitions know yet."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_committed(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_running(self) -> bool:
        return self in (State.ONGOING, State.PREPARE_EPOCH_FENCE) or self.is_prepared


class Event(Enum):
    INITIALISED = auto()  # InitProducerId
    ADDED = auto()  # partitions, or a group's offsets
    COMMITTED = auto()  # EndTxn
    ABORTED = auto()
    FENCED = auto()  # the transaction ran out of time, or another producer took over
    MARKED = auto()  # every partition has its marker
    EXPIRED = auto()  # unused for too long


_AT_REST: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

NEXT: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        **{(state, Event.INITIALISED): State.EMPTY for state in _AT_REST},
        **{(state, Event.ADDED): State.ONGOING for state in (*_AT_REST, State.ONGOING)},
        (State.ONGOING, Event.COMMITTED): State.PREPARE_COMMIT,
        (State.ONGOING, Event.ABORTED): State.PREPARE_ABORT,
        # A transaction nothing was added to. Only the second protocol ends it with a request.
        **{(state, Event.ABORTED): State.PREPARE_ABORT for state in _AT_REST},
        (State.ONGOING, Event.FENCED): State.PREPARE_EPOCH_FENCE,
        (State.PREPARE_EPOCH_FENCE, Event.ABORTED): State.PREPARE_ABORT,
        (State.PREPARE_COMMIT, Event.MARKED): State.COMPLETE_COMMIT,
        (State.PREPARE_ABORT, Event.MARKED): State.COMPLETE_ABORT,
        **{(state, Event.EXPIRED): State.DEAD for state in _AT_REST},
    }
)

BY_NUMBER: Final[Mapping[int, State]] = MappingProxyType({state.number: state for state in State})
BY_LABEL: Final[Mapping[str, State]] = MappingProxyType({state.label: state for state in State})


class InvalidTransactionState(KafkaError):
    code = ErrorCode.INVALID_TXN_STATE

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"a transaction in state {state.label} cannot be {event.name.lower()}")


def after(state: State, event: Event) -> State:
    try:
        return NEXT[state, event]
    except KeyError:
        raise InvalidTransactionState(state, event) from None
