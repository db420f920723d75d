"""The parts of compaction: reading batches in chunks, deciding record by record, writing a cleaned segment.

What is read here was written long ago, so every batch's checksum is verified first: the rewrite must not give a flipped
bit a new and valid checksum.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tidelog.errors import CorruptMessage
from tidelog.storage.cleaned_transactions import Decisions, MarkersInUse
from tidelog.storage.compaction_keys import DIGEST_SIZE, KeyMap, LastOffsets, is_whole, key_digest
from tidelog.storage.disk import Disk, File
from tidelog.storage.index import OFFSET_ENTRY_SIZE, OffsetIndex, TimeIndex
from tidelog.storage.naming import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from tidelog.storage.transaction_index import AbortedTransaction, SegmentTransactions
from tidelog.wire.compression import compress
from tidelog.wire.record_batch import (
    CODEC_MASK,
    CONTROL,
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    crc_of,
    pack_batch,
    payload_of,
    read_header,
)
from tidelog.wire.records import RecordSpan, scan_records, shift_timestamp
from tidelog.wire.records_keys import pick_records

READ_CHUNK: Final = 1 << 20
PEEK_CHUNK: Final = 1 << 16
WRITE_CHUNK: Final = 1 << 20


class CompactionStats(msgspec.Struct):
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    batches_copied: int = 0
    batches_rewritten: int = 0
    batches_emptied: int = 0
    batches_dropped: int = 0
    batches_undecodable: int = 0
    tombstones_dropped: int = 0
    keys: int = 0


def read_batches(
    file: File, start_offset: int = 0, skip: Callable[[BatchHeader], bool] | None = None
) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """Whole, verified batches that end at or behind `start_offset`, in memory a chunk or one batch at a time.

    A batch is `header.size` bytes of the chunk it comes with, from the position named. Where `skip` says so its bytes
    are neither read nor verified and the chunk is empty; never the last one's, which may become the segment's end.
    """
    position, end = 0, file.size
    wanted = READ_CHUNK
    while position < end:
        chunk = file.read(position, min(wanted, end - position))
        used = 0
        while used + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, used)
            size = header.size
            left = end - position - used
            if header.magic != MAGIC or not HEADER_SIZE <= size <= left:
                raise CorruptMessage(f"{file.path}: no batch at {position + used}")
            if header.last_offset < start_offset:
                used += size
                continue
            if skip is not None and size < left and skip(header):
                used += size
                yield header, b"", 0
                continue
            if used + size > len(chunk):
                if used:
                    break
                chunk = file.read(position, size)
            used += size
            if used > len(chunk) or crc_of(memoryview(chunk)[used - size : used]) != header.crc:
                raise CorruptMessage(f"{file.path}: the batch at {position + used - size} does not match its checksum")
            yield header, chunk, used - size
        if not used:
            raise CorruptMessage(f"{file.path}: incomplete batch header at {position}")
        # Behind a large batch that was stepped over there is likely another.
        wanted = READ_CHUNK if used <= len(chunk) else PEEK_CHUNK
        position += used


def decode(header: BatchHeader, batch: memoryview) -> tuple[bytes, list[RecordSpan]] | None:
    """The payload and its records; None if its producer never wrote a readable batch, which is then left alone."""
    try:
        payload = payload_of(header, batch)
        return payload, list(scan_records(payload, header.records_count, header.last_offset_delta))
    except CorruptMessage:
        return None


class RecordFilter(msgspec.Struct, frozen=True):
    """Which records survive, and the batch that holds them afterwards."""

    keys: KeyMap
    last: LastOffsets
    upper: int
    now_ms: int
    delete_retention_ms: int
    last_offsets: dict[int, int]
    decisions: Decisions
    markers: MarkersInUse
    stats: CompactionStats

    def is_gone(self, header: BatchHeader) -> bool:
        """Whether nothing of this batch stays, not even its header, as far as can be told without its records.

        Only where the first pass has verified it.
        """
        if header.attributes & CONTROL or header.records_count == 0 or self._is_last_of_producer(header):
            return False
        if self.decisions.aborted(header):
            return self.keys.start <= header.base_offset and header.last_offset < self.keys.end
        return self.last.survivors(header) == 0

    def drop(self, header: BatchHeader) -> None:
        """A batch that `is_gone`."""
        self.markers.met_batch(header)
        self.stats.records_read += header.records_count
        self.stats.batches_dropped += 1

    def clean(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """The batch to keep in place of `batch`: the same bytes, a smaller one, a bare header, or None."""
        stats = self.stats
        if header.attributes & CONTROL:
            return self._clean_marker(header, batch)
        self.markers.met_batch(header)
        if header.base_offset >= self.keys.end or header.last_offset >= self.upper:
            stats.batches_copied += 1
            return batch
        if self.decisions.aborted(header):
            stats.records_read += header.records_count
            return self._emptied(header, batch)
        survivors = self.last.survivors(header)
        if survivors == 0 or (survivors == header.records_count and not self.last.has_tombstones(header)):
            stats.records_read += header.records_count
            stats.records_kept += survivors
            if not survivors:
                return self._emptied(header, batch)
            stats.batches_copied += 1
            return batch
        if survivors is not None and is_whole(header):
            payload = payload_of(header, batch)
            spans = list(pick_records(payload, self.last.deltas(header)))
        else:
            decoded = decode(header, batch)
            if decoded is None:
                stats.batches_undecodable += 1
                return batch
            payload, spans = decoded
        kept, tombstones = self._survivors(header, spans)
        stats.records_read += header.records_count
        stats.records_kept += len(kept)
        if not kept:
            return self._emptied(header, batch)
        starts_clock = tombstones and not header.attributes & HAS_DELETE_HORIZON
        if len(kept) == header.records_count and not starts_clock:
            stats.batches_copied += 1
            return batch
        stats.batches_rewritten += 1
        return self._rewritten(header, payload, kept, starts_clock=starts_clock)

    def _clean_marker(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        if header.records_count == 0:
            return None  # a marker once, kept for its offset at the end of a segment
        in_use = self.markers.met_marker(header)
        if in_use or header.last_offset >= self.keys.end:
            self.stats.batches_copied += 1
            return batch
        if not header.attributes & HAS_DELETE_HORIZON:
            # The last batch of its transaction is gone: from now on it stays as long as a tombstone would.
            decoded = decode(header, batch)
            if decoded is not None:
                self.stats.batches_rewritten += 1
                return self._rewritten(header, *decoded, starts_clock=True)
        elif header.base_timestamp <= self.now_ms:
            return None
        self.stats.batches_copied += 1
        return batch

    def _survivors(self, header: BatchHeader, spans: list[RecordSpan]) -> tuple[list[RecordSpan], bool]:
        attributes, base_offset, mapped_end = header.attributes, header.base_offset, self.keys.end
        drop_tombstones = bool(attributes & HAS_DELETE_HORIZON) and header.base_timestamp <= self.now_ms
        latest = self.keys.offsets.get
        kept: list[RecordSpan] = []
        tombstones = False
        for span in spans:
            _, _, delta, _, key, has_value = span
            offset = base_offset + delta
            if offset < mapped_end:
                if key is None or latest(key if len(key) < DIGEST_SIZE else key_digest(key), -1) > offset:
                    continue
                if not has_value:
                    if drop_tombstones:
                        self.stats.tombstones_dropped += 1
                        continue
                    tombstones = True
            kept.append(span)
        return kept, tombstones

    def _emptied(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        if not self._is_last_of_producer(header):
            return None
        if header.records_count == 0:
            self.stats.batches_copied += 1
            return batch
        self.stats.batches_emptied += 1
        return bare_header(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """That batch carries its producer's sequence, so its header outlives its records."""
        return header.producer_id >= 0 and self.last_offsets.get(header.producer_id) == header.last_offset

    def _rewritten(self, header: BatchHeader, payload: bytes, kept: list[RecordSpan], *, starts_clock: bool) -> bytes:
        """Base and last offset and the sequence stay: consumers and producers must see the same log, with holes."""
        attributes, base_timestamp = header.attributes, header.base_timestamp
        max_timestamp = header.max_timestamp
        if not attributes & LOG_APPEND_TIME:
            max_timestamp = base_timestamp + max(delta for _, _, _, delta, _, _ in kept)
        if starts_clock:
            # The base timestamp becomes the time until which these tombstones stay (KIP-534).
            base_timestamp = self.now_ms + self.delete_retention_ms
            attributes |= HAS_DELETE_HORIZON
            shift = header.base_timestamp - base_timestamp
            records = b"".join([shift_timestamp(payload, start, end, shift) for start, end, *_ in kept])
        else:
            records = b"".join([payload[span[0] : span[1]] for span in kept])
        codec = attributes & CODEC_MASK
        changed = header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=len(kept),
        )
        return pack_batch(changed, compress(codec, records) if codec else records)


