"""The durable half of a log: opening it, flushing it, marking where a recovery may begin, closing it.

What to sync is decided on the loop and done in a thread; nothing counts as flushed before the thread's work came back.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage, StorageOffline, invariant
from tidelog.ids import TopicPartition
from tidelog.storage import snapshots as snapshot_format
from tidelog.storage.chain import Chain
from tidelog.storage.disk import Disk
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.flush import Flush, RestartPoint
from tidelog.storage.naming import INDEX, LEADER_EPOCHS, TIME_INDEX, TXN_INDEX
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.recovery import Recovery, RecoveryReport
from tidelog.storage.segment import Segment
from tidelog.storage.snapshots import Snapshots

RESTART_POINT_BYTES: Final = 16 << 20  # what a recovery may have to read again


class DurableLog:
    """What `Log` stands on: segments, epochs and producers as opened from a directory, and how they become durable."""

    def __init__(self, partition: TopicPartition, recovery: Recovery) -> None:
        opened = recovery.run()
        self.disk = recovery.disk
        self.directory = recovery.directory
        self.partition = partition
        self.config = recovery.config
        self.epochs: LeaderEpochs = opened.epochs
        self.producers: ProducerStates = opened.producers
        self.producers.doubtful = set(self.producers.transactions.open)
        self.recovery: RecoveryReport = opened.report
        self.end_offset = opened.segments[-1].next_offset
        self.start_offset = min(max(recovery.start_offset, opened.segments[0].base_offset), self.end_offset)
        self.flushed_offset = self.end_offset  # recovery syncs what it keeps
        self.failure: str | None = None
        self.restart_point_bytes = RESTART_POINT_BYTES
        self._chain = Chain(self.disk, self.directory, opened.segments, recovery.opened)
        self._snapshots: Snapshots = opened.snapshots
        self._unsynced_directories: list[str] = []
        self._unsynced_files: list[str] = []
        self._epochs_written = b""  # since this log was opened
        self._dirty = False  # something was written since the last flush began
        self._cut = False  # it was made shorter, and that is not durable yet
        self._generation = 0  # of truncations: a flush begun before one says nothing about what came after
        self._lowest_cut: int | None = None
        self._snapshot_at = 0  # position in the active segment of the last producer snapshot
        self._closed = False
        self._touched = not recovery.clean or opened.report.eventful  # closing has something to write
        if not self._touched:
            self.active_segment.release()  # an idle partition costs no descriptor

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        clean: bool = False,
        start_offset: int = 0,
        open_segments: OpenSegments | None = None,
    ) -> Self:
        """Recovers what needs it; what is found valid is durable when this returns."""
        recovery = Recovery(
            disk,
            directory,
            config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            clean=clean,
            start_offset=start_offset,
            opened=OpenSegments() if open_segments is None else open_segments,
        )
        return cls(partition, recovery)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        now_ms: int,
        start_offset: int = 0,
        open_segments: OpenSegments | None = None,
    ) -> Self:
        disk.make_dir(directory)
        log = cls.open(
            disk,
            directory,
            partition,
            config,
            now_ms=now_ms,
            recovery_point=start_offset,
            start_offset=start_offset,
            open_segments=open_segments,
        )
        log._unsynced_directories = [directory, directory.rpartition("/")[0]]
        return log

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def segments(self) -> list[Segment]:
        return self._chain.segments

    @property
    def active_segment(self) -> Segment:
        return self._chain.active

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.active_segment.index_interval = config.index_interval_bytes

    def fail(self, reason: str) -> None:
        """For good. Safe to call from a thread."""
        if self.failure is None:
            self.failure = reason

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def generation(self) -> int:
        """How often it was made shorter since it was opened: what was read before may not be there any more."""
        return self._generation

    @property
    def lowest_cut(self) -> int | None:
        """Up to here it is what it was when it was opened, however often it was made shorter."""
        return self._lowest_cut

    @property
    def closed(self) -> bool:
        """Closed or deleted: what still runs for it in a thread no longer matters."""
        return self._closed

    def _names_changed(self) -> None:
        """The next flush syncs the directory too."""
        self._touched = True
        if self.directory not in self._unsynced_directories:
            self._unsynced_directories.append(self.directory)

    def write_beside(self, name: str, content: bytes) -> None:
        """A small file in the log's directory, durable with the next flush."""
        path = f"{self.directory}/{name}"
        self.disk.write_atomic(path, content, durable=False)
        self._unsynced_files.append(path)
        self._names_changed()

    @contextmanager
    def _all_or_offline(self, what: str) -> Iterator[None]:
        """For what a failing disk may interrupt: files and memory would tell different stories, until it is opened
        again."""
        try:
            yield
        except (OSError, CorruptMessage) as error:
            self.fail(f"{what} did not finish: {error}")
            raise StorageOffline(f"{self.partition}: {error}") from error

    def _check_online(self) -> None:
        if self.failure is not None:
            raise StorageOffline(f"{self.partition} is offline: {self.failure}")

    # -- flush -----------------------------------------------------------------------------------------------------

    def begin_flush(self) -> Flush | None:
        """What a thread must sync for everything appended so far to be durable; None if it is already."""
        self._check_online()
        if not (self._dirty or self._unsynced_directories or self.epochs.dirty):
            return None
        epochs, unwritten = None, None
        if self.epochs.dirty:
            epochs = f"{self.directory}/{LEADER_EPOCHS}", self.epochs.encode()
            try:
                self._write_epochs(epochs[1])
            except OSError as error:
                unwritten = error
        return Flush(
            self.disk,
            self.fail,
            file=self.active_segment.file,
            segments=dict(self._chain.unsynced),
            files=tuple(self._unsynced_files),
            directories=tuple(self._unsynced_directories),
            epochs=epochs,
            unwritten=unwritten,
            end_offset=self.end_offset,
            generation=self._generation,
        )

    def _write_epochs(self, content: bytes) -> None:
        """Not durable yet: the next flush sees to that."""
        if content != self._epochs_written:
            self.disk.write_atomic(f"{self.directory}/{LEADER_EPOCHS}", content, durable=False)
            self._epochs_written = content

    def complete_flush(self, flush: Flush) -> None:
        """Back on the loop: what the flush synced may be acknowledged."""
        if self._closed:
            return  # deleted while the sync ran; nobody waits for it
        self._check_online()
        invariant(flush.done, "a flush that did not finish cannot complete")
        if flush.generation != self._generation:
            return
        self._cut = False
        self.flushed_offset = max(self.flushed_offset, flush.end_offset)
        for segment in flush.segments:
            self._chain.unsynced.pop(segment, None)
        self._unsynced_files = [path for path in self._unsynced_files if path not in flush.files]
        self._unsynced_directories = [path for path in self._unsynced_directories if path not in flush.directories]
        if flush.epochs is not None and flush.epochs[1] == self.epochs.encode():
            self.epochs.dirty = False
        if flush.end_offset == self.end_offset:
            self._dirty = False

    def flush(self) -> None:
        """All three steps at once, for a caller that may block."""
        flush = self.begin_flush()
        if flush is not None:
            flush.run()
            self.complete_flush(flush)

    def begin_restart_point(self) -> RestartPoint | None:
        """If a recovery would have much to read: a snapshot from which it could begin. `run` it in a thread."""
        active = self.active_segment
        if self.failure is not None or active.size - self._snapshot_at < self.restart_point_bytes:
            return None
        try:
            active.write_indexes()
        except OSError:
            return None
        self._snapshot_at = active.size
        snapshot = self._snapshots.path(self.end_offset), snapshot_format.encode(self.producers)
        paths = [active.path_of(suffix) for suffix in (INDEX, TIME_INDEX, TXN_INDEX)]
        return RestartPoint(self.disk, paths, snapshot, self.end_offset, self._generation)

    def complete_restart_point(self, point: RestartPoint) -> None:
        if not point.done:
            return
        self._snapshots.taken(point.offset)
        if point.generation != self._generation:
            self._snapshots.remove(point.offset)
        self._snapshots.prune([segment.base_offset for segment in self.segments])

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, leave what makes the next opening quick, and let go of the files."""
        if self.failure is None and self._touched:
            self.flush()
            with suppress(OSError):
                self.active_segment.write_indexes()
                self.active_segment.sync_indexes()
                self._snapshots.take(self.end_offset, self.producers)
                self._snapshots.prune([segment.base_offset for segment in self.segments])
        self.abandon("closed")

    def abandon(self, reason: str) -> None:
        """Let go of the files without writing anything: after a failure, or when the log is being deleted."""
        self._closed = True
        self.fail(reason)
        for segment in self.segments:
            segment.release()
