"""Opening a partition directory: what was there, what can be believed, what has to be made again.

After a clean stop nothing is scanned: the end is found from the last index entry. After anything else every batch
behind the recovery point is checked; the log is cut at the first that is not whole. If undamaged batches follow the
cut, this was no torn write: the bytes are kept in `<base>.log.corrupt-<position>` and reported.

Scanning begins at the newest producer snapshot at or before the recovery point when that lies in the same segment: a
snapshot between segments is only taken after the indexes up to it were synced, so all before it can be believed.
"""

from contextlib import suppress

import msgspec

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.storage.disk import Disk
from tidelog.storage.epochs import UNDEFINED_EPOCH, EpochsCorrupt, LeaderEpochs
from tidelog.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from tidelog.storage.naming import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    SEGMENT_FILES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    corrupt_name,
    offset_name,
    parse_offset_name,
)
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.replay import load_producers, rebuild_txn_indexes, replay_batch
from tidelog.storage.scan import BatchReader, Expectation, disagrees, find_batch, misfit
from tidelog.storage.segment import Segment
from tidelog.storage.snapshots import Snapshots
from tidelog.storage.swap import finish_swap
from tidelog.storage.verify import VerifyReport, verify
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import CONTROL

__all__ = ["CorruptRange", "Opened", "Recovery", "RecoveryReport", "VerifyReport", "verify"]


class CorruptRange(msgspec.Struct, frozen=True):
    segment: str
    position: int
    reason: str


class RecoveryReport(msgspec.Struct):
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    corrupt: list[CorruptRange] = msgspec.field(default_factory=list)
    rebuilt: list[str] = msgspec.field(default_factory=list)
    quarantined: list[str] = msgspec.field(default_factory=list)

    @property
    def eventful(self) -> bool:
        return bool(self.bytes_truncated or self.corrupt or self.rebuilt or self.quarantined)


class Opened(msgspec.Struct):
    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: Snapshots
    report: RecoveryReport


