"""Log compaction: keep the last record of every key, at its own offset, and forget the ones before it.

Two passes over sealed segments. The first reads the dirty part and remembers the last offset of every key, in a map of
bounded size: when it is full, this run cleans what the map covers and the next one continues there. The second rewrites
the segments from the log's start: a record stays if the map has no later one of its key. Tombstones stay
`delete.retention.ms` longer, counted from the first rewrite that met them (KIP-534), so that a reader who started
before still sees the deletion.

Never touched: the active segment and anything at or beyond `upper`, where transactions may be undecided. Before it the
records of aborted transactions are nobody's last word and go; see `cleaned_transactions`.

Nothing is replaced here either. The result names the cleaned files, complete and synced, and the segments they stand
for; `Log.swap_segments` puts them in place.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tidelog.config import TopicConfig
from tidelog.storage.cleaned_transactions import Decisions, MarkersInUse, read_aborted
from tidelog.storage.cleaning import CleanedSegment, CompactionStats, RecordFilter, read_batches
from tidelog.storage.compaction_keys import KeyMap, KeyMapBuilder, LastOffsets
from tidelog.storage.disk import Disk, File, RealDisk
from tidelog.storage.index import MAX_RELATIVE_OFFSET
from tidelog.storage.naming import CLEANED, LOG, offset_name
from tidelog.wire.record_batch import CONTROL, BatchHeader

DEDUPE_BUFFER_BYTES: Final = 128 << 20

Progress = Callable[[CompactionStats], None]


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker process needs to know; see `cleanable` for segments, first_dirty and upper."""

    directory: str
    segments: tuple[int, ...]
    first_dirty: int
    upper: int
    now_ms: int
    config: TopicConfig
    last_offsets: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Producer id to the last offset it wrote: that batch survives as a bare header, so its sequence does."""
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES


class CompactionResult(msgspec.Struct, frozen=True):
    """What to swap, in one step: neighbouring segments (base offsets) and the `.cleaned` logs that stand for them."""

    replaced: tuple[int, ...]
    cleaned: tuple[str, ...]
    cleaned_to: int
    """Below this offset every key is there once: the next cleaner checkpoint, once the swap is done."""
    stats: CompactionStats


def compact_partition(request: CompactionRequest) -> CompactionResult:
    """Entry for a worker process."""
    return compact(RealDisk(), request)


def compact(disk: Disk, request: CompactionRequest, progress: Progress | None = None) -> CompactionResult:
    """Raises CorruptMessage, leaving no files, if a batch no longer matches its checksum."""
    _remove_leftovers(disk, request.directory)
    stats = CompactionStats()
    decisions = Decisions(read_aborted(disk, request.directory))
    keys = map_keys(disk, request, decisions)
    stats.keys = len(keys.offsets)
    records = RecordFilter(
        keys=keys,
        last=LastOffsets(keys),
        upper=request.upper,
        now_ms=request.now_ms,
        delete_retention_ms=request.config.delete_retention_ms,
        last_offsets=dict(request.last_offsets),
        decisions=decisions,
        markers=MarkersInUse(),
        stats=stats,
    )
    rewrite = _Rewrite(disk, request, records)
    try:
        for base_offset, end in _ranges(request):
            if base_offset >= keys.end:
                break
            rewrite.segment(base_offset, end)
            if progress is not None:
                progress(stats)
        replaced, cleaned = rewrite.finish()
    except BaseException:
        _remove_leftovers(disk, request.directory)
        raise
    return CompactionResult(replaced, cleaned, max(request.first_dirty, keys.end), stats)


def _remove_leftovers(disk: Disk, directory: str) -> None:
    """A `.cleaned` log beside a decided swap would make recovery undo the swap, so none may outlive its compaction."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def map_keys(disk: Disk, request: CompactionRequest, decisions: Decisions) -> KeyMap:
    """Key to last offset over the dirty part, as far as `upper` or until the map is full."""
    keys = KeyMapBuilder(request.first_dirty, request.dedupe_buffer_bytes)
    for base_offset, end in _ranges(request):
        if end <= request.first_dirty:
            continue
        file = disk.open(_log_path(request, base_offset))
        for header, chunk, at in read_batches(file, request.first_dirty):
            if header.last_offset >= request.upper:
                return keys.finish(min(request.upper, header.base_offset))
            if header.attributes & CONTROL or decisions.aborted(header):
                continue
            full_at = keys.add(header, chunk, at)
            if full_at is not None:
                return keys.finish(full_at)
    return keys.finish(request.upper)


