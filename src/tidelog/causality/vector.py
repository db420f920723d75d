"""Vector clocks over records: per node, how many of its records came before.

Only records count, not what a node does between them. `checkout=12` in a record's clock therefore means that checkout's
twelfth record is among its causes, and that the log has to have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Order(StrEnum):
    BEFORE = "before"
    AFTER = "after"
    EQUAL = "equal"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, slots=True)
class VectorClock:
    """A node that is not in `counts` has sent nothing that is known of."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node, count in self.counts.items():
            if count < 1:
                raise ValueError(f"{node} has the count {count}; counts begin with 1")

    def of(self, node: str) -> int:
        return self.counts.get(node, 0)

    def next(self, node: str) -> "VectorClock":
        """The clock of the next record of `node`."""
        return VectorClock({**self.counts, node: self.of(node) + 1})

    def joined(self, other: "VectorClock") -> "VectorClock":
        nodes = self.counts.keys() | other.counts.keys()
        return VectorClock({node: max(self.of(node), other.of(node)) for node in sorted(nodes)})

    def knows(self, other: "VectorClock") -> bool:
        """Whether everything that `other` counts is counted here."""
        return all(count <= self.of(node) for node, count in other.counts.items())

    def compare(self, other: "VectorClock") -> Order:
        here, there = self.knows(other), other.knows(self)
        if here and there:
            return Order.EQUAL
        if here:
            return Order.AFTER
        return Order.BEFORE if there else Order.CONCURRENT

    def __str__(self) -> str:
        return ",".join(f"{node}={count}" for node, count in sorted(self.counts.items()))
