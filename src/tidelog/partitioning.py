"""Which partition a record goes to. Java's rules, so that a key lives where every Java producer would put it.

A record with a key goes to `murmur2(key) % partitions`: equal keys share a partition, hence an order, as long as the
number of partitions stays the same. A record without a key may go anywhere; `StickyPartitioner` fills batches,
`RoundRobinPartitioner` spreads evenly.

librdkafka (confluent-kafka, kcat) by default hashes keys with CRC-32 (`partitioner=consistent_random`): set its
`partitioner=murmur2_random` to agree with Java and with this module.
"""

from collections.abc import Callable
from typing import Final, Protocol

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF

Dice = Callable[[int], int]
"""`dice(n)` returns an integer in [0, n): for example `random.Random(seed).randrange`."""


class Partitioner(Protocol):
    """Any callable of this shape is a partitioner; write your own for custom placement."""

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int: ...


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number (Java prints the same bits signed)."""
    length = len(key)
    h = _SEED ^ length
    tail = length & ~3
    for start in range(0, tail, 4):
        k = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(key[tail:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """Where Java's default partitioner puts `key`."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    # Java clears the sign bit rather than taking an absolute value, which has no answer for the smallest integer.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class RoundRobinPartitioner:
    """Every record to the next partition, keys ignored: the evenest spread, no order per key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return turn % partitions


class StickyPartitioner:
    """Stays with one partition for `records_per_turn` records, then throws the dice for another. Keys are ignored.

    Batches fill faster than with round robin, so each record costs less to send.
    """

    def __init__(self, dice: Dice, records_per_turn: int = 1000) -> None:
        self._dice = dice
        self._records_per_turn = records_per_turn
        self._current: dict[str, tuple[int, int]] = {}

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        partition, left = self._current.get(topic, (-1, 0))
        if left == 0 or partition >= partitions:
            partition, left = self._another(partition, partitions), self._records_per_turn
        self._current[topic] = partition, left - 1
        return partition

    def _another(self, current: int, partitions: int) -> int:
        if partitions == 1 or not 0 <= current < partitions:
            return self._dice(partitions)
        chosen = self._dice(partitions - 1)
        return chosen + 1 if chosen >= current else chosen


class KeyPartitioner:
    """By key as Java does it; records without a key go where `keyless` says. The default of the CLI."""

    def __init__(self, keyless: Partitioner) -> None:
        self._keyless = keyless

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        if key is None:
            return self._keyless(topic, key, partitions)
        return partition_for(key, partitions)
