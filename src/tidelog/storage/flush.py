"""Making appended batches durable: what to sync is decided on the loop, the syncing happens in a thread."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tidelog.storage.disk import OUT_OF_DESCRIPTORS, Disk, File
from tidelog.storage.segment import Segment


class Flush:
    """One group commit. `run` in a thread, then `Log.complete_flush` on the loop."""

    __slots__ = (
        "_disk",
        "_fail",
        "_unwritten",
        "directories",
        "done",
        "end_offset",
        "epochs",
        "file",
        "files",
        "generation",
        "segments",
    )

    def __init__(
        self,
        disk: Disk,
        fail: Callable[[str], None],
        *,
        file: File,
        segments: Mapping[Segment, File],
        files: Sequence[str],
        directories: Sequence[str],
        epochs: tuple[str, bytes] | None,
        unwritten: OSError | None,
        end_offset: int,
        generation: int,
    ) -> None:
        self._disk = disk
        self._fail = fail
        self.file = file
        self.segments = segments  # sealed since the last flush: their indexes are final and synced with them
        self.files = files
        self.directories = directories
        self.epochs = epochs  # where they are written, and what
        self._unwritten = unwritten  # or why not
        self.end_offset = end_offset
        self.generation = generation
        self.done = False

    def run(self) -> None:
        """Raises OSError, after which the log is failed for good: the kernel may have dropped the dirty pages, and a
        second fsync would say OK without them. Only for want of a descriptor it may be run again: nothing was synced
        in vain."""
        try:
            if self._unwritten is not None:
                raise self._unwritten
            if self.epochs is not None:
                self._sync_epochs(self.epochs[0])
            for path in self.files:
                self._sync_file(path)
            for segment, file in self.segments.items():
                file.sync()
                segment.sync_indexes()
            self.file.sync()
            for directory in self.directories:
                self._disk.sync_dir(directory)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                self._fail(f"cannot sync {self.file.path}: {error}")
            raise
        self.done = True

    def _sync_epochs(self, path: str) -> None:
        """As they are by now. Written by the loop alone: what a thread took along may be older than what another flush
        has made durable meanwhile, and a recovery takes a batch of an epoch that it was not told of for damage."""
        self._sync_file(path)
        with suppress(FileNotFoundError):
            self._disk.sync_dir(path.rpartition("/")[0])

    def _sync_file(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return  # removed meanwhile, with the log it is of
        try:
            file.sync()
        finally:
            file.close()


class RestartPoint:
    """A place in the active segment from which a recovery may begin: indexes synced, then a producer snapshot there."""

    __slots__ = ("_disk", "_index_paths", "_snapshot", "done", "generation", "offset")

    def __init__(
        self, disk: Disk, index_paths: Sequence[str], snapshot: tuple[str, bytes], offset: int, generation: int
    ) -> None:
        self._disk = disk
        self._index_paths = index_paths
        self._snapshot = snapshot
        self.offset = offset
        self.generation = generation
        self.done = False

    def run(self) -> None:
        """Thread. A failure only means that a recovery would begin earlier."""
        with suppress(OSError):
            for path in self._index_paths:
                self._disk.open(path).sync()
            self._disk.write_atomic(*self._snapshot)
            self.done = True
