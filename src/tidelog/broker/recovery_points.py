"""Where a recovery begins to read. It is moved by the clock, and sooner when much was written: a broker that is killed
while it takes a gigabyte a second should not have a minute of it to read again.
"""

import asyncio
from typing import Final

from tidelog.broker.flusher import Flusher
from tidelog.broker.partitions import Partitions
from tidelog.cluster.replica import Replica
from tidelog.storage.log import Log

FAR_BYTES: Final = 1 << 30
"""Over all logs: a second or less of a recovery."""

FLUSH_SECONDS: Final = 10.0
"""A disk that is slower than this is not waited for."""

POLL_SECONDS: Final = 0.02
AT_ONCE: Final = 500

Mark = tuple[int, int]
"""Base offset and size of an active segment."""


class RecoveryPoints:
    def __init__(self, partitions: Partitions, flusher: Flusher) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._marks: dict[Replica, Mark] = {}

    def begin(self) -> None:
        """What was there when the broker started needs no second look."""
        self._marks = {replica: _mark(replica.log) for replica in self._partitions}

    async def move(self) -> None:
        """To the end of every log. It is also what brings logs without flush.on.ack to disk."""
        marks, ends = {}, {}
        for replica in self._partitions:
            log = replica.log
            if log.failure is None:
                marks[replica] = _mark(log)
                if log.flushed_offset < log.end_offset:
                    ends[replica] = log.end_offset
                    self._flusher.mark(replica)
        await self._flushed(ends)
        await self._partitions.checkpoint()
        self._marks = marks

    async def move_if_far(self) -> None:
        written = 0
        for number, replica in enumerate(list(self._partitions)):
            written += written_since(replica.log, self._marks.get(replica))
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        if written >= FAR_BYTES:
            await self.move()

    async def _flushed(self, ends: dict[Replica, int]) -> None:
        deadline = asyncio.get_running_loop().time() + FLUSH_SECONDS
        while any(_waits(replica.log, end) for replica, end in ends.items()):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(POLL_SECONDS)


def _waits(log: Log, end: int) -> bool:
    return not log.closed and log.failure is None and log.flushed_offset < min(end, log.end_offset)


def _mark(log: Log) -> Mark:
    active = log.active_segment
    return active.base_offset, active.size


def written_since(log: Log, mark: Mark | None) -> int:
    """Bytes behind the mark; all of a log that has none, since it is new."""
    if log.closed or mark == _mark(log):
        return 0
    base, size = mark or (-1, 0)
    written = 0
    for segment in reversed(log.segments):
        if segment.base_offset < base:
            break
        written += max(segment.size - (size if segment.base_offset == base else 0), 0)
    return written