def bare_header(header: BatchHeader) -> bytes:
    """The batch without its records: the same offsets, producer and sequence."""
    attributes = header.attributes & ~(CODEC_MASK | HAS_DELETE_HORIZON)
    return pack_batch(header._replace(attributes=attributes, base_timestamp=-1, records_count=0), b"")


class CleanedSegment:
    """A segment being written under `.cleaned` names, with the indexes that belong to it.

    As long as it equals the beginning of its first source no log is written: a segment that needs no cleaning costs
    only its reading. Its last batch is that of its last source, if need be as a bare header, so that the files alone
    tell which offsets it stands for.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, source: File, index_interval: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.path = f"{directory}/{offset_name(base_offset, LOG + CLEANED)}"
        self._disk = disk
        self._source = source
        self._file: File | None = None
        self._index = OffsetIndex(disk, f"{directory}/{offset_name(base_offset, INDEX + CLEANED)}")
        self._times = TimeIndex(disk, f"{directory}/{offset_name(base_offset, TIME_INDEX + CLEANED)}")
        txn_path = f"{directory}/{offset_name(base_offset, TXN_INDEX + CLEANED)}"
        self._transactions = SegmentTransactions(disk, txn_path, base_offset)
        self._aborted: list[AbortedTransaction] = []
        self._interval = index_interval
        self._bytes_since_entry = 0
        self._newest = (-1, 0)
        self._waiting = bytearray()
        self._dropped: BatchHeader | None = None  # the batch before this point, if it was dropped

    @property
    def changed(self) -> bool:
        return self._file is not None

    @property
    def index_bytes(self) -> int:
        return OFFSET_ENTRY_SIZE * len(self._index)

    def change(self) -> None:
        """From here on it is a file of its own."""
        if self._file is not None:
            return
        self._file = self._disk.open(self.path, create=True)
        self._file.truncate(0)  # whatever a compaction that did not finish has left
        for position in range(0, self.size, WRITE_CHUNK):
            self._file.append(self._source.read(position, min(WRITE_CHUNK, self.size - position)))

    def add(self, batch: bytes | memoryview, *, original: bool) -> None:
        if not original or self._dropped is not None:
            self.change()
            self._dropped = None
        header = read_header(batch)
        if header.max_timestamp > self._newest[0]:
            self._newest = header.max_timestamp, header.last_offset - self.base_offset
        if self._bytes_since_entry > self._interval:
            self._index.append(header.last_offset - self.base_offset, self.size)
            self._times.append_if_newer(*self._newest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(batch)
        self.size += len(batch)
        if self._file is not None:
            self._waiting += batch
            if len(self._waiting) >= WRITE_CHUNK:
                self._write(self._file)

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Its marker was added."""
        self._aborted.append(aborted)

    def drop(self, header: BatchHeader) -> None:
        if self._dropped is not None:
            self.change()
        self._dropped = header

    def finish(self) -> int:
        """All of it is on the disk when this returns the bytes written; nothing trusts it before."""
        last, self._dropped = self._dropped, None
        if last is not None:
            already_bare = last.records_count == 0
            self.add(pack_batch(last, b"") if already_bare else bare_header(last), original=already_bare)
        if self._file is None:
            self.discard()
            return 0
        self._write(self._file)
        self._times.append_if_newer(*self._newest)
        for index in (self._index, self._times):
            index.rewrite()
            self._disk.open(index.path).sync()
        self._transactions.replace(self._aborted)
        self._file.sync()
        self._file.close()
        return self.size

    def discard(self) -> None:
        for path in (self.path, self._index.path, self._times.path, self._transactions.path):
            self._disk.remove(path)

    def _write(self, file: File) -> None:
        if self._waiting:
            file.append(self._waiting)
            self._waiting = bytearray()
