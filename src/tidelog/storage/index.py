"""Kafka's two sparse indexes of a segment, byte for byte as Kafka writes them.

Offset index: 8 bytes an entry, (i32 offset relative to the base, i32 position of its batch). Read as one big-endian i64
an entry sorts by offset first, so the whole index is one `array('q')` under `bisect`: 8 bytes an entry in memory too.

Time index: 12 bytes an entry, (i64 timestamp, i32 relative offset), meaning: up to here no batch is newer than
`timestamp`, and the batch ending at that offset is the first that is as new.

Neither is ever the only copy of anything: both follow from the log, and are rebuilt when they look wrong.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from itertools import islice
from operator import le, lt
from struct import Struct
from typing import Final

from tidelog.storage.disk import Disk

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
POSITION_MASK: Final = 0xFFFFFFFF
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
WRITE_BEHIND_ENTRIES: Final = 64  # entries gathered before one small write; losing them costs a rebuild, not data

_TIME_ENTRY = Struct(">qi")


class IndexCorrupt(Exception):
    """The file cannot be an index of its segment. The caller rebuilds it."""


class SparseIndex:
    """What both share: entries gather in memory and reach their file a few at a time, behind the append."""

    __slots__ = ("_entry_size", "_shrunk", "_written", "disk", "path")

    def __init__(self, disk: Disk, path: str, entry_size: int) -> None:
        self.disk = disk
        self.path = path
        self._entry_size = entry_size
        self._written = 0  # entries that the file holds
        self._shrunk = False  # the file still holds entries that memory has forgotten

    def __len__(self) -> int:
        raise TypeError("a sparse index knows its own entries")

    def _encode(self, first: int) -> bytes:
        raise TypeError("a sparse index encodes its own entries")

    def _read(self) -> bytes:
        data = self.disk.read_all(self.path)
        if len(data) % self._entry_size:
            raise IndexCorrupt(f"{self.path}: {len(data)} bytes is not a whole number of entries")
        self._written = len(data) // self._entry_size
        return data

    def _appended(self) -> None:
        if len(self) - self._written >= WRITE_BEHIND_ENTRIES:
            # The batch is in the log already; a full disk here only leaves the entries waiting in memory.
            with suppress(OSError):
                self.write()

    def _kept(self, entries: int) -> None:
        if entries < self._written:
            self._written = entries
            self._shrunk = True

    def write(self) -> None:
        if self._written == len(self) and not self._shrunk:
            return
        size = self._written * self._entry_size
        file = self.disk.open(self.path, create=True)
        if file.size != size:
            file.truncate(size)
        if self._written < len(self):
            file.append(self._encode(self._written))
        self._written = len(self)
        self._shrunk = False

    def rewrite(self) -> None:
        """Make the file exactly what memory holds, whatever it was before."""
        self._kept(0)
        self._shrunk = True
        self._written = 0
        self.write()


class OffsetIndex(SparseIndex):
    __slots__ = ("entries",)

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path, OFFSET_ENTRY_SIZE)
        self.entries: array[int] = array("q")

    @classmethod
    def load(cls, disk: Disk, path: str, log_size: int) -> "OffsetIndex":
        """Raises IndexCorrupt, or OSError if there is no such file."""
        index = cls(disk, path)
        entries = index.entries
        entries.frombytes(index._read())
        if sys.byteorder == "little":
            entries.byteswap()
        # Whether each position is that of its batch is for the reader to see, who looks there anyway.
        if entries and (entries[0] < 0 or not all(map(lt, entries, islice(entries, 1, None)))):
            raise IndexCorrupt(f"{path}: entries are not ascending")
        if entries and entries[-1] & POSITION_MASK >= log_size:
            raise IndexCorrupt(f"{path}: an entry points behind the end of its log")
        return index

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, relative_offset: int, position: int) -> None:
        self.entries.append((relative_offset << 32) | position)
        self._appended()

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry at or below: (relative offset of the batch's end, position of the batch)."""
        slot = bisect_right(self.entries, (relative_offset << 32) | POSITION_MASK) - 1
        if slot < 0:
            return None
        entry = self.entries[slot]
        return entry >> 32, entry & POSITION_MASK

    def ceiling(self, position: int, otherwise: int) -> int:
        """The relative offset that ends the first batch known to begin at or behind `position`."""
        slot = bisect_left(self.entries, position, key=lambda entry: entry & POSITION_MASK)
        return self.entries[slot] >> 32 if slot < len(self.entries) else otherwise

    def truncate(self, position: int) -> None:
        """Forget every entry whose batch starts at or behind `position`."""
        keep = bisect_left(self.entries, position, key=lambda entry: entry & POSITION_MASK)
        del self.entries[keep:]
        self._kept(keep)

    def _encode(self, first: int) -> bytes:
        entries = self.entries[first:]
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()


class TimeIndex(SparseIndex):
    __slots__ = ("offsets", "timestamps")

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path, TIME_ENTRY_SIZE)
        self.timestamps: array[int] = array("q")
        self.offsets: array[int] = array("i")

    @classmethod
    def load(cls, disk: Disk, path: str) -> "TimeIndex":
        """Raises IndexCorrupt, or OSError if there is no such file."""
        index = cls(disk, path)
        timestamps, offsets = index.timestamps, index.offsets
        for timestamp, offset in _TIME_ENTRY.iter_unpack(index._read()):
            timestamps.append(timestamp)
            offsets.append(offset)
        ascending = all(map(lt, timestamps, islice(timestamps, 1, None))) and all(
            map(le, offsets, islice(offsets, 1, None))
        )
        if offsets and (timestamps[0] < 0 or offsets[0] < 0 or not ascending):
            raise IndexCorrupt(f"{path}: entries are not ascending")
        return index

    @staticmethod
    def last_of(disk: Disk, path: str) -> tuple[int, int] | None:
        """The last entry of a file, without reading the others; None if it has none or is no index."""
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return None
        if not file.size or file.size % TIME_ENTRY_SIZE:
            return None
        timestamp, offset = _TIME_ENTRY.unpack(file.read(file.size - TIME_ENTRY_SIZE, TIME_ENTRY_SIZE))
        return (timestamp, offset) if timestamp >= 0 and offset >= 0 else None

    def __len__(self) -> int:
        return len(self.offsets)

    def append_if_newer(self, timestamp: int, relative_offset: int) -> None:
        if timestamp < 0 or (self.timestamps and timestamp <= self.timestamps[-1]):
            return
        self.timestamps.append(timestamp)
        self.offsets.append(relative_offset)
        self._appended()

    def last(self) -> tuple[int, int] | None:
        return (self.timestamps[-1], self.offsets[-1]) if self.offsets else None

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry that is not newer than `timestamp`: (timestamp, relative offset)."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return (self.timestamps[slot], self.offsets[slot]) if slot >= 0 else None

    def floor_by_offset(self, relative_offset: int) -> tuple[int, int] | None:
        slot = bisect_right(self.offsets, relative_offset) - 1
        return (self.timestamps[slot], self.offsets[slot]) if slot >= 0 else None

    def truncate(self, relative_offset: int) -> None:
        """Forget every entry at or behind `relative_offset`."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:]
        del self.offsets[keep:]
        self._kept(keep)

    def _encode(self, first: int) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps[first:], self.offsets[first:]))