class Recovery:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        *,
        now_ms: int,
        recovery_point: int,
        clean: bool,
        start_offset: int,
        opened: OpenSegments,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.recovery_point = recovery_point
        self.clean = clean
        self.start_offset = start_offset
        self.opened = opened
        self.report = RecoveryReport()
        self.segments: list[Segment] = []
        self._scanned: set[int] = set()
        self.changed = not clean

    def run(self) -> Opened:
        self.names = self._tidy()
        self.snapshots = Snapshots(self.disk, self.directory, list(self.names))
        self._list_segments(self.names)
        self.checkpoint = self._read_epochs()
        self.epochs = self.checkpoint.copy() if self.checkpoint else LeaderEpochs()
        if not (self.clean and self._open_clean()):
            self._open_unclean()
        end = self.segments[-1].next_offset
        self.snapshots.remove_above(end)
        if not self.clean:
            self.snapshots.remove_unreadable()
        self.snapshots.prune([segment.base_offset for segment in self.segments])
        self._finish_epochs(end)
        lost = rebuild_txn_indexes(self.snapshots, self.segments, self._lost_txn_index)
        self.report.rebuilt += lost
        self.changed = self.changed or bool(lost)
        for segment in self.segments:
            self._check_index_files(segment)
            self.report.rebuilt += segment.rebuilt
            if not self.clean and segment.next_offset >= self.recovery_point:
                segment.file.sync()
                if segment.sealed:
                    segment.sync_indexes()
        if self.changed:
            self.disk.sync_dir(self.directory)
        self.producers.transactions.settle(end)
        return Opened(self.segments, self.epochs, self.producers, self.snapshots, self.report)

    # -- what is there ---------------------------------------------------------------------------------------------

    def _tidy(self) -> dict[str, int]:
        """Finish or undo what a crash interrupted, and list what remains."""
        names = self.disk.sizes(self.directory)
        leftovers = [name for name in names if name.endswith((DELETED, ".tmp", CLEANED, SWAP))]
        if leftovers:
            self.changed = True
            for name in leftovers:
                if name.endswith((DELETED, ".tmp")):
                    self.disk.remove(f"{self.directory}/{name}")
            finish_swap(self.disk, self.directory, names)
            names = self.disk.sizes(self.directory)
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if dot + suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem + LOG not in names:
                self.disk.remove(f"{self.directory}/{name}")
        return names

    def _list_segments(self, names: dict[str, int]) -> None:
        logs = [parse_offset_name(name) for name in names if name.endswith(LOG)]
        bases = sorted(parsed[0] for parsed in logs if parsed)
        interval = self.config.index_interval_bytes
        for base in bases:
            size = names[offset_name(base, LOG)]
            segment = Segment(
                self.disk, self.directory, base, size=size, index_interval=interval, created_ms=self.now_ms
            )
            segment.transactions.size = names.get(offset_name(base, TXN_INDEX), 0)
            self.segments.append(segment)
        if not bases:
            self.segments.append(
                Segment.create(
                    self.disk, self.directory, self.start_offset, index_interval=interval, now_ms=self.now_ms
                )
            )
            self.changed = True
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            segment.next_offset = following.base_offset
            self._set_sealed(segment)

    def _check_index_files(self, segment: Segment) -> None:
        """Sealed segments are looked into when they are read; that their indexes are there at all is seen here."""
        if not segment.sealed or segment.rebuilt:
            return
        for suffix, entry_size in ((INDEX, OFFSET_ENTRY_SIZE), (TIME_INDEX, TIME_ENTRY_SIZE)):
            size = self.names.get(offset_name(segment.base_offset, suffix))
            if size is None or size % entry_size:
                with suppress(CorruptMessage):  # readers will be told; verify says more
                    segment.rebuild_indexes()
                return

    def _lost_txn_index(self, segment: Segment) -> bool:
        if not segment.size or segment.base_offset in self._scanned:
            return False
        size = self.names.get(offset_name(segment.base_offset, TXN_INDEX))
        return size is None or (size > 0 and not segment.transactions.is_sound(segment.next_offset))

    def _set_sealed(self, segment: Segment) -> None:
        segment.sealed = True
        segment.opened = self.opened

    def _read_epochs(self) -> LeaderEpochs | None:
        try:
            return LeaderEpochs.decode(self.disk.read_all(f"{self.directory}/{LEADER_EPOCHS}"))
        except (FileNotFoundError, EpochsCorrupt):
            return None

    # -- after a clean stop ----------------------------------------------------------------------------------------

    def _open_clean(self) -> bool:
        """False if the directory is not what a clean stop leaves."""
        active = self.segments[-1]
        try:
            active.resume(active.size)
        except CorruptMessage:
            return False
        if active.next_offset < self.recovery_point:
            return False
        self.producers = load_producers(self.snapshots, self.segments, active.next_offset, self.now_ms)
        return True

    # -- after anything else ---------------------------------------------------------------------------------------

    def _open_unclean(self) -> None:
        first = self._first_to_scan()
        position, expected_offset = self._restart_point(first)
        self.producers = load_producers(self.snapshots, self.segments[:first], expected_offset, self.now_ms)
        self._last_epoch = UNDEFINED_EPOCH
        last = len(self.segments) - 1
        for slot in range(first, last + 1):
            segment = self.segments[slot]
            limit = self.segments[slot + 1].base_offset if slot < last else None
            stop = self._scan(segment, position, max(expected_offset, segment.base_offset), limit)
            if stop is None and limit is not None and segment.next_offset < limit > self.recovery_point:
                # Compaction keeps the last batch of a segment, so this is an unsynced end that was lost.
                stop = segment.size, f"ends before {segment.next_offset}, but the next segment begins at {limit}"
            if stop is not None:
                self._cut(slot, *stop)
                return
            expected_offset = max(expected_offset, segment.next_offset)
            position = 0
            if limit is not None:
                segment.seal()
                segment.reach(limit)
                self._set_sealed(segment)

    def _first_to_scan(self) -> int:
        """The segment that holds the last synced offset. Even if it is whole, its indexes may not be: they are synced
        by the first flush after it was sealed."""
        for slot in range(len(self.segments) - 1, 0, -1):
            if self.segments[slot].base_offset < self.recovery_point:
                return slot
        return 0

    def _restart_point(self, slot: int) -> tuple[int, int]:
        """Where in this segment the scan may begin: (position, offset) of its newest snapshot, else of its start."""
        segment = self.segments[slot]
        begin = 0, segment.base_offset
        newest = self.recovery_point
        if slot + 1 < len(self.segments):
            # One at the next segment's base was taken when it rolled, and says nothing about synced indexes.
            newest = min(newest, self.segments[slot + 1].base_offset - 1)
        found = self.snapshots.newest(newest, self.now_ms)
        if found is None or found[0] <= segment.base_offset:
            return begin
        if offset_name(segment.base_offset, TXN_INDEX) not in self.names:
            return begin
        offset = found[0]
        try:
            segment.next_offset = max(segment.next_offset, offset + 1)
            position, _ = segment.locate(offset)
            segment.resume(position)
        except CorruptMessage:
            return begin
        return (position, offset) if segment.next_offset == offset else begin

    def _scan(self, segment: Segment, position: int, expected_offset: int, limit: int | None) -> tuple[int, str] | None:
        """Check and account for every batch from `position`. Returns where and why it stopped, if it did."""
        if position == 0:
            lost = [segment.path_of(suffix) for suffix in (INDEX, TIME_INDEX)]
            segment.rebuilt += [path for path in lost if segment.size and path.rpartition("/")[2] not in self.names]
            segment.start_indexes()
            segment.next_offset = segment.base_offset
        self._scanned.add(segment.base_offset)
        transactions = segment.transactions.begin_scan(expected_offset if position else segment.base_offset)
        reader = BatchReader(segment.file, segment.size)
        while position < segment.size:
            header = reader.check(position)
            if isinstance(header, str):
                return position, header
            if self.checkpoint is not None and disagrees(reader, position, header, self.checkpoint):
                self.checkpoint = None  # made again from the log
            expected = Expectation(
                expected_offset, self._last_epoch, self.checkpoint, self.recovery_point, limit, self.config.compacted
            )
            reason = misfit(reader, position, header, expected)
            if reason:
                return position, reason
            size = header.size
            try:
                marker = read_marker(reader.read(position, size)) if header.attributes & CONTROL else None
            except CorruptMessage as error:
                return position, str(error)
            aborted = replay_batch(self.producers, header, marker, self.now_ms)
            if aborted is not None:
                transactions.note(aborted)
            segment.note(header.base_offset, header.last_offset, header.max_timestamp, position, size)
            self._last_epoch = header.partition_leader_epoch
            self.epochs.assign(self._last_epoch, expected_offset)
            self.report.bytes_scanned += size
            position += size
            expected_offset = header.last_offset + 1
        self._write_indexes(segment)
        return None

    def _write_indexes(self, segment: Segment) -> None:
        segment.transactions.end_scan(self.names.get(offset_name(segment.base_offset, TXN_INDEX), 0))
        segment.write_indexes()

    # -- cutting ---------------------------------------------------------------------------------------------------

    def _cut(self, slot: int, position: int, reason: str) -> None:
        """End the log at `position` of segment `slot`. Undamaged or once synced bytes behind it are kept aside."""
        segment = self.segments[slot]
        later = self.segments[slot + 1 :]
        end_offset = segment.next_offset
        torn = not any(other.size for other in later) and end_offset >= self.recovery_point
        if torn:
            torn = find_batch(segment.file, position, segment.size, end_offset) is None
        name = segment.path.rpartition("/")[2]
        if not torn:
            self.report.corrupt.append(CorruptRange(name, position, reason))
            if position < segment.size:
                self._keep_aside(segment, position)
        self.report.bytes_truncated += segment.size - position
        for other in later:
            self.report.bytes_truncated += other.size
            self._drop(other)
        self.segments = self.segments[: slot + 1]
        segment.file.truncate(position)
        segment.size = position
        segment.sealed = False
        segment.opened = None
        self.opened.forget(segment)
        self._write_indexes(segment)
        segment.file.sync()
        self.changed = True

    def _keep_aside(self, segment: Segment, position: int) -> None:
        target = f"{self.directory}/{corrupt_name(segment.base_offset, position)}"
        if not self.disk.exists(target):
            copy = self.disk.open(target + ".tmp", create=True)
            copy.truncate(0)
            at = position
            while at < segment.size:
                piece = segment.file.read(at, min(1 << 20, segment.size - at))
                if not piece:
                    break
                copy.append(piece)
                at += len(piece)
            copy.sync()
            self.disk.rename(target + ".tmp", target)
            self.disk.sync_dir(self.directory)
        self.report.quarantined.append(target)

    def _drop(self, segment: Segment) -> None:
        """A whole segment behind a cut: its log is renamed out of the way, its indexes go."""
        self.opened.forget(segment)
        segment.release()
        if segment.size:
            target = f"{self.directory}/{corrupt_name(segment.base_offset, 0)}"
            self.disk.rename(segment.path, target)
            self.report.quarantined.append(target)
        for suffix in SEGMENT_FILES:
            self.disk.remove(segment.path_of(suffix))

    # -- leader epochs ---------------------------------------------------------------------------------------------

    def _finish_epochs(self, end: int) -> None:
        path = f"{self.directory}/{LEADER_EPOCHS}"
        if self.checkpoint is None and any(segment.size for segment in self.segments):
            self.epochs = LeaderEpochs()
            after = self.segments[0].base_offset
            for segment in self.segments:
                for _, header in segment.headers():
                    self.epochs.assign(header.partition_leader_epoch, after)
                    after = header.last_offset + 1
            self.report.rebuilt.append(path)
        elif self.checkpoint is None and LEADER_EPOCHS in self.names:
            self.epochs.dirty = True  # unreadable, and no batch to learn from: an empty one is the truth
        self.epochs.truncate_from_end(end)
        if self.epochs.dirty:
            self.disk.write_atomic(path, self.epochs.encode())
            self.epochs.dirty = False
