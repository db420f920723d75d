"""The segments of one log, in order and without overlap: finding, rolling, dropping, cutting and replacing them."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import StorageOffline, invariant
from tidelog.storage.disk import Disk, File, storage_errors
from tidelog.storage.naming import CLEANED, LOG, TXN_INDEX, offset_name, parse_offset_name
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.segment import Segment
from tidelog.storage.swap import decide_swap, install_swap, set_aside, undo_swap
from tidelog.storage.transaction_index import AbortedTransaction


class Slice(NamedTuple):
    """Bytes of a log file to send. Holding it keeps the file readable."""

    file: File
    position: int
    length: int


class Chain:
    def __init__(self, disk: Disk, directory: str, segments: list[Segment], open_segments: OpenSegments) -> None:
        self.disk = disk
        self.directory = directory
        self.segments = segments
        self.active = segments[-1]
        self.unsynced: dict[Segment, File] = {}  # sealed since the last flush; the file that wrote it must sync it
        self._bases = [segment.base_offset for segment in segments]
        self._open_segments = open_segments
        self._with_aborted: list[Segment] | None = None  # segments with entries in their .txnindex; None: look again

    def read(self, offset: int, max_bytes: int, upper: int, min_one: bool) -> Slice:
        """As `Log.read`, for an offset known to be in range and below `upper`."""
        active = self.active
        if offset >= active.base_offset:
            found = self._read_from(active, offset, max_bytes, upper, min_one)
            return found or Slice(active.file, active.size, 0)
        for segment in self.segments[bisect_right(self._bases, offset) - 1 :]:
            found = self._read_from(segment, offset, max_bytes, upper, min_one)
            if found is not None:
                return found
            # Compaction removed what was between `offset` and the next segment.
        return Slice(active.file, active.size, 0)

    @staticmethod
    def _read_from(segment: Segment, offset: int, max_bytes: int, upper: int, min_one: bool) -> Slice | None:
        position, size = segment.locate(offset)
        if not size:
            return None
        end = segment.size if upper >= segment.next_offset else segment.locate(upper)[0]
        length = end - position
        if length > max_bytes:
            length = max(max_bytes, size) if min_one else max_bytes
        return Slice(segment.file, position, max(length, 0))

    @property
    def any_aborted(self) -> bool:
        return bool(self._segments_with_aborted())

    def _segments_with_aborted(self) -> list[Segment]:
        if self._with_aborted is None:
            self._with_aborted = [segment for segment in self.segments if segment.transactions.size]
        return self._with_aborted

    def aborted(self, fetch_offset: int, upper: int) -> list[AbortedTransaction]:
        """Transactions with records in `[fetch_offset, upper)` that were aborted, wherever their markers are."""
        found: list[AbortedTransaction] = []
        for segment in self._segments_with_aborted():
            if segment.next_offset <= fetch_offset:
                continue
            if segment.opened is not None:
                segment.opened.touch(segment)  # so that what is loaded here is let go of again
            if segment.transactions.index.collect(fetch_offset, upper, found):
                break
        return found

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Before its marker is appended to the active segment. Raises OSError with nothing changed."""
        self.active.transactions.append(aborted)
        self._with_aborted = None

    def upper_bound(self, offset: int, found: Slice) -> int:
        """No record in `found`, read at `offset`, has an offset that is not below this."""
        for segment in self.segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.path == found.file.path:
                return segment.upper_bound(found.position + found.length)
        return self.active.next_offset

    def roll(self, base_offset: int, index_interval: int, now_ms: int) -> Segment:
        """Raises OSError with nothing changed that matters."""
        old = self.active
        old_file = old.file
        old.seal()
        segment = Segment.create(self.disk, self.directory, base_offset, index_interval=index_interval, now_ms=now_ms)
        old.reach(base_offset)
        old.opened = self._open_segments
        self.unsynced[old] = old_file
        self.segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self._open_segments.touch(old)  # from now on it may be let go of
        return segment

    def drop_first(self, count: int) -> list[Segment]:
        """Let go of the oldest segments. Oldest first, so that a crash in between leaves no hole."""
        gone = self.segments[:count]
        for segment in gone:
            set_aside(self.disk, self.directory, segment.base_offset)
            self._forget(segment)
        self._with_aborted = None
        del self.segments[:count]
        del self._bases[:count]
        return gone

    def truncate_to(self, offset: int) -> tuple[int, list[Segment]]:
        """Cut so that nothing at or behind `offset` is left. Returns the new end offset and the segments let go of."""
        keep = max(bisect_right(self._bases, offset), 1)
        gone = self.segments[keep:]
        for segment in reversed(gone):  # newest first: a crash in between leaves a shorter log, not a hole
            set_aside(self.disk, self.directory, segment.base_offset)
            self._forget(segment)
        del self.segments[keep:]
        del self._bases[keep:]
        segment = self.active = self.segments[-1]
        segment.opened = None
        self._open_segments.forget(segment)
        self.unsynced.pop(segment, None)
        self._with_aborted = None
        position, _ = segment.locate(offset)
        end = offset
        for _, header in segment.headers(position):
            end = min(end, header.base_offset)
            break
        segment.truncate(position, end)
        return segment.next_offset, gone

    def swap(self, old: Sequence[Segment], cleaned: Iterable[str], index_interval: int) -> list[Segment]:
        """Put the segments of the `.log.cleaned` files in the place of `old`, which is returned to be deleted. Raises
        StorageOffline if that could not be decided and nothing has changed, OSError if it stopped halfway."""
        first = self.segments.index(old[0])
        invariant(self.segments[first : first + len(old)] == list(old), "swapped segments are not neighbours")
        invariant(old[-1] is not self.active, "the active segment cannot be swapped")
        parsed = [parse_offset_name(path.rpartition("/")[2]) for path in cleaned]
        bases = sorted(entry[0] for entry in parsed if entry and entry[1] == LOG + CLEANED)
        with storage_errors(self.directory):
            sizes = self.disk.sizes(self.directory)
        waiting = [entry[0] for entry in map(parse_offset_name, sizes) if entry and entry[1] == LOG + CLEANED]
        # Recovery takes a cleaned file at or before a swapped one for a swap that was not decided.
        invariant(not bases or min(waiting, default=-1) == bases[0], "cleaned segments must be swapped in order")
        try:
            decide_swap(self.disk, self.directory, bases, sizes)
        except OSError as error:
            undo_swap(self.disk, self.directory, bases)
            raise StorageOffline(f"{self.directory}: {error}") from error
        # Nothing from here on needs a descriptor, of which there may be none.
        for segment in old:
            set_aside(self.disk, self.directory, segment.base_offset)
            self._forget(segment)
        for base in bases:
            install_swap(self.disk, self.directory, base)
        self._with_aborted = None
        fresh = []
        for base in bases:
            segment = Segment(
                self.disk, self.directory, base, size=0, index_interval=index_interval, created_ms=old[0].created_ms
            )
            segment.adopt(
                sizes[offset_name(base, LOG + CLEANED)],
                sizes.get(offset_name(base, TXN_INDEX + CLEANED), 0),
                self._open_segments,
            )
            fresh.append(segment)
        self.segments[first : first + len(old)] = fresh
        self._bases = [segment.base_offset for segment in self.segments]
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            segment.reach(following.base_offset)
        return list(old)

    def _forget(self, segment: Segment) -> None:
        self._open_segments.forget(segment)
        segment.opened = None
        self.unsynced.pop(segment, None)
