"""Replacing segments by cleaned ones so that a crash at any point leaves either the old or the new, complete.

`.cleaned` files are worthless until all of one replacement are renamed to `.swap`; from then on it is decided, and
recovery finishes it. The log's rename comes after its indexes', the files of one replacement are renamed from the last
to the first, and replacements follow each other from first to last. So a `.cleaned` log at or before a `.swap`
means: not decided.
"""

from collections.abc import Iterable

from tidelog.storage.disk import Disk
from tidelog.storage.naming import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_FILES,
    SWAP,
    offset_name,
    parse_offset_name,
)
from tidelog.storage.segment import Segment
from tidelog.storage.walk import walk

_LOG_LAST = SEGMENT_FILES[::-1]


def decide_swap(disk: Disk, directory: str, bases: Iterable[int], names: Iterable[str]) -> None:
    """All `.cleaned` files of `bases` become `.swap`; after this the replacement survives any crash."""
    present = set(names)
    for base in sorted(bases, reverse=True):
        for suffix in _LOG_LAST:
            name = offset_name(base, suffix)
            if name + CLEANED in present:
                disk.rename(f"{directory}/{name}{CLEANED}", f"{directory}/{name}{SWAP}")
    disk.sync_dir(directory)


def undo_swap(disk: Disk, directory: str, bases: Iterable[int]) -> None:
    """A replacement that was not decided, or not for sure, while the old segments are all there."""
    for base in bases:
        for suffix in SEGMENT_FILES:
            for state in (CLEANED, SWAP):
                disk.remove(f"{directory}/{offset_name(base, suffix)}{state}")


def set_aside(disk: Disk, directory: str, base: int) -> None:
    """Give a segment's files the `.deleted` name, from which there is no way back. The log goes first."""
    for suffix in SEGMENT_FILES:
        path = f"{directory}/{offset_name(base, suffix)}"
        if disk.exists(path):
            disk.rename(path, path + DELETED)


def install_swap(disk: Disk, directory: str, base: int) -> None:
    for suffix in _LOG_LAST:
        path = f"{directory}/{offset_name(base, suffix)}"
        if disk.exists(path + SWAP):
            disk.rename(path + SWAP, path)


def finish_swap(disk: Disk, directory: str, names: dict[str, int]) -> None:
    """Complete or undo a replacement that a crash interrupted."""
    parsed = [entry for entry in map(parse_offset_name, names) if entry]
    undecided = min((base for base, suffix in parsed if suffix == LOG + CLEANED), default=None)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps: list[str] = []
    for base, suffix in parsed:
        if suffix.endswith(SWAP):
            # Renaming went from the last to the first: with one left before it, the old segments are all there.
            swap_undecided = undecided is not None and base >= undecided
            (cleaned if swap_undecided else swaps).append(offset_name(base, suffix))
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    swap_bases = sorted(base for base, suffix in parsed if suffix == LOG + SWAP and offset_name(base, suffix) in swaps)
    # Also where only indexes are left of the old segment: they must not be taken for the new one's.
    old_bases = sorted({base for base, suffix in parsed if suffix in SEGMENT_FILES})
    for base in swap_bases:
        name = offset_name(base, LOG + SWAP)
        file = disk.open(f"{directory}/{name}")
        next_offset = base + 1
        for _, header in walk(file, 0, names[name]):
            next_offset = header.last_offset + 1
        for old in old_bases:
            if base <= old < next_offset:
                set_aside(disk, directory, old)
    for base in swap_bases:
        install_swap(disk, directory, base)
    if swaps:
        disk.sync_dir(directory)
        # An index without its log: the log was installed before the crash, and so were its own indexes.
        for name in disk.listdir(directory):
            if name.endswith((SWAP, DELETED)):
                disk.remove(f"{directory}/{name}")


def delete_segments(segments: Iterable[Segment]) -> None:
    """Unlink segments that their log has let go of. May run in a thread; readers of their slices are not disturbed."""
    for segment in segments:
        for suffix in SEGMENT_FILES:
            segment.disk.remove(segment.path_of(suffix) + DELETED)
