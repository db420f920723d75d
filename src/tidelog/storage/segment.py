"""One segment: a run of batches in a `.log` file, with its two sparse indexes and its aborted transactions.

A segment is either active (the last one, appended to) or sealed. Sealed segments hold no descriptor and no index in
memory until they are read; `OpenSegments` bounds how many of them are open at a time. What an append leaves in the
indexes is a function of the batches alone, so a rebuilt index is byte for byte the one that was lost.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.storage.disk import Buffer, Disk, File
from tidelog.storage.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_SIZE,
    POSITION_MASK,
    TIME_ENTRY_SIZE,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
)
from tidelog.storage.naming import INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.transaction_index import SegmentTransactions
from tidelog.storage.walk import walk
from tidelog.wire.record_batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header

NO_TIMESTAMP: Final = -1
_UNKNOWN: Final = -2  # not looked up yet
RECENT_BATCHES_MAX: Final = 512  # boundaries at the tail that are known without reading the file
LOOKUP_CHUNK: Final = 8192  # one read spans an index interval, which ends in a batch header

_LOOKUP: Final = Struct(">qi4xb6xi")  # of a batch header: base offset, length, magic, last offset delta


class Segment:
    __slots__ = (
        "_bytes_since_entry",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_index",
        "_time_index",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "index_interval",
        "max_timestamp_offset",
        "next_offset",
        "opened",
        "path",
        "rebuilt",
        "recent",
        "sealed",
        "size",
        "transactions",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, index_interval: int, created_ms: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.path = f"{directory}/{offset_name(base_offset, LOG)}"
        self.size = size
        self.next_offset = base_offset
        self.index_interval = index_interval
        self.created_ms = created_ms
        self.sealed = False
        self._first_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.recent: array[int] = array("q")  # (relative base offset << 32 | position), without gaps up to the end
        self.rebuilt: list[str] = []
        self.opened: OpenSegments | None = None
        self._max_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self._bytes_since_entry = 0
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.transactions = SegmentTransactions(disk, self.path_of(TXN_INDEX), base_offset)

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, index_interval: int, now_ms: int) -> "Segment":
        segment = cls(disk, directory, base_offset, size=0, index_interval=index_interval, created_ms=now_ms)
        segment.start_indexes()
        segment.transactions.start()
        # The log last: a recovery ends the segment before it there, also if this fails and that one goes on.
        segment._file = disk.open(segment.path, create=True)
        if segment._file.size:
            segment._file.truncate(0)
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path}, size={self.size}, next={self.next_offset})"

    # -- files, opened when needed --------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        if self.opened is not None:
            self.opened.touch(self)
        if self._file is None:
            self._file = self.disk.open(self.path)
        return self._file

    def release(self) -> None:
        """Let go of descriptor and indexes. Slices of this file keep their own hold on it."""
        self._file = None
        self._offset_index = None
        self._time_index = None
        self.transactions.release()
        del self.recent[:]

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    def start_indexes(self) -> None:
        """Begin both indexes anew; whatever their files held is overwritten."""
        self._offset_index = OffsetIndex(self.disk, self.path_of(INDEX))
        self._time_index = TimeIndex(self.disk, self.path_of(TIME_INDEX))
        self._offset_index.rewrite()
        self._time_index.rewrite()
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        del self.recent[:]

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            try:
                index = self._offset_index = OffsetIndex.load(self.disk, self.path_of(INDEX), self.size)
            except (IndexCorrupt, FileNotFoundError):
                index = self.rebuild_indexes()[0]
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            try:
                index = self._time_index = TimeIndex.load(self.disk, self.path_of(TIME_INDEX))
            except (IndexCorrupt, FileNotFoundError):
                index = self.rebuild_indexes()[1]
        return index

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Loading the second may mean that both had to be made again, so the first is asked for once more."""
        _ = self.offset_index
        times = self.time_index
        return self.offset_index, times

    @property
    def index_bytes(self) -> int:
        """What the indexes take in memory now."""
        size = self.transactions.index_bytes
        size += 0 if self._offset_index is None else len(self._offset_index) * OFFSET_ENTRY_SIZE
        return size if self._time_index is None else size + len(self._time_index) * TIME_ENTRY_SIZE

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        next_offset, file = self.next_offset, self.file
        self.start_indexes()
        for position, header in walk(file, 0, self.size):
            self.note(header.base_offset, header.last_offset, header.max_timestamp, position, header.size)
        self.reach(next_offset)
        if self.sealed:
            self.seal()
            self.sync_indexes()  # no flush will come by again
        self.rebuilt += [self.path_of(INDEX), self.path_of(TIME_INDEX)]
        return self.offset_index, self.time_index

    def adopt(self, size: int, transactions_size: int, opened: OpenSegments) -> None:
        """The files were written by somebody else and are complete: look at them when they are asked for."""
        self.size = size
        self.transactions.size = transactions_size
        self._max_timestamp = self._first_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self.sealed = True
        self.opened = opened

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def write_failed(self) -> bool:
        return self._file is not None and self._file.failed

    def sync_indexes(self) -> None:
        """May run in a thread."""
        # One that has always been empty has nothing to lose but its name.
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX) if self.transactions.size else (INDEX, TIME_INDEX):
            with suppress(FileNotFoundError):  # retention may have been quicker
                self.disk.open(self.path_of(suffix)).sync()

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Raises OSError with nothing changed."""
        if self._offset_index is None or self._time_index is None:
            self._load_indexes()  # before the batch is in the file, or making them again would count it twice
        position = (self._file or self.file).append(data)
        size = len(data)
        self.size = position + size
        self.note(base_offset, last_offset, max_timestamp, position, size)

    def note(self, base_offset: int, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Account for a batch that is in the file: newest timestamp, index entries, recent boundaries."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_entry > self.index_interval:
            self._add_entries(last_offset, position)
        self._bytes_since_entry += size
        recent = self.recent
        if base_offset != self.next_offset:
            del recent[:]  # a gap: only an unbroken run lets an offset be found without looking
        recent.append((base_offset - self.base_offset) << 32 | position)
        if len(recent) > RECENT_BATCHES_MAX:
            del recent[: RECENT_BATCHES_MAX // 2]
        if position == 0:
            self._first_timestamp = max_timestamp
        self.next_offset = last_offset + 1

    def _add_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset - self.base_offset, position)
        self.time_index.append_if_newer(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self._bytes_since_entry = 0

    def needs_roll(self, size: int, last_offset: int, timestamp: int, now_ms: int, config: TopicConfig) -> bool:
        if self.size + size > config.segment_bytes:
            return self.size > 0
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.size == 0:
            return False
        offsets, times = self._offset_index, self._time_index  # always open in the active segment
        most = config.segment_index_bytes
        if offsets is not None and len(offsets) * OFFSET_ENTRY_SIZE >= most:
            return True
        if times is not None and len(times) * TIME_ENTRY_SIZE >= most:
            return True
        # Age is measured in record time where records have one, so that a replayed history rolls as it did live.
        first = self._first_timestamp if self._first_timestamp != _UNKNOWN else self.first_timestamp
        if first >= 0 and timestamp >= 0:
            return timestamp - first > config.segment_ms
        return now_ms - self.created_ms > config.segment_ms

    def reach(self, next_offset: int) -> None:
        """Offsets below `next_offset` belong here, even if no batch has them any more."""
        if next_offset > self.next_offset:
            self.next_offset = next_offset
            del self.recent[:]  # which says that the last batch goes up to the end

    def seal(self) -> None:
        """No more appends: leave complete indexes behind. The last time entry is how a cold segment knows its age."""
        self.time_index.append_if_newer(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.write_indexes()
        self.sealed = True

    def write_indexes(self) -> None:
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.write()
        if self.size:
            self.transactions.write()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the log at a batch boundary, and the indexes with it."""
        self.file.truncate(position)
        self.size = position
        self.sealed = False
        self.transactions.truncate(next_offset)
        self.resume(position)
        self.reach(next_offset)
        self.write_indexes()

    def resume(self, position: int) -> None:
        """Make memory what it was after the batches before `position`, reading only from the last index entry."""
        index, time_index = self._load_indexes()
        index.truncate(position)
        if index.entries:
            entry = index.entries[-1]
            start = entry & POSITION_MASK
            # The entry is made again by the walk below, which also restores what was counted since.
            index.truncate(start)
            time_index.truncate(entry >> 32)
            before = (index.entries[-1] & POSITION_MASK) if index.entries else 0
            self._bytes_since_entry = start - before
        else:
            start = 0
            time_index.truncate(0)
            self._bytes_since_entry = 0
        last = time_index.last()
        self._max_timestamp = last[0] if last else NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset + (last[1] if last else 0)
        del self.recent[:]
        self.next_offset = self.base_offset
        for at, header in walk(self.file, start, position):
            # Offsets are outside the checksum, and nothing else looks at these batches after a clean stop.
            if header.base_offset < self.next_offset or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptMessage(f"{self.path}: the batch at {at} cannot have offset {header.base_offset}")
            self.note(header.base_offset, header.last_offset, header.max_timestamp, at, header.size)

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def first_timestamp(self) -> int:
        """Of the first batch: from there the age of an active segment counts."""
        if self.size == 0:
            return NO_TIMESTAMP
        if self._first_timestamp == _UNKNOWN:
            self._first_timestamp = read_header(self.file.read(0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp == _UNKNOWN:
            last = TimeIndex.last_of(self.disk, self.path_of(TIME_INDEX)) or self.time_index.last()
            if last is None and not self.rebuilt:
                self.rebuild_indexes()  # an index without entries is true only if no record has a timestamp
                last = self.time_index.last()
            self._max_timestamp = last[0] if last else NO_TIMESTAMP
            self.max_timestamp_offset = self.base_offset + (last[1] if last else 0)
        return self._max_timestamp

    def locate(self, target: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or behind `target`; (end of file, 0) if there is none."""
        if target >= self.next_offset:
            return self.size, 0
        relative = target - self.base_offset
        recent = self.recent
        if recent and relative >= recent[0] >> 32:
            slot = bisect_right(recent, (relative << 32) | POSITION_MASK) - 1
            position = recent[slot] & POSITION_MASK
            end = recent[slot + 1] & POSITION_MASK if slot + 1 < len(recent) else self.size
            return position, end - position
        try:
            return self._search(target, relative)
        except IndexCorrupt:
            self.rebuild_indexes()
            return self._search(target, relative)

    def _search(self, target: int, relative: int) -> tuple[int, int]:
        """From the index entry at or before `target`, header by header; only the fields that matter are unpacked."""
        entry = self.offset_index.floor(relative)
        position = entry[1] if entry else 0
        expected = self.base_offset + entry[0] if entry else None  # where the first batch must end
        chunk = max(LOOKUP_CHUNK, self.index_interval + LOOKUP_CHUNK // 2)
        file, end = self.file, self.size
        buffer = b""
        start = position
        while position < end:
            if position + HEADER_SIZE > start + len(buffer):
                buffer = file.read(position, min(chunk, end - position))
                start = position
            if len(buffer) < HEADER_SIZE:
                break
            base, length, magic, delta = _LOOKUP.unpack_from(buffer, position - start)
            size = length + LENGTH_OVERHEAD
            wrong = magic != MAGIC or not HEADER_SIZE <= size <= end - position or delta < 0
            if wrong or (expected is not None and base + delta != expected):
                if entry and not self.rebuilt:
                    raise IndexCorrupt(f"{self.path}: the index points at the wrong batch")
                raise CorruptMessage(f"{self.path}: no batch at {position}")
            if base + delta >= target:
                return position, size
            position += size
            expected = None
        return end, 0

    def upper_bound(self, position: int) -> int:
        """No batch before `position` reaches this offset. As near as the index knows, without reading the log."""
        if position >= self.size:
            return self.next_offset
        return self.base_offset + self.offset_index.ceiling(position, self.next_offset - self.base_offset)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return walk(self.file, position, self.size)
