"""What every driver of a `Raft` does, without doing any I/O but the store's: the order of things, in one place.

    driver.raft.receive(message, now_ms)        # or tick, propose, read, ...
    turn = driver.turn()                        # written, applied; what is left is the caller's
    send(turn.messages)
    if turn.sync:                               # in a thread; one at a time
        turn.sync.run(); driver.synced(turn.sync, now_ms); driver.turn() again
    if turn.snapshot:                           # in a thread; one at a time
        turn.snapshot.run(); driver.snapshot_saved(turn.snapshot)

Any error of the store is the end of this replica until it is opened again.
"""

from typing import NamedTuple, Protocol

from tidelog.consensus.entries import Entry, SnapshotId
from tidelog.consensus.log import weight
from tidelog.consensus.messages import AnyMessage
from tidelog.consensus.raft import Raft
from tidelog.consensus.ready import ReadGrant, Store, Sync
from tidelog.consensus.voters import VoterSet


class StateMachine(Protocol):
    def apply(self, entry: Entry) -> None:
        """Entries of every kind, in order, each once since `load` or the log's beginning."""
        ...

    def snapshot(self) -> bytes:
        """All of it, as record batches."""
        ...

    def load(self, data: bytes) -> None:
        """Become what `snapshot` was taken of."""
        ...


class SnapshotJob(NamedTuple):
    store: Store
    snapshot: SnapshotId
    voters: VoterSet
    data: bytes

    def run(self) -> None:
        self.store.save_snapshot(self.snapshot, self.voters, self.data)


class Turn(NamedTuple):
    messages: list[AnyMessage]
    reads: list[ReadGrant]
    refused_reads: list[object]
    sync: Sync | None
    snapshot: SnapshotJob | None


class Driver:
    def __init__(self, raft: Raft, store: Store, machine: StateMachine, *, snapshot_bytes: int = 16 << 20) -> None:
        """A snapshot is taken once entries of `snapshot_bytes` were applied since the last."""
        self.raft = raft
        self.store = store
        self.machine = machine
        self._snapshot_bytes = snapshot_bytes
        self._applied_bytes = 0
        self._snapshot_wanted = False
        self._syncing = False
        self._snapshotting = False

    def turn(self) -> Turn:
        messages: list[AnyMessage] = []
        reads: list[ReadGrant] = []
        refused: list[object] = []
        while (ready := self.raft.ready()) is not None:
            if ready.write is not None:
                self.store.write(ready.write)
            messages += ready.messages
            if ready.load is not None:
                self.machine.load(self.store.load_snapshot(ready.load))
                self._applied_bytes = 0
            for entry in ready.committed:
                self.machine.apply(entry)
                self._applied_bytes += weight(entry)
            reads += ready.reads
            refused += ready.refused_reads
            self._snapshot_wanted = self._snapshot_wanted or ready.snapshot_wanted
        sync = None if self._syncing else self.store.begin_sync()
        self._syncing = self._syncing or sync is not None
        return Turn(messages, reads, refused, sync, self._begin_snapshot())

    def synced(self, sync: Sync, now_ms: int) -> None:
        self._syncing = False
        self.raft.persisted(self.store.complete_sync(sync), now_ms)

    def _begin_snapshot(self) -> SnapshotJob | None:
        raft = self.raft
        end = raft.applied
        if (
            self._snapshotting
            or raft.installing
            or not (self._snapshot_wanted or self._applied_bytes >= self._snapshot_bytes)
        ):
            return None
        if raft.snapshot is not None and raft.snapshot.end_offset >= end:
            self._snapshot_wanted = False
            return None
        epoch = raft.log.epoch_before(end)
        if epoch is None:
            return None
        self._snapshotting = True
        self._snapshot_wanted = False
        self._applied_bytes = 0
        return SnapshotJob(self.store, SnapshotId(end, epoch), raft.voters_at(end), self.machine.snapshot())

    def snapshot_saved(self, job: SnapshotJob) -> None:
        self._snapshotting = False
        snapshot = self.raft.snapshot
        if not self.raft.installing and (snapshot is None or job.snapshot > snapshot):
            self.raft.snapshot_saved(job.snapshot, self.store.forget_before(job.snapshot))
