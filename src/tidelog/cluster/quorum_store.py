"""The quorum's store: entries as record batches in an ordinary `storage.Log`, snapshots and vote in files beside it.

A metadata log that was written before there was a quorum is one of epoch 0, and needs no conversion.

What a crash may interrupt, and what opening makes of it: a snapshot that arrives is put in its place before the log it
replaces is removed, so a log that doesn't fit the newest snapshot is the one to be removed. A log is cut and the cut
synced before anything is appended there. A log that ends before the recovery point in `quorum-state` has lost what was
promised, and is refused; behind it, what does not match its checksum is taken for a torn write.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from tidelog.config import TopicConfig
from tidelog.consensus.control import KIND_OF_TYPE, TYPE_OF_KIND, build_control, decode_voters, read_control
from tidelog.consensus.entries import DATA, NO_EPOCH, VOTERS, Entry, HardState, SnapshotId
from tidelog.consensus.hard_state_file import HOW_TO_REJOIN, QUORUM_STATE, StoredState, decode_state, encode_state
from tidelog.consensus.ready import Restored, SnapshotPiece, Sync, Write
from tidelog.consensus.snapshot_file import NO_TIMESTAMP, decode_snapshot, encode_snapshot, file_name, parse_file_name
from tidelog.consensus.voters import ReplicaKey, VoterSet
from tidelog.errors import CorruptMessage, invariant
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk, File
from tidelog.storage.flush import Flush
from tidelog.storage.log import Log, delete_segments
from tidelog.storage.naming import LEADER_EPOCHS, parse_offset_name
from tidelog.wire.record_batch import CONTROL, crc_of, iter_batches, patch

_ARRIVING: Final = "arriving.checkpoint.part"
_QUARANTINED: Final = ".corrupt-"  # in the name of what a recovery cut off and kept
_SCAN_BYTES: Final = 4 << 20
_RECOVERY_POINT_EVERY: Final = 1000
"""Offsets until it is noted anew how far the log must reach. It is also noted with each change of epoch or vote."""


class DurableSync:
    def __init__(self, number: int, disk: Disk, state: tuple[str, bytes] | None, log: Log, flush: Flush | None) -> None:
        self.number = number
        self._disk = disk
        self._state = state
        self.log = log
        self.flush = flush

    def run(self) -> None:
        # The vote first: entries may be lost with it, but it not with them.
        if self._state is not None:
            self._disk.write_atomic(*self._state)
        if self.flush is not None:
            self.flush.run()


class QuorumStore:
    """Open one with `QuorumStore.open`. Not to be used again after any of its methods raised OSError or KafkaError."""

    def __init__(self, log: Log, key: ReplicaKey, state: StoredState, replaced: Callable[[Log], None]) -> None:
        self.key = key
        self._replaced = replaced
        self.log = log
        self._disk = log.disk
        self._directory = log.directory
        self._hard_state = state.hard_state
        self._recovery_point = state.recovery_point
        self._state_changed = False
        self._commit = 0
        self._number = 0
        self._synced = 0
        self._part: File | None = None
        self._sizes: dict[SnapshotId, int] = {}
        self._snapshot: SnapshotId | None = None
        self._snapshot_voters = VoterSet()

    @classmethod
    def open(
        cls, log: Log, node_id: int, *, new_directory_id: str, replaced: Callable[[Log], None] = lambda log: None
    ) -> "QuorumStore":
        """`new_directory_id` becomes this replica's if the directory has none. `replaced(log)` is told of the log that
        takes the place of `log` when a snapshot does.

        Raises CorruptMessage where history was damaged: going on with less than was promised could lose what the quorum
        has committed.
        """
        disk, path = log.disk, f"{log.directory}/{QUORUM_STATE}"
        kept = [name for name in disk.listdir(log.directory) if _QUARANTINED in name]
        if disk.exists(path):
            state = decode_state(disk.read_all(path), path)
        elif kept or log.epochs.latest > NO_EPOCH:
            raise CorruptMessage(f"{path} is missing, and with it whom this node voted for. {HOW_TO_REJOIN}")
        else:
            state = StoredState(new_directory_id, HardState(), 0)
            disk.write_atomic(path, encode_state(state))
        store = cls(log, ReplicaKey(node_id, state.directory_id), state, replaced)
        store._find_snapshot()
        if store.log.end_offset < state.recovery_point:
            raise CorruptMessage(
                f"the metadata log {log.directory} ends at {log.end_offset}, but was durable up to "
                f"{state.recovery_point}. {HOW_TO_REJOIN}"
            )
        for name in kept:
            disk.remove(f"{log.directory}/{name}")  # torn writes that nobody was told of
        return store

    # -- what is there ---------------------------------------------------------------------------------------------

    def _find_snapshot(self) -> None:
        self._disk.remove(f"{self._directory}/{_ARRIVING}")
        found = sorted(filter(None, map(parse_file_name, self._disk.listdir(self._directory))), reverse=True)
        damage: CorruptMessage | None = None
        for snapshot in found:
            content = self._disk.read_all(f"{self._directory}/{file_name(snapshot)}")
            try:
                voters, _ = decode_snapshot(content)
            except CorruptMessage as error:
                damage = error
                continue
            if damage is not None and not self._log_covers(snapshot):
                break
            self._use_snapshot(snapshot, voters, len(content))
            if not self._log_covers(snapshot):
                self._restart_log(snapshot.end_offset)
            return
        if damage is not None and self.log.start_offset > 0:
            raise CorruptMessage(f"{self._directory}: {damage}, and the log begins after it. {HOW_TO_REJOIN}")

    def _log_covers(self, snapshot: SnapshotId) -> bool:
        log, end = self.log, snapshot.end_offset
        if not log.start_offset <= end <= log.end_offset:
            return False
        return end == log.start_offset or log.epochs.epoch_of(end - 1) == snapshot.epoch

    def _use_snapshot(self, snapshot: SnapshotId, voters: VoterSet, size: int) -> None:
        self._snapshot = snapshot
        self._snapshot_voters = voters
        self._sizes[snapshot] = size

    def restore(self) -> Restored:
        log = self.log
        changes = [
            (entry.end, decode_voters(entry.data)) for entry in self._scan(log.start_offset) if entry.kind == VOTERS
        ]
        epochs = [(epoch, max(start, log.start_offset)) for epoch, start in log.epochs.entries]
        state = self._hard_state
        latest = max(log.epochs.latest, NO_EPOCH if self._snapshot is None else self._snapshot.epoch)
        if latest > state.epoch:
            # Something of that epoch survived, and not that it began. Nothing was promised in it, so no vote was given.
            state = self._hard_state = HardState(latest)
            self._state_changed = True  # the next sync writes it down
        return Restored(
            state,
            self._snapshot,
            self._snapshot_voters,
            log.start_offset,
            log.end_offset,
            tuple(_distinct(epochs, log.end_offset)),
            tuple(changes),
        )

    # -- entries ---------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> Sequence[Entry]:
        return list(self._entries(offset, max_bytes))

    def _scan(self, offset: int) -> Iterator[Entry]:
        while offset < self.log.end_offset:
            for entry in self._entries(offset, _SCAN_BYTES):
                yield entry
                offset = entry.end

    def _entries(self, offset: int, max_bytes: int) -> Iterator[Entry]:
        """At least one. Raises CorruptMessage for what is not as it was written."""
        piece = self.log.read(offset, max_bytes, upper=self.log.end_offset)
        expected = offset
        for header, batch in iter_batches(piece.file.read(piece.position, piece.length)):
            if crc_of(batch) != header.crc or header.base_offset != expected:
                break
            expected = header.last_offset + 1
            yield _entry_of(header.base_offset, header.partition_leader_epoch, header.attributes, expected, batch)
        if expected == offset:
            raise CorruptMessage(f"the metadata log {self._directory} is damaged at offset {offset}. {HOW_TO_REJOIN}")

    def write(self, write: Write) -> None:
        invariant(write.number == self._number + 1, f"write {write.number} after {self._number}")
        if write.hard_state is not None:
            self._hard_state = write.hard_state
            self._state_changed = True
        if write.piece is not None:
            self._take_piece(write.piece)
        if write.truncate_to is not None:
            self._truncate(write.truncate_to)
        if write.entries:
            self._append(list(map(_batch_of, write.entries)))
        self._number = write.number
        self._commit = write.commit

    def _append(self, batches: list[bytearray]) -> None:
        log = self.log
        room = log.config.segment_bytes - log.active_segment.size
        if sum(map(len, batches)) <= room:
            log.append_as_follower(b"".join(batches))
            return
        for batch in batches:
            if log.active_segment.size + len(batch) > log.config.segment_bytes:
                self._roll()
            log.append_as_follower(batch)

    def _roll(self) -> None:
        """A crash that keeps bytes of the new segment and not the end of the old would look like damage."""
        self.log.flush()
        self.log.roll(0)

    def _truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        invariant(self.log.end_offset == offset, f"no entry begins at {offset}")
        self.log.flush()

    def begin_sync(self) -> DurableSync | None:
        if self._number == self._synced:
            return None
        # What is committed is never cut off, so a log that ends before it has lost something.
        kept = max(self._recovery_point, min(self._commit, self.log.flushed_offset))
        content = None
        if self._state_changed or kept - self._recovery_point >= _RECOVERY_POINT_EVERY:
            self._state_changed = False
            self._recovery_point = kept
            content = self._state_file()
        return DurableSync(self._number, self._disk, content, self.log, self.log.begin_flush())

    def _state_file(self) -> tuple[str, bytes]:
        state = StoredState(self.key.directory_id, self._hard_state, self._recovery_point)
        return f"{self._directory}/{QUORUM_STATE}", encode_state(state)

    def complete_sync(self, sync: Sync) -> int:
        invariant(isinstance(sync, DurableSync), "a sync of another store")
        assert isinstance(sync, DurableSync)
        if sync.flush is not None:
            sync.log.complete_flush(sync.flush)
        self._synced = max(self._synced, sync.number)
        return self._synced

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot_size(self, snapshot: SnapshotId) -> int:
        return self._sizes[snapshot]

    def read_snapshot(self, snapshot: SnapshotId, position: int, length: int) -> bytes:
        return self._disk.open(self._path(snapshot)).read(position, length)

    def load_snapshot(self, snapshot: SnapshotId) -> bytes:
        return decode_snapshot(self._disk.read_all(self._path(snapshot)))[1]

    def save_snapshot(self, snapshot: SnapshotId, voters: VoterSet, data: bytes) -> None:
        content = encode_snapshot(voters, data)
        decode_snapshot(content)  # what could not be read again must not take the place of what can
        self._disk.write_atomic(self._path(snapshot), content)
        self._sizes[snapshot] = len(content)

    def forget_before(self, snapshot: SnapshotId) -> int:
        """One snapshot more than the newest is kept, with the log after it: should the newest be found damaged, history
        goes on from there, and a replica that is a little behind needs no snapshot."""
        older = sorted(each for each in self._sizes if each < snapshot)
        keep_from = older[-1].end_offset if older else self.log.start_offset
        for each in older[:-1]:
            del self._sizes[each]
            self._disk.remove(self._path(each))
        if keep_from > self.log.start_offset:
            self.log.advance_start_offset(keep_from)
            delete_segments(self.log.expire(0, self.log.end_offset))
        self._roll()  # so that what is before can go as a whole, the next time
        return self.log.start_offset

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{file_name(snapshot)}"

    def _take_piece(self, piece: SnapshotPiece) -> None:
        path = f"{self._directory}/{_ARRIVING}"
        if piece.position == 0:
            self._part = self._disk.open(path, create=True)
            self._part.truncate(0)
        part = self._part
        invariant(part is not None and part.size == piece.position, f"piece at {piece.position} does not fit")
        assert part is not None
        part.append(piece.data)
        if not piece.last:
            return
        content = part.read(0, part.size)
        voters, _ = decode_snapshot(content)
        part.sync()
        part.close()
        self._part = None
        self._disk.rename(path, self._path(piece.snapshot))
        self._disk.sync_dir(self._directory)
        self._use_snapshot(piece.snapshot, voters, len(content))
        self._restart_log(piece.snapshot.end_offset)

    def _restart_log(self, offset: int) -> None:
        """Nothing of the log is left; it goes on at `offset`. Durable when it returns."""
        old = self.log
        old.abandon("replaced by a snapshot")
        names = [name for name in self._disk.listdir(self._directory) if parse_offset_name(name)]
        for name in sorted(names, reverse=True):  # newest first: a crash in between leaves a shorter log, not a hole
            self._disk.remove(f"{self._directory}/{name}")
        with suppress(FileNotFoundError):
            self._disk.remove(f"{self._directory}/{LEADER_EPOCHS}")
        self._disk.sync_dir(self._directory)
        self.log = Log.create(self._disk, self._directory, old.partition, old.config, now_ms=0, start_offset=offset)
        self.log.flush()
        self._replaced(self.log)


def open_log(
    disk: Disk, directory: str, partition: TopicPartition, config: TopicConfig, *, now_ms: int, recovery_point: int = 0
) -> Log:
    """The log of a directory that may be new."""
    disk.make_dir(directory)
    return Log.open(disk, directory, partition, config, now_ms=now_ms, recovery_point=recovery_point)


def _distinct(epochs: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """Without epochs that ended before the log begins, or begin at its end."""
    for slot, (epoch, start) in enumerate(epochs):
        following = epochs[slot + 1][1] if slot + 1 < len(epochs) else end
        if start < following:
            yield epoch, start


def _batch_of(entry: Entry) -> bytearray:
    kind = TYPE_OF_KIND.get(entry.kind)
    batch = bytearray(entry.data) if kind is None else build_control(kind, entry.data, NO_TIMESTAMP)
    patch(batch, base_offset=entry.offset, leader_epoch=entry.epoch)
    return batch


def _entry_of(offset: int, epoch: int, attributes: int, end: int, batch: memoryview) -> Entry:
    if attributes & CONTROL:
        kind, value = read_control(batch)
        return Entry(offset, epoch, KIND_OF_TYPE.get(kind, DATA), end - offset, value)
    data = bytearray(batch)
    patch(data, base_offset=0, leader_epoch=-1)  # as it was proposed: its place is the entry's
    return Entry(offset, epoch, DATA, end - offset, bytes(data))
