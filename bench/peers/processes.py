"""CPU and memory of a broker's processes, and how busy everybody else is, as the kernel counts them."""

import os
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pids: Iterable[int]) -> list[int]:
    """These processes and all below them: a broker's helpers are part of its cost."""
    found, left = [], list(pids)
    while left:
        pid = left.pop()
        found.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time, including children that have ended."""
    ticks = 0
    for pid in tree(pids):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def rss_mb(pids: Iterable[int]) -> float:
    pages = 0
    for pid in tree(pids):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return pages * _PAGE / 1e6


def disk_bytes(*directories: Path) -> int:
    """Allocated bytes: an index file that is reserved but sparse counts as what it takes."""
    total = 0
    for directory in directories:
        for parent, _, names in os.walk(directory):
            for name in names:
                try:
                    total += os.stat(os.path.join(parent, name)).st_blocks * 512
                except FileNotFoundError:
                    continue
    return total


@dataclass(slots=True)
class Bystanders:
    """Cores used, since it was made, by processes that are neither the broker's nor ours."""

    pids: tuple[int, ...]
    began: float = 0.0
    busy: float = 0.0
    known: float = 0.0

    def __post_init__(self) -> None:
        self.began, self.busy, self.known = time.monotonic(), _busy_s(), self._known_s()

    def _known_s(self) -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_s(self.pids) + own.ru_utime + own.ru_stime + clients.ru_utime + clients.ru_stime

    def cores(self) -> float:
        took = time.monotonic() - self.began
        others = (_busy_s() - self.busy) - (self._known_s() - self.known)
        return max(0.0, others / took) if took > 0 else 0.0


def _busy_s() -> float:
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS
