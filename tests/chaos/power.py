"""A file system whose plug can be pulled: what is not on the device is gone, and nothing reaches it any more.

`FS_IOC_SHUTDOWN` takes some milliseconds, in which ext4 lets an fdatasync that is under way return 0 although its
transaction is never committed: a program of two threads that append and sync sees that in one of ten tries. No power
loss does, since nobody is there to hear the 0. So whoever writes to the file system is stopped first, and the kernel
ends what they had asked for: it is on the device, or they have not been told so.
"""

import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .conftest import Mount

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root")

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, u32)
WITHOUT_FLUSHING_THE_JOURNAL = 2
STILL_S = 10


def new_disk(directory: Path, mount: Mount) -> tuple[Path, Path]:
    """The image of a file system, and where it is mounted."""
    image = directory / "disk.img"
    with image.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    return image, mount("-o", "loop", str(image))


def pull_the_plug(mount_point: Path) -> None:
    writers = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _uses(pid, mount_point)]
    assert writers, f"nobody uses {mount_point}"
    descriptor = os.open(mount_point, os.O_RDONLY)
    try:
        with _stopped(writers):
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_THE_JOURNAL))
    finally:
        os.close(descriptor)


def plug_in_again(image: Path, mount_point: Path) -> None:
    """Once nobody uses it any more."""
    subprocess.run(["umount", str(mount_point)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount_point)], check=True)


def _uses(pid: int, mount_point: Path) -> bool:
    try:
        return any(os.readlink(fd.path).startswith(f"{mount_point}/") for fd in os.scandir(f"/proc/{pid}/fd"))
    except OSError:  # ended meanwhile
        return False


@contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + STILL_S
        while not all(map(_is_still, pids)):
            assert time.monotonic() < deadline, "a thread is still in the kernel"
            time.sleep(0.001)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _is_still(pid: int) -> bool:
    """Every thread: one that is in the kernel stops when it comes back from there."""
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states == {"T"}
