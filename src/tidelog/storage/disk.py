"""The only file I/O. Everything else in this room is handed a `Disk`, so a simulator can stand in for the real one.

Two promises hold the rest of the room up:

* `File.append` is all or nothing: after an error the file is as long as before, or it is marked failed for good.
* A `File` stays readable for as long as somebody holds it. `close` only ends writing; the descriptor goes with the last
  reference, so a fetch that is still being sent survives retention, compaction and eviction of its segment.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from typing import Final, Protocol

from tidelog.errors import StorageOffline

Buffer = bytes | bytearray | memoryview


OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of opening, never of writing or syncing: they pass, and say nothing about the disk."""

_temporary_names = itertools.count()


class DiskLocked(Exception):
    """Another broker is using this data directory."""


class File(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def failed(self) -> bool:
        """A write failed and could not be undone: what follows `size` on disk is unknown."""
        ...

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end and return its position, or raise OSError and leave nothing of it."""
        ...

    def read(self, position: int, length: int) -> bytes: ...
    def read_cached(self, position: int, length: int) -> bytes | None:
        """Like `read`, but None where that would wait for the device, or is less than was asked for."""
        ...

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """fdatasync. May run in a thread while the owner appends."""
        ...

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File: ...
    def read_all(self, path: str) -> bytes: ...
    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Readers and crashes see the old content or the new one. Not durable: a power loss may also leave garbage."""
        ...

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None:
        """A file that is already gone is fine."""
        ...

    def remove_tree(self, path: str) -> None: ...
    def listdir(self, path: str) -> list[str]: ...
    def sizes(self, path: str) -> dict[str, int]:
        """Name to size of every plain file in a directory, in one pass."""
        ...

    def exists(self, path: str) -> bool: ...
    def make_dir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def lock(self, path: str) -> Lock: ...


class RealFile:
    __slots__ = ("_closed", "_fd", "failed", "path", "size")

    def __init__(self, path: str, fd: int) -> None:
        self._fd = fd
        self._closed = False
        self.path = path
        self.failed = False
        self.size = os.fstat(fd).st_size

    def append(self, data: Buffer) -> int:
        position = self.size
        length = len(data)
        if self._closed or self.failed:
            raise OSError(errno.EBADF, "file is closed or failed", self.path)
        try:
            written = os.pwrite(self._fd, data, position)
            if written != length:
                self._append_rest(memoryview(data), position, written)
        except OSError:
            self._undo(position)
            raise
        self.size = position + length
        return position

    def _append_rest(self, data: memoryview, position: int, written: int) -> None:
        # A short write is how a filling disk announces itself; the next write tells the errno.
        while written < len(data):
            more = os.pwrite(self._fd, data[written:], position + written)
            if more == 0:
                raise OSError(errno.ENOSPC, "nothing written", self.path)
            written += more

    def _undo(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self.failed = True

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)

    def read_cached(self, position: int, length: int) -> bytes | None:
        buffer = bytearray(length)
        try:
            count = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            data = self.read(position, length)  # a file system that cannot tell
            return data if len(data) == length else None
        return bytes(buffer) if count == length else None

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        self._closed = True

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._fd)


class RealLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        # The file stays: unlinking it would let two brokers lock two different files of one name.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if create or error.errno not in (errno.EACCES, errno.EROFS):
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # enough to read and to verify
        return RealFile(path, fd)

    def read_all(self, path: str) -> bytes:
        # Opening a thousand partitions reads five thousand small files: half the cost of a file object.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = [os.read(fd, os.fstat(fd).st_size + 1)]
            while pieces[-1]:
                pieces.append(os.read(fd, 1 << 20))
            return b"".join(pieces)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        temporary = f"{path}.{next(_temporary_names)}.tmp"  # a thread may be replacing the same file
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            self.sync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def sizes(self, path: str) -> dict[str, int]:
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DiskLocked(f"{os.path.dirname(path)} is in use by another broker (it holds {path})") from error
        return RealLock(fd)


@contextlib.contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Tell a client about a failing disk in Kafka's words instead of errno's."""
    try:
        yield
    except OSError as error:
        raise StorageOffline(f"{what}: {error}") from error
