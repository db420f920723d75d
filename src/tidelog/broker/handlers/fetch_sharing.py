"""What fetches that are alike have in common: many consumers wait at the same place of the same partition.

They send the same bytes, apart from the correlation id, so the bytes are decoded once. And those that are woken by the
same append get the same answer, apart from the correlation id, so it is read and encoded once.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.broker.connection import Part
from tidelog.broker.fetch_sessions import FINAL_EPOCH, NO_SESSION
from tidelog.wire.fetch_fast import decode_fetch
from tidelog.wire.messages.data import FetchPartition, FetchRequest

ASKED_BYTES_MAX: Final = 512
"""Longer requests name so many partitions that they are hardly alike."""
ASKED_MAX: Final = 1024
"""Kept at most. All are forgotten together then: consumers move on, and what they asked before is of no use."""
IN_MEMORY_MAX: Final = 4096
"""Answers up to this size are bytes as a whole. Longer ones are queued as slices, which take no memory while a client
does not read."""

CONSUMER: Final = -1
"""The replica id of whoever is not one."""

_I32: Final = Struct(">i").pack

Topics = Sequence[tuple[str, UUID, Sequence[FetchPartition]]]
Lone = tuple[str, UUID, FetchPartition]


class Asked:
    """A decoded Fetch, of everybody who sent the same in the same version."""

    __slots__ = ("follower", "lone", "request", "size", "topics")

    def __init__(self, request: FetchRequest) -> None:
        self.request = request
        self.follower = max(request.replica_id, request.replica_state.replica_id)
        self.topics: Topics = [(topic.topic, topic.topic_id, topic.partitions) for topic in request.topics]
        self.size = sum(len(topic.partitions) for topic in request.topics)
        self.lone: Lone | None = None
        """The one partition that is wanted, by a consumer who waits for something new and has no session and no rack:
        as nearly all do who wait at its end."""
        if self.size == 1 and _is_simple(request) and self.follower == CONSUMER:
            self.lone = next((name, topic_id, wishes[0]) for name, topic_id, wishes in self.topics if wishes)


def _is_simple(request: FetchRequest) -> bool:
    return (
        request.session_id == NO_SESSION
        and request.session_epoch == FINAL_EPOCH
        and request.max_wait_ms > 0
        and request.min_bytes > 0
        and not request.rack_id
    )


class AskedBefore:
    """Of all that was asked lately, by its bytes. Requests in a session are never alike, and are not kept."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], Asked] = {}

    def __len__(self) -> int:
        return len(self._known)

    def decode(self, frame: memoryview, body: int, version: int) -> Asked:
        if len(frame) - body > ASKED_BYTES_MAX:
            return Asked(decode_fetch(frame, body, version))
        raw = bytes(frame[body:])
        key = (version, raw)
        known = self._known.get(key)
        if known is not None:
            return known
        asked = Asked(decode_fetch(memoryview(raw), 0, version))
        if asked.request.session_id == NO_SESSION:
            if len(self._known) >= ASKED_MAX:
                self._known.clear()
            self._known[key] = asked
        return asked


class SharedAnswer:
    """The whole frame of an answer, for everybody who waits for it."""

    __slots__ = ("_first", "_length", "_rest")

    def __init__(self, parts: Sequence[Part]) -> None:
        parts = _in_memory(parts)
        first = parts[0]
        assert isinstance(first, bytes)
        self._length, self._first = first[:4], first[8:]
        self._rest = parts[1:]

    def to(self, correlation_id: int) -> list[Part]:
        return [self._length + _I32(correlation_id) + self._first, *self._rest]


def _in_memory(parts: Sequence[Part]) -> Sequence[Part]:
    """Record sets are read here instead of once for each client, if they are small and in the page cache."""
    if sum(len(part) if isinstance(part, bytes) else part.length for part in parts) > IN_MEMORY_MAX:
        return parts
    read: list[bytes] = []
    try:
        for part in parts:
            data = part if isinstance(part, bytes) else part.file.read_cached(part.position, part.length)
            if data is None:
                return parts
            read.append(data)
    except OSError:
        return parts  # each client's connection will find out by itself, and say so
    return [b"".join(read)]
