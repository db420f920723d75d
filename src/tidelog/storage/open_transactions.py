"""Which transactions are open in a log, and which writers the coordinator has vouched for.

Transactions begin at rising offsets, so the first of those still open began earliest. One that ended still holds
readers back until its marker is visible: a power loss could take the marker away, and the end with it.
"""

from collections import deque
from typing import Final

from tidelog.wire.record_batch import BatchHeader

VERIFICATIONS_MAX: Final = 10_000


class OpenTransactions:
    __slots__ = ("ended", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id to first offset, in the order of the offsets."""
        self.ended: deque[tuple[int, int]] = deque()
        """(offset of the marker, first offset) of those whose marker was not seen to be visible yet."""

    def load(self, first_offsets: list[tuple[int, int]]) -> None:
        """(first offset, producer id) of each."""
        self.open = {producer_id: first for first, producer_id in sorted(first_offsets)}
        self.ended.clear()

    def begin(self, producer_id: int, first_offset: int) -> None:
        self.open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> None:
        first = self.open.pop(producer_id, None)
        if first is not None:
            self.ended.append((marker_offset, first))

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction began that is open, or whose end is not visible yet."""
        first = next(iter(self.open.values()), None)
        for marker, ended_first in self.ended:
            if marker >= high_watermark and (first is None or ended_first < first):
                first = ended_first
        return first

    def settle(self, high_watermark: int) -> None:
        """The watermark never goes back: what it has passed has ended for good."""
        ended = self.ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()

    def stable_after(self, producer_id: int, marker_offset: int) -> int:
        """The last stable offset once this producer's transaction ended there and all is visible."""
        return next((first for other, first in self.open.items() if other != producer_id), marker_offset + 1)


class Verification:
    """Given out when a transactional write needs the coordinator's word, shown again with the append. An end of the
    transaction in between makes it worthless, so a late word never lets a write into the next transaction."""

    __slots__ = ("epoch", "every_epoch_is_new", "lowest_sequence", "producer_id")

    def __init__(self, header: BatchHeader, every_epoch_is_new: bool) -> None:
        self.producer_id = header.producer_id
        self.epoch = header.producer_epoch
        self.lowest_sequence = header.base_sequence
        self.every_epoch_is_new = every_epoch_is_new


class Verifications:
    """One a producer: requests that are verified side by side share it, and the lowest of their sequences goes
    first."""

    __slots__ = ("_by_producer", "_limit")

    def __init__(self, limit: int = VERIFICATIONS_MAX) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._limit = limit

    def begin(self, header: BatchHeader, *, every_epoch_is_new: bool) -> Verification:
        known = self._by_producer.get(header.producer_id)
        if known is not None and known.epoch == header.producer_epoch:
            known.lowest_sequence = min(known.lowest_sequence, header.base_sequence)
            return known
        if known is not None and known.epoch > header.producer_epoch:
            # Worthless from the start: who was replaced must not take the place of its successor.
            return Verification(header, every_epoch_is_new)
        if len(self._by_producer) >= self._limit:
            # The longest waiting has most likely failed; if not, its writer is told and may try again.
            del self._by_producer[next(iter(self._by_producer))]
        fresh = self._by_producer[header.producer_id] = Verification(header, every_epoch_is_new)
        return fresh

    def holds(self, verification: Verification | None, header: BatchHeader) -> bool:
        return (
            verification is not None
            and verification.epoch == header.producer_epoch
            and self._by_producer.get(header.producer_id) is verification
        )

    def end(self, producer_id: int) -> None:
        self._by_producer.pop(producer_id, None)
