"""The replicated log as `Raft` sees it: where each epoch began, what is durable, and its newest entries.

Only the tail is in memory. Older entries are read from the store, which has them by then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from tidelog.consensus.entries import NO_EPOCH, Entry, SnapshotId
from tidelog.consensus.ready import LogReader, Restored
from tidelog.errors import invariant

_OVERHEAD: Final = 64
"""Counted for each entry besides its data, so that a million empty ones are not free."""


def weight(entry: Entry) -> int:
    return len(entry.data) + _OVERHEAD


class ReplicatedLog:
    def __init__(self, restored: Restored, reader: LogReader, cache_bytes: int) -> None:
        self._reader = reader
        self._cache_limit = cache_bytes
        self.start = restored.start_offset
        self.end = restored.end_offset
        self.durable_end = restored.end_offset
        self.start_epoch: int | None = NO_EPOCH if self.start == 0 else None
        """Of the entry before `start`; None if nobody knows."""
        self._epochs = [epoch for epoch, _ in restored.epochs]
        self._starts = [start for _, start in restored.epochs]
        self._cache: list[Entry] = []
        self._bases: list[int] = []
        self._cached_bytes = 0
        if restored.snapshot is not None:
            self.note_snapshot(restored.snapshot)

    def note_snapshot(self, snapshot: SnapshotId) -> None:
        if snapshot.end_offset == self.start:
            self.start_epoch = snapshot.epoch

    # -- epochs ----------------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else self.start_epoch or NO_EPOCH

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the entry that ends at `offset`; None if the log doesn't reach it or no longer knows."""
        if offset <= self.start:
            return self.start_epoch if offset == self.start else None
        if offset > self.end:
            return None
        return self._epochs[bisect_left(self._starts, offset) - 1]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch here that is not above `epoch`, and where it ends."""
        slot = bisect_right(self._epochs, epoch)
        end = self._starts[slot] if slot < len(self._starts) else self.end
        if slot == 0:
            return self.start_epoch or NO_EPOCH, self.start
        return self._epochs[slot - 1], end

    def is_covered_by(self, last_epoch: int, end_offset: int) -> bool:
        """Whether a log that ends so has everything that could be committed here."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.end)

    # -- change ----------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        if entry.offset != self.end or entry.epoch < self.last_epoch:
            invariant(False, f"{entry.offset} of epoch {entry.epoch} appended at {self.end}, after {self.last_epoch}")
        if not self._epochs or entry.epoch != self._epochs[-1]:
            self._epochs.append(entry.epoch)
            self._starts.append(entry.offset)
        self._cache.append(entry)
        self._bases.append(entry.offset)
        self._cached_bytes += weight(entry)
        self.end = entry.end

    def truncate(self, offset: int) -> None:
        slot = bisect_left(self._bases, offset)
        self._cached_bytes -= sum(map(weight, self._cache[slot:]))
        del self._cache[slot:]
        del self._bases[slot:]
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end = offset
        self.durable_end = min(self.durable_end, offset)

    def became_durable(self, end: int) -> None:
        self.durable_end = max(self.durable_end, min(end, self.end))
        if self._cached_bytes > self._cache_limit:
            self._shrink()

    def _shrink(self) -> None:
        """Half of it at once, so that it is not done for every entry."""
        drop = 0
        for entry in self._cache:
            if self._cached_bytes <= self._cache_limit // 2 or entry.end > self.durable_end:
                break
            self._cached_bytes -= weight(entry)
            drop += 1
        del self._cache[:drop]
        del self._bases[:drop]

    def reset(self, snapshot: SnapshotId) -> None:
        """Nothing but what the snapshot holds."""
        self.start = self.end = self.durable_end = snapshot.end_offset
        self.start_epoch = snapshot.epoch
        self._epochs, self._starts, self._cache, self._bases = [], [], [], []
        self._cached_bytes = 0

    def forget_before(self, offset: int) -> None:
        """The store no longer has entries that begin before `offset`."""
        if offset <= self.start:
            return
        invariant(offset <= self.end, f"log cut at {offset}, behind its end {self.end}")
        self.start_epoch = self.epoch_before(offset)
        self.start = offset
        slot = bisect_right(self._starts, offset) - 1
        if slot > 0:
            del self._starts[:slot]
            del self._epochs[:slot]
        if offset == self.end:
            self._starts, self._epochs = [], []
        elif self._starts:
            self._starts[0] = max(self._starts[0], offset)
        slot = bisect_left(self._bases, offset)
        self._cached_bytes -= sum(map(weight, self._cache[:slot]))
        del self._cache[:slot]
        del self._bases[:slot]

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, upper: int, max_bytes: int) -> Sequence[Entry]:
        """Entries from the one at `offset`, none reaching beyond `upper`: at least one, more while they fit."""
        if offset >= upper:
            return ()
        if self._bases and offset >= self._bases[0]:
            slot = bisect_left(self._bases, offset)
            if self._bases[slot] != offset:
                invariant(False, f"no entry begins at {offset}")
            found: Sequence[Entry] = self._cache
        else:
            if self._bases:
                upper = min(upper, self._bases[0])  # behind that the store may still have what was truncated
            found = self._reader.read(offset, max_bytes)
            slot = 0
            if not found or found[0].offset != offset:
                invariant(False, f"the store has no entry at {offset}")
        taken = 0
        stop = slot
        while stop < len(found) and found[stop].end <= upper:
            taken += weight(found[stop])
            if taken > max_bytes and stop > slot:
                break
            stop += 1
        return found[slot:stop]
