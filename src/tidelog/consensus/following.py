"""Following a leader: taking its entries, or its snapshot when the entries are gone.

What is acknowledged is on disk. A heartbeat is answered at once, also while a slow disk syncs, with what is durable by
then; entries are answered when they are.
"""

from typing import NamedTuple

from tidelog.consensus.control import decode_voters
from tidelog.consensus.electing import Electing
from tidelog.consensus.entries import Entry, SnapshotId
from tidelog.consensus.messages import AppendRequest, AppendResponse, SnapshotRequest, SnapshotResponse, TimeoutNow
from tidelog.consensus.ready import SnapshotPiece
from tidelog.consensus.replica import FOLLOWER, LEADER
from tidelog.consensus.voters import ReplicaKey, VoterSet
from tidelog.errors import invariant


class Arriving(NamedTuple):
    """A snapshot of which `position` bytes are here. Another leader's of the same name may have other bytes."""

    epoch: int
    snapshot: SnapshotId
    position: int


class Installing(NamedTuple):
    """A snapshot that is complete and being made durable."""

    number: int
    snapshot: SnapshotId
    voters: VoterSet
    total: int


class Following(Electing):
    _matched = 0
    """Up to here the log is known to be that of the leader we follow."""
    _heard_round = 0
    _ack_due = False
    _arriving: Arriving | None = None
    _installing: Installing | None = None

    def _follow(self, leader: ReplicaKey, round: int) -> None:
        if self.role == LEADER:
            invariant(False, f"two leaders in epoch {self.epoch}: {self.key} and {leader}")
        if self.leader != leader or self.role != FOLLOWER:
            self._become_follower(self.epoch, leader)
            self._matched = 0
            self._heard_round = 0
            self._ack_due = False
        self._leader_heard_ms = self._now
        self._set_election_timer()
        self._heard_round = max(self._heard_round, round)

    # -- entries ---------------------------------------------------------------------------------------------------

    def _on_append_request(self, message: AppendRequest) -> None:
        self._follow(message.sender, message.round)
        if self._installing is not None:
            self._ack()  # alive, and busy
            return
        if not self._agrees(message):
            self._reject(message)
            return
        self._take(message.entries)
        last = message.entries[-1].end if message.entries else message.prev_offset
        self._matched = max(self._matched, last, self.commit)
        self._learn_commit(message)
        if message.entries and self._matched > self.log.durable_end:
            self._ack_due = True
        else:
            self._ack()

    def _agrees(self, message: AppendRequest) -> bool:
        """Whether our log has the entry that theirs follow. What is committed is in every leader's log."""
        return message.prev_offset <= self.commit or self.log.epoch_before(message.prev_offset) == message.prev_epoch

    def _take(self, entries: tuple[Entry, ...]) -> None:
        for slot, entry in enumerate(entries):
            if self._has(entry):
                continue
            if entry.offset < self.log.end:
                self._truncate(entry.offset)
            for each in entries[slot:]:
                self._append(each)
            return

    def _has(self, entry: Entry) -> bool:
        # Two logs that agree on an offset's epoch agree on everything up to it.
        return entry.end <= self.commit or self.log.epoch_before(entry.end) == entry.epoch

    def _learn_commit(self, message: AppendRequest) -> None:
        # Not beyond what is known to be the leader's: what follows here may be another's, never to be committed.
        commit = min(message.commit, self._matched)
        if commit > self.commit:
            self._set_commit(commit)

    def _reject(self, message: AppendRequest) -> None:
        epoch, end = self.log.end_of_epoch(message.prev_epoch)
        self._send(
            AppendResponse(
                self.epoch,
                self.key,
                message.sender,
                min(self._matched, self.log.durable_end),
                self.log.end,
                self._heard_round,
                message.prev_offset,
                epoch,
                end,
            )
        )

    def _ack(self) -> None:
        if self.leader is not None:
            match = min(self._matched, self.log.durable_end)
            self._ack_due = self._matched > match
            self._send(AppendResponse(self.epoch, self.key, self.leader, match, self.log.end, self._heard_round))

    def _on_durable(self) -> None:
        super()._on_durable()
        if self._installing is not None and self._installing.number <= self._persisted:
            self._installed(self._installing)
        elif self._ack_due and self.role == FOLLOWER:
            self._ack()

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _on_snapshot_request(self, message: SnapshotRequest) -> None:
        self._follow(message.sender, message.round)
        if self._installing is not None:
            self._ack()
            return
        if self._has_state_of(message.snapshot):
            self._matched = max(self._matched, message.snapshot.end_offset)
            if message.snapshot.end_offset > self.commit:
                self._set_commit(message.snapshot.end_offset)
            self._ack()
            return
        here = self._arriving
        if here is None or here[:2] != (message.epoch, message.snapshot):
            here = Arriving(message.epoch, message.snapshot, 0)
        if message.position == here.position and self._piece is None:
            here = self._take_piece(message, here)
        self._arriving = here
        if self._installing is None:
            self._send(
                SnapshotResponse(
                    self.epoch, self.key, message.sender, message.snapshot, here.position, self._heard_round
                )
            )

    @property
    def installing(self) -> bool:
        """The store has a snapshot of another replica in place of the log that is still in use here."""
        return self._installing is not None

    def _has_state_of(self, snapshot: SnapshotId) -> bool:
        """Then what follows it in our log stays: some of it may have been acknowledged."""
        return snapshot.end_offset <= self.commit or self.log.epoch_before(snapshot.end_offset) == snapshot.epoch

    def _take_piece(self, message: SnapshotRequest, here: Arriving) -> Arriving:
        end = message.position + len(message.data)
        last = end >= message.total
        self._piece = SnapshotPiece(message.snapshot, message.position, message.data, last)
        if last:
            self._installing = Installing(self._number, message.snapshot, decode_voters(message.voters), message.total)
            self._entries.clear()  # the snapshot takes the place of the whole log
            self._truncate_to = None
        return here._replace(position=end)

    def _installed(self, done: Installing) -> None:
        self._installing = None
        self._arriving = None
        self.log.reset(done.snapshot)
        self._written_end = self.log.end
        self.snapshot = self._load = done.snapshot
        self.commit = self._applied = done.snapshot.end_offset
        self._voter_history = [(0, done.voters)]
        self._voters_changed()
        self._matched = self.commit
        if self.leader is not None and self.role == FOLLOWER:
            self._send(
                SnapshotResponse(self.epoch, self.key, self.leader, done.snapshot, done.total, self._heard_round)
            )

    def _on_election_timeout(self) -> None:
        if self._installing is None:
            super()._on_election_timeout()
        else:
            self._set_election_timer()

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if self._installing is None:  # the log to stand with is being replaced
            super()._on_timeout_now(message)
