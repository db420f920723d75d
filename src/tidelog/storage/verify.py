"""Checking a whole partition directory without changing it: what `tidelog log verify` shows.

Unlike recovery this looks at every batch, goes on behind a damaged one, and holds the indexes, the epoch checkpoint and
the producer snapshots against what the log says.
"""

from itertools import zip_longest
from typing import Final

import msgspec

from tidelog.errors import CorruptMessage
from tidelog.storage.disk import Disk
from tidelog.storage.epochs import UNDEFINED_EPOCH, EpochsCorrupt, LeaderEpochs
from tidelog.storage.index import POSITION_MASK, IndexCorrupt, OffsetIndex, TimeIndex
from tidelog.storage.naming import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_name,
)
from tidelog.storage.scan import BatchReader, Expectation, find_batch, misfit
from tidelog.storage.snapshots import SnapshotCorrupt, decode
from tidelog.storage.transaction_index import AbortedTransaction, TransactionIndex
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import CONTROL, BatchHeader

_UNVOUCHED: Final = 0  # that a batch was synced once does not make it true now


class Problem(msgspec.Struct, frozen=True):
    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}"


class VerifyReport(msgspec.Struct):
    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    problems: list[Problem] = msgspec.field(default_factory=list)
    quarantined: list[str] = msgspec.field(default_factory=list)  # what earlier recoveries kept aside

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(disk: Disk, directory: str) -> VerifyReport:
    """Every checksum, every offset, every index entry. Read-only."""
    report = VerifyReport(directory)
    names = disk.sizes(directory)
    parsed = sorted(entry for entry in map(parse_offset_name, names) if entry)
    report.quarantined = [offset_name(*entry) for entry in parsed if ".corrupt-" in entry[1]]
    bases = [base for base, suffix in parsed if suffix == LOG]
    epochs = _check_epochs(disk, directory, names, report)
    expected_offset, epoch = (bases[0] if bases else 0), UNDEFINED_EPOCH
    report.start_offset = expected_offset
    for base, following in zip_longest(bases, bases[1:]):
        if base < expected_offset:
            report.problems.append(
                Problem(offset_name(base, LOG), 0, f"begins before {expected_offset}, where the segment before it ends")
            )
        segment = _SegmentCheck(disk, directory, base, names, report)
        expected_offset, epoch = segment.run(max(base, expected_offset), epoch, epochs, following)
    report.end_offset = expected_offset
    _check_snapshots(disk, directory, [base for base, suffix in parsed if suffix == SNAPSHOT], report)
    return report


