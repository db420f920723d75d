"""A disk that goes bad: bits of what was written long ago flip, and for a while nothing can be read from it."""

import errno
from random import Random

from sim_disk import SimDisk, SimFile, SimInode

from tidelog.storage.segment import Segment
from tidelog.wire.record_batch import CRC_POSITION


class BadFile(SimFile):
    def __init__(self, disk: "BadDisk", path: str, inode: SimInode) -> None:
        super().__init__(disk, path, inode)
        self._bad = disk

    def read(self, position: int, length: int) -> bytes:
        bad = self._bad
        if bad.unreadable > 0:
            if bad.readable <= 0:
                bad.unreadable -= 1
                raise OSError(errno.EIO, "read", self.path)
            bad.readable -= 1
        return super().read(position, length)


class BadDisk(SimDisk):
    def __init__(self, *, journaled: bool) -> None:
        super().__init__(journaled=journaled)
        self.unreadable = 0
        """How many reads fail,"""
        self.readable = 0
        """after so many that do not."""
        self.flips = 0
        """Bits that flipped, ever: what does not match its checksum on a disk without is damage that came from
        elsewhere."""

    def open(self, path: str, *, create: bool = False) -> SimFile:
        super().open(path, create=create)
        return BadFile(self, path, self.names[path])

    def flip(self, segment: Segment, below: int, dice: Random) -> int | None:
        """One bit of a batch that ends before the offset `below`, where its checksum tells: the offset of that batch.
        Half of the time the page is in memory, and only who looks after a power loss sees it."""
        failing, self.unreadable = self.unreadable, 0
        batches = [(at, header) for at, header in segment.headers() if header.last_offset < below]
        self.unreadable = failing
        if not batches:
            return None
        at, header = dice.choice(batches)
        position, bit = at + dice.randrange(CRC_POSITION, header.size), 1 << dice.randrange(8)
        inode = self.names[segment.path]
        if position < len(inode.durable):
            inode.durable[position] ^= bit
        if position >= len(inode.durable) or dice.random() < 0.5:
            inode.cache[position] ^= bit
        self.flips += 1
        return header.base_offset