def _ranges(request: CompactionRequest) -> Iterator[tuple[int, int]]:
    """Base and end offset of every segment."""
    return pairwise((*request.segments, request.upper))


def _log_path(request: CompactionRequest, base_offset: int) -> str:
    return f"{request.directory}/{offset_name(base_offset, LOG)}"


class _Output(NamedTuple):
    path: str
    replaced: list[int]
    changed: bool


class _Rewrite:
    """The second pass: sources in, cleaned segments out. One of them is open at a time."""

    def __init__(self, disk: Disk, request: CompactionRequest, records: RecordFilter) -> None:
        self._disk = disk
        self._request = request
        self._records = records
        self._done: list[_Output] = []
        self._open: CleanedSegment | None = None
        self._sources: list[int] = []

    def segment(self, base_offset: int, end: int) -> None:
        stats = self._records.stats
        source = self._disk.open(_log_path(self._request, base_offset))
        output = self._output(source, base_offset, end)
        for header, chunk, at in read_batches(source, skip=self._records.is_gone):
            if not chunk:
                self._records.drop(header)
                output.drop(header)
                continue
            batch = memoryview(chunk)[at : at + header.size]
            kept = self._records.clean(header, batch)
            if kept is None:
                stats.batches_dropped += 1
                output.drop(header)
            else:
                output.add(kept, original=kept is batch)
                self._keep_aborted(output, header)
        stats.bytes_read += source.size

    def _keep_aborted(self, output: CleanedSegment, header: BatchHeader) -> None:
        """While a marker is there, so is what it aborted: readers may still meet an emptied batch of it."""
        aborted = self._records.decisions.by_marker.get(header.last_offset) if header.attributes & CONTROL else None
        if aborted is not None:
            output.add_aborted(aborted)

    def finish(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Segments to replace, without gaps, and the files that do it."""
        self._close()
        changed = [slot for slot, output in enumerate(self._done) if output.changed]
        if not changed:
            return (), ()
        outputs = self._done[changed[0] : changed[-1] + 1]
        for output in outputs:
            if not output.changed:
                self._copy(output.replaced[0])
        self._disk.sync_dir(self._request.directory)
        return tuple(base for output in outputs for base in output.replaced), tuple(output.path for output in outputs)

    def _output(self, source: File, base_offset: int, end: int) -> CleanedSegment:
        output = self._open
        if output is not None and self._fits(output, source.size, end):
            output.change()
        else:
            self._close()
            output = self._open = self._create(source, base_offset)
        self._sources.append(base_offset)
        return output

    def _create(self, source: File, base_offset: int) -> CleanedSegment:
        request = self._request
        return CleanedSegment(self._disk, request.directory, base_offset, source, request.config.index_interval_bytes)

    def _fits(self, output: CleanedSegment, size: int, end: int) -> bool:
        """Small neighbours become one segment, or a log of many updates would end as many tiny files."""
        config = self._request.config
        return (
            output.size + size <= config.segment_bytes
            and output.index_bytes < config.segment_index_bytes
            and end - 1 - output.base_offset <= MAX_RELATIVE_OFFSET
        )

    def _close(self) -> None:
        if self._open is not None:
            self._records.stats.bytes_written += self._open.finish()
            self._done.append(_Output(self._open.path, self._sources, self._open.changed))
        self._open, self._sources = None, []

    def _copy(self, base_offset: int) -> None:
        """A segment that needed no cleaning, between two that did: all of them are swapped in one step."""
        source = self._disk.open(_log_path(self._request, base_offset))
        output = self._create(source, base_offset)
        output.change()
        for header, chunk, at in read_batches(source):
            output.add(memoryview(chunk)[at : at + header.size], original=True)
            self._keep_aborted(output, header)
        self._records.stats.bytes_written += output.finish()
