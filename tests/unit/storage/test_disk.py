import errno
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.storage.disk import DiskLocked, RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


@pytest.fixture
def size_limit() -> Iterator[int]:
    """The kernel itself cuts writes short at this file size, as a filling disk does."""
    limit = 4096
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_append_returns_the_position_and_grows(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    assert [file.append(b"one"), file.append(memoryview(b"three")), file.size] == [0, 3, 8]
    assert file.read(3, 100) == b"three"


def test_an_append_that_does_not_fit_leaves_nothing_of_itself(disk: RealDisk, tmp_path: Path, size_limit: int) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"x" * 4000)
    with pytest.raises(OSError, match="File too large") as raised:
        file.append(b"y" * 1000)
    assert raised.value.errno == errno.EFBIG
    assert (file.size, os.path.getsize(file.path), file.failed) == (4000, 4000, False)
    assert file.append(b"z" * 96) == 4000


def test_a_file_is_readable_as_long_as_somebody_holds_it(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"still here")
    file.close()
    disk.remove(file.path)
    assert file.read(0, 10) == b"still here"
    with pytest.raises(OSError, match="closed"):
        file.append(b"x")
    fd = file.fileno()
    del file
    gc.collect()
    # Another thread may have got the number meanwhile, for another file.
    with suppress(FileNotFoundError):
        assert not os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))


def test_an_atomic_write_replaces_everything_and_leaves_no_temporary(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/checkpoint"
    disk.write_atomic(path, b"old and longer")
    disk.write_atomic(path, b"new", durable=False)
    assert disk.read_all(path) == b"new"
    assert disk.listdir(str(tmp_path)) == ["checkpoint"]


def test_a_failed_atomic_write_keeps_the_old_content(disk: RealDisk, tmp_path: Path, size_limit: int) -> None:
    path = f"{tmp_path}/checkpoint"
    disk.write_atomic(path, b"old")
    with pytest.raises(OSError, match="File too large"):
        disk.write_atomic(path, b"x" * 2 * size_limit)
    assert disk.read_all(path) == b"old"
    assert disk.listdir(str(tmp_path)) == ["checkpoint"]


def test_a_second_process_is_refused_until_the_first_lets_go(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    code = f"from tidelog.storage.disk import RealDisk; RealDisk().lock({path!r})"
    lock = disk.lock(path)
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DiskLocked" in other.stderr
    assert "in use by another broker" in other.stderr
    with pytest.raises(DiskLocked):
        disk.lock(path)
    lock.release()
    lock.release()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_removing_what_is_gone_is_fine(disk: RealDisk, tmp_path: Path) -> None:
    disk.remove(f"{tmp_path}/nothing")
    disk.remove_tree(f"{tmp_path}/nothing")


def test_sizes_lists_files_only(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_dir(f"{tmp_path}/directory")
    disk.write_atomic(f"{tmp_path}/file", b"12345")
    assert disk.sizes(str(tmp_path)) == {"file": 5}
