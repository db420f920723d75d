"""`.txnindex`: the aborted transactions of a segment, byte for byte as Kafka writes them.

34 bytes an entry, in the order of the abort markers, which are in this segment (what they abort may be in earlier
ones): version i16, producer id, first offset, offset of the marker, last stable offset after it. The last one tells a
search when it is complete: whatever began before that offset was decided by then.

Unlike its sparse neighbours this index decides what readers see. So an entry is in the file before its marker is in the
log, and a sealed segment has the file even if it is empty: a lost one is noticed and made again from the markers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.storage.disk import Disk
from tidelog.storage.index import IndexCorrupt, SparseIndex

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
TXN_ENTRY_SIZE: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int


class TransactionIndex(SparseIndex):
    __slots__ = ("_data",)

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path, TXN_ENTRY_SIZE)
        self._data = bytearray()

    @classmethod
    def load(cls, disk: Disk, path: str, base_offset: int, next_offset: int = 1 << 63) -> "TransactionIndex":
        """Raises IndexCorrupt, or OSError if there is no such file."""
        index = cls(disk, path)
        index._data += index._read()
        last = base_offset - 1
        for version, producer_id, first, marker, stable in _ENTRY.iter_unpack(index._data):
            known = version == _VERSION and producer_id >= 0 and 0 <= first < marker and 0 <= stable <= marker + 1
            if not known or not last < marker < next_offset:
                raise IndexCorrupt(f"{path}: an entry is not that of an aborted transaction of this segment")
            last = marker
        return index

    @classmethod
    def load_below(cls, disk: Disk, path: str, offset: int) -> "TransactionIndex":
        """The entries of markers below `offset`, which were synced; what follows them may be torn."""
        index = cls(disk, path)
        data = disk.read_all(path)
        whole = len(data) // TXN_ENTRY_SIZE
        for slot in range(whole):
            _, _, _, marker, _ = _ENTRY.unpack_from(data, slot * TXN_ENTRY_SIZE)
            if not 0 < marker < offset:
                whole = slot
                break
        index._data += data[: whole * TXN_ENTRY_SIZE]
        index._written = whole
        index._shrunk = whole * TXN_ENTRY_SIZE != len(data)
        return index

    def __len__(self) -> int:
        return len(self._data) // TXN_ENTRY_SIZE

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    @property
    def size(self) -> int:
        return len(self._data)

    def note(self, aborted: AbortedTransaction) -> None:
        """In memory; `write` makes the file say it."""
        self._data += _ENTRY.pack(_VERSION, *aborted)

    def append(self, aborted: AbortedTransaction) -> None:
        """Also in the file. Raises OSError with nothing changed that would not be put right by the next write."""
        self.note(aborted)
        try:
            self.write()
        except OSError:
            self.truncate(aborted.last_offset)
            self._shrunk = True  # some of it may have got there
            raise

    @property
    def is_ahead(self) -> bool:
        """The file may hold entries that memory has taken back."""
        return self._shrunk

    def write_whole(self) -> None:
        self.disk.write_atomic(self.path, self._encode(0))
        self._written = len(self)
        self._shrunk = False

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose markers are at or behind `offset`."""
        keep = self._slot(offset)
        del self._data[keep * TXN_ENTRY_SIZE :]
        self._kept(keep)

    def collect(self, fetch_offset: int, upper: int, found: list[AbortedTransaction]) -> bool:
        """Add what a reader of `[fetch_offset, upper)` must leave out. True if nothing further can follow."""
        for aborted in self._from(self._slot(fetch_offset)):
            if aborted.first_offset < upper:
                found.append(aborted)
            if aborted.last_stable_offset >= upper:
                return True
        return False

    def _slot(self, offset: int) -> int:
        """Of the first entry whose marker is at or behind `offset`."""
        return bisect_left(range(len(self)), offset, key=lambda slot: self._at(slot).last_offset)

    def _at(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction._make(_ENTRY.unpack_from(self._data, slot * TXN_ENTRY_SIZE)[1:])

    def _from(self, slot: int) -> Iterator[AbortedTransaction]:
        return (self._at(each) for each in range(slot, len(self)))

    def _encode(self, first: int) -> bytes:
        return bytes(self._data[first * TXN_ENTRY_SIZE :])


class SegmentTransactions:
    """What was aborted in one segment: read when it is asked for, and let go of with the segment's other indexes."""

    __slots__ = ("_base_offset", "_disk", "_index", "path", "size")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.size = 0  # bytes of the file; other than 0, a reader of committed records must look into it
        self._disk = disk
        self._base_offset = base_offset
        self._index: TransactionIndex | None = None

    @property
    def index(self) -> TransactionIndex:
        """Raises CorruptMessage. Making it again needs what came before the segment: the next opening does."""
        index = self._index
        if index is None:
            if self.size == 0:
                index = TransactionIndex(self._disk, self.path)
            else:
                try:
                    index = TransactionIndex.load(self._disk, self.path, self._base_offset)
                except (IndexCorrupt, FileNotFoundError) as error:
                    raise CorruptMessage(f"it is not known what was aborted: {error}") from error
            self.index = index
        return index

    @index.setter
    def index(self, index: TransactionIndex) -> None:
        self._index = index
        self.size = index.size

    @property
    def index_bytes(self) -> int:
        return 0 if self._index is None else self._index.size

    def begin_scan(self, below: int) -> TransactionIndex:
        """For a scan of the log from offset `below` on. What the file says of that part is not believed, but stays
        until `end_scan`: a crash before that must find what was synced for the part before it."""
        if below > self._base_offset:
            self.index = TransactionIndex.load_below(self._disk, self.path, below)
        else:
            self.index = TransactionIndex(self._disk, self.path)
        return self.index

    def end_scan(self, size_before: int) -> None:
        index = self.index
        self.size = index.size
        if index.size or size_before:
            index.write_whole()

    def start(self) -> None:
        """Begin anew: nothing was aborted here, and no file says otherwise."""
        self._disk.remove(self.path)
        self.index = TransactionIndex(self._disk, self.path)

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """A file of exactly these entries, on disk when this returns. A crash leaves the old one or this one: nobody
        may look into the log again for them."""
        index = TransactionIndex(self._disk, self.path)
        for entry in entries:
            index.note(entry)
        index.write_whole()
        self.index = index

    def is_sound(self, next_offset: int) -> bool:
        try:
            TransactionIndex.load(self._disk, self.path, self._base_offset, next_offset)
        except (IndexCorrupt, FileNotFoundError):
            return False
        return True

    def append(self, aborted: AbortedTransaction) -> None:
        """Before its marker is in the log. Raises OSError with nothing changed."""
        index = self.index
        index.append(aborted)
        self.size = index.size

    def truncate(self, offset: int) -> None:
        """Markers at or behind `offset` are not in the log."""
        index = self.index
        index.truncate(offset)
        if index.size != self.size or index.is_ahead:
            self.size = index.size
            with suppress(OSError):  # memory is right, and the next write puts the file right
                index.write_whole()  # at once: nothing syncs an empty one later

    def write(self) -> None:
        """Make the file: there, even if empty, so that a lost one can be told from one that was never needed."""
        index = self._index
        if index is None and self.size == 0:
            index = self.index
        if index is not None:
            self.size = index.size
            if index.size:
                index.write()
            else:
                index.rewrite()

    def forget(self) -> None:
        """It cannot be known any more: readers of committed records are refused."""
        self._disk.remove(self.path)
        self.size = -1
        self._index = None

    def release(self) -> None:
        self._index = None
