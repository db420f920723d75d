"""What a process does with stamps: takes in those it reads, puts its own on what it sends.

A node is whatever sends its records one after the other: a process, or one of its threads. A clock is not for several
threads at once. A process that starts anew either has a new name, or goes on from its last stamp (`resume`): a count
that is used twice makes two records indistinguishable.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from tidelog.causality.hybrid import HybridTime
from tidelog.causality.stamp import HEADER, Stamp, check_node
from tidelog.causality.vector import VectorClock

DRIFT_MS_MAX: Final = 60_000

Headers: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None
"""What the clients give: confluent-kafka a list of pairs or None (and takes a dict too), kafka-python a list, aiokafka
a tuple."""


class Clock:
    """`now` returns milliseconds since 1970. A stamp more than `drift_ms_max` ahead of it is refused (`ClockDrift`)."""

    def __init__(self, node: str, now: Callable[[], int], *, drift_ms_max: int = DRIFT_MS_MAX) -> None:
        self.node: Final = check_node(node)
        self._now = now
        self._drift_ms_max = drift_ms_max
        self._time = HybridTime()
        self._vector = VectorClock()

    @property
    def time(self) -> HybridTime:
        """The latest that this node has sent or heard of."""
        return self._time

    @property
    def vector(self) -> VectorClock:
        return self._vector

    def stamp(self) -> Stamp:
        """For the next record of this node. Call it once per record, in the order in which they are sent."""
        self._time = self._time.next(self._now())
        self._vector = self._vector.next(self.node)
        return Stamp(self._time, self.node, self._vector)

    def send_headers(self, headers: Headers = None) -> list[tuple[str, bytes | None]]:
        """`headers` with this record's stamp, in place of one that they may have from where they were read."""
        return [*(pair for pair in _pairs(headers) if pair[0] != HEADER), (HEADER, self.stamp().encode())]

    def receive(self, headers: Headers) -> Stamp | None:
        """Takes in what a record's sender knew; None for a record without a stamp. Raises InvalidStamp, ClockDrift."""
        found = read_stamp(headers)
        if found is not None:
            self.hear(found)
        return found

    def hear(self, stamp: Stamp) -> None:
        self._time = self._time.joined(stamp.time, self._now(), self._drift_ms_max)
        self._vector = self._vector.joined(stamp.vector)

    def resume(self, last: Stamp) -> None:
        """Goes on behind `last`, the last stamp that this node sent in its life before."""
        if last.node != self.node:
            raise ValueError(f"the stamp is one of {last.node}, not of {self.node}")
        self.hear(last)


def read_stamp(headers: Headers) -> Stamp | None:
    """The stamp among a record's headers; the last, if there are several."""
    stamps = [value for name, value in _pairs(headers) if name == HEADER and value is not None]
    return Stamp.decode(bytes(stamps[-1])) if stamps else None


def _pairs(headers: Headers) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)
