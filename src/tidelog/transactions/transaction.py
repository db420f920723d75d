"""One transactional id as a value: whose it is, what it is doing, and what each event makes of it."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.errors import MalformedMessage
from tidelog.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.transactions.records import TransactionLogValue, TransactionPartitions, TransactionRecord
from tidelog.transactions.state import BY_NUMBER, Event, State, after

FIRST_PROTOCOL: Final = 0
SECOND_PROTOCOL: Final = 2
"""`transaction.version` from which every transaction ends with a new epoch (KIP-890)."""

SECOND_PROTOCOL_SINCE: Final = 5
"""The first EndTxn that is answered with a new epoch."""

FEW: Final = 16
"""Partitions of a transaction whose order is remembered."""

EPOCH_MAX: Final = 2**15 - 1
EPOCH_LAST: Final = EPOCH_MAX - 1
"""The last one given to a producer: one more is always left to fence it with."""


class Identity(NamedTuple):
    """As whom a producer writes. A new epoch fences everybody who has an older one."""

    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Its methods return what it becomes. They raise InvalidTransactionState for what the table does not have."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    update_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The one in use before the last step, mostly the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """The one in use after the markers, if the epochs of this one are used up."""
    client_version: int = FIRST_PROTOCOL
    """The protocol in which the current transaction is run, or the last one was ended."""
    ends: Mapping[TopicPartition, int] = {}
    """Where the logs of its partitions ended when its end was decided, if its producer may go ahead from there."""

    # -- what it says -------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> Identity:
        """Of whoever goes on when the markers are written, and was told so when they were decided."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, 0)
        return self.identity

    @property
    def ended_identity(self) -> Identity | None:
        """Who asked for the last end, so that it can ask again. None while there is none to ask for again."""
        if not (self.state.is_prepared or self.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)):
            return None
        if self.client_version < SECOND_PROTOCOL:
            return self.identity
        if self.producer_epoch == 0:
            return Identity(self.previous_producer_id, EPOCH_LAST)
        return Identity(self.producer_id, self.producer_epoch - 1)

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def initialised(self, identity: Identity, timeout_ms: int, now_ms: int) -> "Transaction":
        return self._step(
            Event.INITIALISED,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            client_version=FIRST_PROTOCOL,
        )

    def added(self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        ongoing = self.state is State.ONGOING
        return self._step(
            Event.ADDED,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if ongoing else now_ms,
            client_version=client_version,
        )

    def ended(
        self,
        event: Event,
        client_version: int,
        next_producer_id: int,
        now_ms: int,
        ends: Mapping[TopicPartition, int],
    ) -> "Transaction":
        bump = 1 if client_version >= SECOND_PROTOCOL else 0
        return self._step(
            event,
            now_ms,
            producer_epoch=self.producer_epoch + bump,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
            ends=ends,
        )

    def followed(
        self, event: Event, partitions: frozenset[TopicPartition], now_ms: int, ends: Mapping[TopicPartition, int]
    ) -> "Transaction":
        """This one is over, another was opened in those partitions, and is ended: `completed`, `added` and `ended` in
        one, for a producer that does this all day."""
        bump = 1 if self.client_version >= SECOND_PROTOCOL else 0
        opened = after(after(self.state, Event.MARKED), Event.ADDED)
        return replace(
            self,
            state=after(opened, event),
            update_ms=now_ms,
            start_ms=now_ms,
            previous_producer_id=self.producer_id,
            producer_epoch=self.producer_epoch + bump,
            partitions=partitions,
            ends=ends,
        )

    def fenced(self, now_ms: int, *, may_go_on: bool) -> "Transaction":
        """Aborted over its owner's head. `may_go_on`: an owner of the second protocol that asks for the abort as well
        is told its new epoch, since nobody else has taken over."""
        fencing = self._step(Event.FENCED, now_ms, producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX))
        may_go_on = may_go_on and self.client_version >= SECOND_PROTOCOL and not self.identity.is_exhausted
        version = SECOND_PROTOCOL if may_go_on else FIRST_PROTOCOL
        return fencing._step(Event.ABORTED, now_ms, client_version=version)

    def completed(self, now_ms: int) -> "Transaction":
        identity = self.next_identity
        return self._step(
            Event.MARKED,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            ends={},
        )

    def _step(self, event: Event, now_ms: int, **changes: Any) -> "Transaction":
        changes["previous_producer_id"] = self.producer_id
        return replace(self, state=after(self.state, event), update_ms=now_ms, **changes)

    # -- in the log ---------------------------------------------------------------------------------------------------

    def record(self) -> TransactionRecord:
        topics = _by_topic(self.partitions) if len(self.partitions) <= FEW else by_topic(self.partitions)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.number,
            transaction_partitions=None
            if self.state is State.EMPTY
            else tuple(TransactionPartitions(topic=topic, partition_ids=numbers) for topic, numbers in topics),
            transaction_last_update_timestamp_ms=self.update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
            ends=tuple(self.ends[TopicPartition(topic, number)] for topic, numbers in topics for number in numbers)
            if self.ends
            else (),
        )
        return TransactionRecord(self.transactional_id, value)

    @classmethod
    def restored(cls, transactional_id: str, value: TransactionLogValue) -> "Transaction":
        state = BY_NUMBER.get(value.transaction_status)
        if state is None:
            raise MalformedMessage(f"transaction {transactional_id} is in unknown state {value.transaction_status}")
        if state is State.PREPARE_EPOCH_FENCE:
            state = State.ONGOING  # Kafka has the number and never writes it: the abort that follows is still to come
        partitions = [
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ]
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            update_ms=value.transaction_last_update_timestamp_ms,
            state=state,
            partitions=frozenset(partitions),
            start_ms=value.transaction_start_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            client_version=value.client_transaction_version,
            ends=dict(zip(partitions, value.ends, strict=True)) if len(value.ends) == len(partitions) else {},
        )


@lru_cache(maxsize=1024)
def _by_topic(partitions: frozenset[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """Most producers write to the same partitions again and again."""
    return by_topic(partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """In order, so that the same transaction always looks the same."""
    grouped = groupby(sorted(partitions), key=lambda each: each.topic)
    return [(topic, tuple(each.partition for each in group)) for topic, group in grouped]
