"""What a decision is made of besides the request: who asks, the settings, and what is known but not written down."""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tidelog.coordination import NOBODY, Waiter
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.transactions.transaction import Identity, Transaction
from tidelog.wire.schema import Message

OFFSETS_TOPIC: Final = "__consumer_offsets"

NewProducerId = Callable[[], int]
"""An id no producer ever had. Raises KafkaError, to be retried, when there is none at hand."""

OffsetsPartition = Callable[[str], int]
"""In which partition of `__consumer_offsets` a group lives."""

Select = Callable[[str, Iterable[str]], Collection[str]]
"""Those names that a pattern matches as a whole. Raises KafkaError for a pattern that cannot be read."""


class Context(NamedTuple):
    """Who asks."""

    version: int  # of the request
    waiter: Waiter = NOBODY
    """By which a deferred response will be completed."""
    connection: int = 0
    """Connections are numbered as they come; 0 is one that nothing is known of. A producer uses one at a time, so what
    arrives by an older one was sent before it gave that one up."""


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's settings of the same names, in milliseconds; the defaults are Kafka's."""

    transaction_max_timeout_ms: int = 15 * 60_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000


class Parked(NamedTuple):
    """A request that came while markers were being written, to be decided when they are."""

    request: Message
    context: Context


class Memory(msgspec.Struct, frozen=True):
    """What is known about a transactional id only as long as its shard is loaded."""

    replaced: Identity | None = None
    """Whose holder was itself given the current identity, and may not have heard of it: its retry is recognised."""
    connection: int = 0
    """The newest that the owner of the current identity used, in the first protocol."""
    parked: tuple[Parked, ...] = ()
    placed: bool = False
    """The markers of the transaction that ends are in their logs, whether safe or not."""
    safe: "Markers | None" = None
    """Those that are safe, while no record says so yet."""
    ahead: frozenset[TopicPartition] = frozenset()
    """What belongs to the next transaction, that its producer has begun already. See `transactions.ahead`."""
    graced: frozenset[TopicPartition] = frozenset()
    """Where the producer may have been about to write when the shard was loaded."""


class Markers(NamedTuple):
    """An effect: to be written to every partition, and reported to `TransactionShard.markers_written` when they all
    are. A partition that no longer exists needs none. May be handed out again after a failure: what began in a
    partition at or behind its place in `ends` is the producer's next transaction then, which they do not end."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    ends: Mapping[TopicPartition, int] = MappingProxyType({})


class Verdict(NamedTuple):
    """What a request comes to."""

    code: ErrorCode = ErrorCode.NONE
    identity: Identity | None = None
    """As whom the producer goes on."""
    steps: tuple[Transaction, ...] = ()
    """What the transaction becomes, one after another."""
    memory: Memory | None = None
    """What is known from now on, if that changes."""
    waits: bool = False
    """To be decided again once the markers are written. If it cannot wait, the answer is CONCURRENT_TRANSACTIONS."""


def refused(code: ErrorCode) -> Verdict:
    return Verdict(code)


def not_the_owner(transaction: Transaction, asked: Identity) -> Verdict:
    """It is somebody, but not who may write under this transactional id now."""
    if asked.producer_id != transaction.producer_id:
        return Verdict(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return Verdict(ErrorCode.PRODUCER_FENCED)


def is_delayed(memory: Memory, context: Context) -> bool:
    """Did the producer turn to another connection since it sent this? In the first protocol consecutive transactions
    have the same epoch, so this is all that tells a late request from one of the current transaction (KAFKA-17754)."""
    return 0 < context.connection < memory.connection
