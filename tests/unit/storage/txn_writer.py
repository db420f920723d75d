"""Transactions for storage tests: a producer that knows its next sequence, and what a reader of committed records does
with a fetch."""

from dataclasses import dataclass
from itertools import pairwise

from batches import NOW

from tidelog.storage.compaction import CompactionRequest, compact
from tidelog.storage.log import Appended, Log, delete_segments
from tidelog.wire.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    build_batch,
    iter_batches,
    iter_records,
    read_header,
)
from tidelog.wire.records import Record

KeyValue = tuple[bytes, bytes | None]


@dataclass
class Writer:
    """One transactional producer in one partition."""

    log: Log
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    coordinator_epoch: int = 0

    def batch(self, *records: KeyValue, transactional: bool = True) -> bytearray:
        return bytearray(
            build_batch(
                [Record(i, NOW, key, value) for i, (key, value) in enumerate(records)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                attributes=TRANSACTIONAL if transactional else 0,
            )
        )

    def write(self, *records: KeyValue, transactional: bool = True, now_ms: int = NOW) -> Appended:
        """As a broker does it: asks the coordinator, who agrees, if that is needed."""
        batch = self.batch(*records, transactional=transactional)
        header = read_header(batch)
        verification = self.log.begin_verification(header) if self.log.needs_verification(header) else None
        appended = self.log.append(batch, leader_epoch=0, now_ms=now_ms, verification=verification)
        self.sequence += len(records)
        return appended

    def end(self, committed: bool, **options: int) -> Appended:
        return self.log.append_marker(
            self.producer_id,
            self.epoch,
            committed=committed,
            coordinator_epoch=options.get("coordinator_epoch", self.coordinator_epoch),
            leader_epoch=0,
            now_ms=options.get("now_ms", NOW),
            transaction_version=options.get("transaction_version", 1),
        )

    def commit(self) -> Appended:
        return self.end(True)

    def abort(self) -> Appended:
        return self.end(False)


def filter_committed(
    batches: list[tuple[BatchHeader, memoryview]], aborted: list[tuple[int, int]]
) -> list[tuple[int, bytes | None, bytes | None]]:
    """What clients do with the list of aborted transactions, in their words: from its first offset on a producer's
    batches are left out, until an abort marker of it comes by."""
    waiting = sorted(aborted, key=lambda each: each[1])
    ignored: set[int] = set()
    records: list[tuple[int, bytes | None, bytes | None]] = []
    for header, view in batches:
        while waiting and waiting[0][1] <= header.last_offset:
            ignored.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            for marker in iter_records(view):
                if marker.key is not None and marker.key[2:4] == b"\x00\x00":
                    ignored.discard(header.producer_id)
            continue
        if header.attributes & TRANSACTIONAL and header.producer_id in ignored:
            continue
        records += [(record.offset, record.key, record.value) for record in iter_records(view)]
    return records


def read_committed(
    log: Log, offset: int | None = None, high_watermark: int | None = None, max_bytes: int = 400
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Fetch after fetch, each small, as a read_committed consumer sees the log."""
    start = at = log.start_offset if offset is None else offset
    upper = log.last_stable_offset(log.end_offset if high_watermark is None else high_watermark)
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while at < upper:
        piece = log.read(at, max_bytes, upper=upper)
        if piece.length == 0:
            break
        batches = list(iter_batches(piece.file.read(piece.position, piece.length)))
        found += [each for each in filter_committed(batches, log.aborted_in(at, piece)) if each[0] >= start]
        at = batches[-1][0].last_offset + 1
    return found


def compact_log(
    log: Log, *, now_ms: int = NOW, last_offsets: dict[int, int] | None = None, high_watermark: int | None = None
) -> None:
    """All sealed segments below the last stable offset, as the cleaner does it."""
    stable = log.last_stable_offset(log.end_offset if high_watermark is None else high_watermark)
    bases = [segment.base_offset for segment in log.segments]
    sealed = [base for base, end in pairwise(bases) if end <= stable]
    if not sealed:
        return
    request = CompactionRequest(
        directory=log.directory,
        segments=tuple(sealed),
        first_dirty=0,
        upper=bases[len(sealed)],
        now_ms=now_ms,
        config=log.config,
        last_offsets=last_offsets
        if last_offsets is not None
        else {each.producer_id: each.last_offset_below(bases[len(sealed)]) for each in log.producers},
    )
    result = compact(log.disk, request)
    if result.replaced:
        old = [segment for segment in log.segments if segment.base_offset in result.replaced]
        delete_segments(log.swap_segments(old, result.cleaned))
