"""What a `Raft` wants done, and the seam to what does it.

For each `Ready`, in this order:

1. `write`: hand it to the store. Writes are carried out in the order of their numbers.
2. `messages`: send them. They may leave before the write is durable; those that may not are still inside `Raft`.
3. `load`: replace the state machine by this snapshot. Then apply `committed`, in order.
4. `reads`: answer them from the state machine as it is now.

Once a write is durable, with all before it: `Raft.persisted(number)`, which may release more messages. Messages may be
lost; a write may not, nor may it be called durable when it is not.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.consensus.entries import Entry, HardState, SnapshotId
from tidelog.consensus.messages import AnyMessage
from tidelog.consensus.voters import ReplicaKey, VoterSet


class SnapshotPiece(NamedTuple):
    """Bytes of a snapshot that another replica sends. At position 0 a new file begins; `last` puts it in its place."""

    snapshot: SnapshotId
    position: int
    data: bytes
    last: bool


class Write(NamedTuple):
    """Carried out in the order of its fields, except that `commit` asks for nothing."""

    number: int
    hard_state: HardState | None = None
    piece: SnapshotPiece | None = None
    truncate_to: int | None = None
    entries: tuple[Entry, ...] = ()
    commit: int = 0
    """What this replica knows to be committed. To be remembered at leisure: it helps to notice a log that went back."""


class ReadGrant(NamedTuple):
    """This replica led after the read was asked for, and the state machine has all that was committed then."""

    context: object
    offset: int


class Ready(NamedTuple):
    write: Write | None = None
    messages: tuple[AnyMessage, ...] = ()
    load: SnapshotId | None = None
    committed: tuple[Entry, ...] = ()
    reads: tuple[ReadGrant, ...] = ()
    refused_reads: tuple[object, ...] = ()
    """Leadership was lost before it could be confirmed: ask the new leader."""
    snapshot_wanted: bool = False
    """A replica needs what the log no longer has, and there is no snapshot to send: take one."""


class Restored(NamedTuple):
    """What a store found when it was opened. All of it is durable."""

    hard_state: HardState = HardState()
    snapshot: SnapshotId | None = None
    snapshot_voters: VoterSet = VoterSet()
    start_offset: int = 0
    """Of the log; not beyond the snapshot's end."""
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset) of each epoch in the log, ascending."""
    voters: tuple[tuple[int, VoterSet], ...] = ()
    """(end offset of the entry, voters) of each VOTERS entry in the log."""


class LogReader(Protocol):
    """What `Raft` asks of its store itself, and only about what it was told is durable."""

    def read(self, offset: int, max_bytes: int) -> Sequence[Entry]:
        """Whole entries from the one that begins at `offset`: at least one, more while they fit into `max_bytes`."""
        ...

    def snapshot_size(self, snapshot: SnapshotId) -> int: ...
    def read_snapshot(self, snapshot: SnapshotId, position: int, length: int) -> bytes: ...


class Sync(Protocol):
    """`run` in a thread; nothing counts before `Store.complete_sync` heard of it."""

    @property
    def number(self) -> int: ...
    def run(self) -> None: ...


class Store(LogReader, Protocol):
    """Raises OSError or StorageOffline when it can't; the replica must stop then, as after any failed sync."""

    @property
    def key(self) -> ReplicaKey: ...
    def restore(self) -> Restored: ...
    def write(self, write: Write) -> None:
        """Carried out, not durable."""
        ...

    def begin_sync(self) -> Sync | None:
        """What makes every write so far durable; None if all are."""
        ...

    def complete_sync(self, sync: Sync) -> int:
        """The number of the last write that is durable now."""
        ...

    def save_snapshot(self, snapshot: SnapshotId, voters: VoterSet, data: bytes) -> None:
        """Durable when it returns."""
        ...

    def load_snapshot(self, snapshot: SnapshotId) -> bytes:
        """What the state machine gave to `save_snapshot`, there or on another replica."""
        ...

    def forget_before(self, snapshot: SnapshotId) -> int:
        """Drop what `snapshot` replaces. Returns where the log begins now."""
        ...
