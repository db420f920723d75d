"""Which sealed segments are open: a bound on descriptors and memory, however long the history is."""

from collections import OrderedDict
from typing import Final, Protocol

OPEN_SEGMENTS_MAX: Final = 256
OPEN_INDEX_BYTES_MAX: Final = 32 << 20


class Releasable(Protocol):
    @property
    def index_bytes(self) -> int: ...
    def release(self) -> None: ...


class OpenSegments:
    """Least recently used first; one for all logs of a directory."""

    def __init__(self, limit: int = OPEN_SEGMENTS_MAX, index_bytes: int = OPEN_INDEX_BYTES_MAX) -> None:
        self._limit = limit
        self._index_bytes = index_bytes
        self._open: OrderedDict[int, Releasable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def touch(self, segment: Releasable) -> None:
        key = id(segment)
        if key in self._open:
            self._open.move_to_end(key)
            return
        self._open[key] = segment
        # Looked at when another one comes, because the newest has not loaded its indexes yet.
        size = sum(each.index_bytes for each in self._open.values())
        while len(self._open) > self._limit or (size > self._index_bytes and len(self._open) > 1):
            _, oldest = self._open.popitem(last=False)
            size -= oldest.index_bytes
            oldest.release()

    def forget(self, segment: Releasable) -> None:
        self._open.pop(id(segment), None)