class _SegmentCheck:
    def __init__(self, disk: Disk, directory: str, base: int, names: dict[str, int], report: VerifyReport) -> None:
        self._report = report
        self._base = base
        self._name = offset_name(base, LOG)
        self._size = names[self._name]
        self._file = disk.open(f"{directory}/{self._name}")
        self._entries, self._times = self._load_indexes(disk, directory, names)
        self._entry = self._time = 0  # the first entries that no batch has matched yet
        self._aborted = self._load_aborted(disk, directory, names)

    def _load_indexes(
        self, disk: Disk, directory: str, names: dict[str, int]
    ) -> tuple[OffsetIndex | None, TimeIndex | None]:
        entries: OffsetIndex | None = None
        times: TimeIndex | None = None
        for suffix in (INDEX, TIME_INDEX):
            name = offset_name(self._base, suffix)
            if name not in names:
                self._problem(0, "missing", name)
                continue
            try:
                if suffix == INDEX:
                    entries = OffsetIndex.load(disk, f"{directory}/{name}", self._size)
                else:
                    times = TimeIndex.load(disk, f"{directory}/{name}")
            except IndexCorrupt as error:
                self._problem(0, str(error).rpartition(": ")[2], name)
        return entries, times

    def _load_aborted(self, disk: Disk, directory: str, names: dict[str, int]) -> dict[int, AbortedTransaction]:
        """By the offset of the marker. Without the file nothing is wrong: Kafka makes it when it is needed."""
        name = offset_name(self._base, TXN_INDEX)
        if name not in names:
            return {}
        try:
            index = TransactionIndex.load(disk, f"{directory}/{name}", self._base)
        except IndexCorrupt as error:
            self._problem(0, str(error).rpartition(": ")[2], name)
            return {}
        return {entry.last_offset: entry for entry in index}

    def _problem(self, position: int, reason: str, name: str | None = None) -> None:
        self._report.problems.append(Problem(name or self._name, position, reason))

    def run(
        self, expected_offset: int, epoch: int, epochs: LeaderEpochs | None, following: int | None
    ) -> tuple[int, int]:
        """Returns the next offset and the last leader epoch."""
        reader = BatchReader(self._file, self._size)
        position = 0
        while position < self._size:
            header = reader.check(position)
            if isinstance(header, str):
                self._problem(position, header)
                found = find_batch(self._file, position + 1, self._size, expected_offset)
                if found is None:
                    break
                position = found
                continue
            expected = Expectation(expected_offset, epoch, epochs, _UNVOUCHED, following)
            reason = misfit(reader, position, header, expected)
            if reason:
                self._problem(position, reason)
            else:
                expected_offset = header.last_offset + 1
                epoch = header.partition_leader_epoch
            self._match_entries(position, header)
            aborted = self._aborted.pop(header.last_offset, None) if header.attributes & CONTROL else None
            if aborted is not None and not _aborts(header, reader.read(position, header.size), aborted):
                name = offset_name(self._base, TXN_INDEX)
                self._problem(0, f"the marker at {header.last_offset} aborts something else", name)
            self._report.batches += 1
            self._report.records += header.records_count
            position += header.size
        self._report.segments += 1
        self._report.bytes += self._size
        self._unmatched()
        return expected_offset, epoch

    def _match_entries(self, position: int, header: BatchHeader) -> None:
        """Both indexes ascend with the log, so one pass meets every entry."""
        entries = self._entries.entries if self._entries else ()
        while self._entry < len(entries) and (entries[self._entry] & POSITION_MASK) <= position:
            entry = entries[self._entry]
            if (entry & POSITION_MASK) != position or self._base + (entry >> 32) != header.last_offset:
                self._problem(self._entry * 8, "the entry does not point at its batch", offset_name(self._base, INDEX))
            self._entry += 1
        times = self._times
        while times and self._time < len(times) and self._base + times.offsets[self._time] <= header.last_offset:
            offset = self._base + times.offsets[self._time]
            if offset < header.base_offset or times.timestamps[self._time] != header.max_timestamp:
                name = offset_name(self._base, TIME_INDEX)
                self._problem(self._time * 12, "the entry does not fit the batch at its offset", name)
            self._time += 1

    def _unmatched(self) -> None:
        if self._entries is not None and self._entry < len(self._entries):
            self._problem(self._entry * 8, "entries behind the last batch", offset_name(self._base, INDEX))
        if self._times is not None and self._time < len(self._times):
            self._problem(self._time * 12, "entries behind the last batch", offset_name(self._base, TIME_INDEX))
        if self._aborted:
            self._problem(0, f"no marker at {min(self._aborted)}", offset_name(self._base, TXN_INDEX))


def _aborts(header: BatchHeader, batch: memoryview, aborted: AbortedTransaction) -> bool:
    try:
        marker = read_marker(batch)
    except CorruptMessage:
        return False
    return marker is not None and not marker.committed and header.producer_id == aborted.producer_id


def _check_epochs(disk: Disk, directory: str, names: dict[str, int], report: VerifyReport) -> LeaderEpochs | None:
    if LEADER_EPOCHS not in names:
        return None
    try:
        return LeaderEpochs.decode(disk.read_all(f"{directory}/{LEADER_EPOCHS}"))
    except EpochsCorrupt as error:
        report.problems.append(Problem(LEADER_EPOCHS, 0, f"not an epoch checkpoint: {error}"))
        return None


def _check_snapshots(disk: Disk, directory: str, offsets: list[int], report: VerifyReport) -> None:
    for offset in offsets:
        name = offset_name(offset, SNAPSHOT)
        try:
            decode(disk.read_all(f"{directory}/{name}"), 0)
        except SnapshotCorrupt as error:
            report.problems.append(Problem(name, 0, f"not a producer snapshot: {error}"))
