"""A stamp, and its bytes in the header `tidelog.causality`.

    0191f3a2b4c00003;checkout;checkout=12,payment=7
    ────────────────
    hybrid time, 16 hexadecimal digits: 12 of milliseconds, 4 of count
                     ────────
                     the node that sent the record
                              ─────────────────────
                              its vector clock, nodes in order, its own among them

ASCII, so that a person reads it in any tool and an engine parses it with `split`; equally long numbers, so that stamps
sort as times. Names of nodes have the characters of topic names.
"""

import re
from dataclasses import dataclass
from typing import Final

from tidelog.causality.hybrid import TICKS_MAX, HybridTime
from tidelog.causality.vector import Order, VectorClock

HEADER: Final = "tidelog.causality"
NODE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
BYTES_MAX: Final = 64 << 10
"""A header longer than this is not read: about a thousand nodes, and then the clock is used for the wrong thing."""
PATTERN: Final = (
    r"([0-7][0-9a-f]{15});([A-Za-z0-9._-]{1,64});"
    r"([A-Za-z0-9._-]{1,64}=[1-9][0-9]{0,17}(?:,[A-Za-z0-9._-]{1,64}=[1-9][0-9]{0,17})*)"
)
_STAMP: Final = re.compile(PATTERN.encode())


class InvalidStamp(ValueError):
    """Bytes under the header's name that are no stamp."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """`count` of `node` names a record: no two stamps have the same."""

    time: HybridTime
    node: str
    vector: VectorClock

    @property
    def count(self) -> int:
        return self.vector.of(self.node)

    def compare(self, other: "Stamp") -> Order:
        return self.vector.compare(other.vector)

    def before(self, other: "Stamp") -> bool:
        """This may have caused `other`: its sender knew of it."""
        return self.compare(other) is Order.BEFORE

    def after(self, other: "Stamp") -> bool:
        return self.compare(other) is Order.AFTER

    def concurrent(self, other: "Stamp") -> bool:
        """Neither sender knew of the other's record."""
        return self.compare(other) is Order.CONCURRENT

    @property
    def place(self) -> tuple[int, str, int]:
        """Sorted by this, no record stands before its cause; records that time does not order are ordered by node."""
        return self.time.ticks, self.node, self.count

    def encode(self) -> bytes:
        return f"{self.time.ticks:016x};{self.node};{self.vector}".encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> "Stamp":
        found = _STAMP.fullmatch(data) if len(data) <= BYTES_MAX else None
        if found is None:
            raise InvalidStamp(f"{bytes(data[:80])!r} is no causality stamp")
        ticks, node = int(found[1], 16), found[2].decode()
        pairs = [entry.split("=") for entry in found[3].decode().split(",")]
        counts = {name: int(count) for name, count in pairs}
        if len(counts) != len(pairs):
            raise InvalidStamp(f"{bytes(data[:80])!r} names a node twice")
        if node not in counts or ticks > TICKS_MAX:
            raise InvalidStamp(f"{bytes(data[:80])!r} does not count its own node")
        return cls(HybridTime(ticks), node, VectorClock(counts))


def check_node(node: str) -> str:
    if not NODE.fullmatch(node):
        raise ValueError(f"{node!r} is no name of a node: 1 to 64 of the characters a-z A-Z 0-9 . _ -")
    return node
