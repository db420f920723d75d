"""Where each leader epoch began in a log: what a follower asks before it truncates, and `leader-epoch-checkpoint`.

The file is Kafka's text format: version, number of entries, then `epoch start_offset` lines. Every batch header carries
its epoch, so a lost file is rebuilt from the log.
"""

from bisect import bisect_right

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochsCorrupt(Exception):
    """The checkpoint is not one. The caller rebuilds it from the batches."""


class LeaderEpochs:
    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.dirty = False

    @classmethod
    def decode(cls, text: bytes) -> "LeaderEpochs":
        epochs = cls()
        try:
            lines = text.decode("ascii").splitlines()
            if not text.endswith(b"\n"):
                raise ValueError("the last line is cut short")
            if lines[0] != "0" or int(lines[1]) != len(lines) - 2:
                raise ValueError("version or count")
            for line in lines[2:]:
                epoch, start = map(int, line.split())
                if epochs._epochs and (epoch <= epochs._epochs[-1] or start < epochs._starts[-1]):
                    raise ValueError("entries do not ascend")
                epochs._epochs.append(epoch)
                epochs._starts.append(start)
        except (ValueError, IndexError) as error:
            raise EpochsCorrupt(str(error)) from error
        return epochs

    def copy(self) -> "LeaderEpochs":
        twin = LeaderEpochs()
        twin._epochs = self._epochs[:]
        twin._starts = self._starts[:]
        return twin

    def encode(self) -> bytes:
        lines = [f"{epoch} {start}\n" for epoch, start in self.entries]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that batches of `epoch` begin at `start_offset`; False if that was known."""
        if epoch <= self.latest:
            return False
        # An epoch that wrote nothing has no place of its own.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True
        return True

    def epoch_of(self, offset: int) -> int:
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, where it ended), as OffsetForLeaderEpoch answers; (-1, -1) if unknown."""
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        slot = bisect_right(self._epochs, epoch)
        if slot == 0:
            # Older than anything kept: the caller's log diverges before our first entry.
            return epoch, self._starts[0]
        return self._epochs[slot - 1], self._starts[slot]

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that began at or behind the new end of the log."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before the log's start; the one it falls into begins there now."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot >= 0 and (slot > 0 or self._starts[0] != start_offset):
            del self._starts[:slot]
            del self._epochs[:slot]
            self._starts[0] = start_offset
            self.dirty = True
