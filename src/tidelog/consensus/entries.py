"""What the replicated log is made of."""

from typing import Final

import msgspec

from tidelog.consensus.voters import ReplicaKey

DATA: Final = 0
LEADER_CHANGE: Final = 1
"""The first entry of every leader: what was there before it is committed when this is."""
VOTERS: Final = 2
"""From its append on, and not only from its commit, these are the voters."""

NO_EPOCH: Final = 0
"""Of the place before the first entry. The first election is for epoch 1; a log that was written before there was a
quorum has epoch 0 throughout."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`data` is opaque: for DATA a record batch with `count` records, for the others the value of a control record."""

    offset: int
    epoch: int
    kind: int
    count: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + self.count


class SnapshotId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The state after everything below `end_offset`, whose last entry has `epoch`."""

    end_offset: int
    epoch: int


class HardState(msgspec.Struct, frozen=True):
    """What a replica must never forget: the epoch it is in and whom it voted for there."""

    epoch: int = NO_EPOCH
    voted_for: ReplicaKey | None = None
