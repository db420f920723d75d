"""Leading: sending entries, counting who has them, knowing that a majority still follows."""

from typing import NamedTuple

from tidelog.consensus.control import encode_leader_change, encode_voters
from tidelog.consensus.entries import LEADER_CHANGE, NO_EPOCH, Entry
from tidelog.consensus.following import Following
from tidelog.consensus.log import weight
from tidelog.consensus.messages import (
    AppendRequest,
    AppendResponse,
    ObserveRequest,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
)
from tidelog.consensus.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from tidelog.consensus.ready import ReadGrant
from tidelog.consensus.replica import CANDIDATE, LEADER
from tidelog.consensus.voters import ReplicaKey
from tidelog.errors import invariant


class PendingRead(NamedTuple):
    round: int
    offset: int
    context: object


class Leading(Following):
    _progress: dict[ReplicaKey, Progress]
    """Of every replica but this one: voters and observers."""
    _epoch_start = 0
    _epoch_end = 0
    """Where the first entry of our epoch begins and ends. Only a commit behind it is one of our own."""
    _round = 0
    _round_wanted = False
    _reads: list[PendingRead]
    _refused_reads: list[object]
    _transfer: tuple[ReplicaKey, int] | None = None
    """To whom leadership is being handed, and when that is given up."""
    _heartbeat_at = 0
    _ticked_ms = 0
    _snapshot_wanted = False
    _flushed = (0, 0)
    """Where log and commit ended when everybody was last told of them."""

    def _become_leader(self) -> None:
        super()._become_leader()
        self._progress = {
            voter.key: Progress(voter.key, self.log.end, self._now) for voter in self.voters if voter.key != self.key
        }
        self._reads = []
        self._transfer = None
        self._ticked_ms = self._now
        self._heartbeat_at = self._now + self.settings.heartbeat_ms
        self._epoch_start = self.log.end
        change = encode_leader_change(self.key.id, self.voters, self._granted)
        self._append(Entry(self.log.end, self.epoch, LEADER_CHANGE, 1, change))
        self._epoch_end = self.log.end

    def _become_follower(self, epoch: int, leader: ReplicaKey | None) -> None:
        if self.role == LEADER:
            self._refused_reads += [read.context for read in self._reads]
            self._reads = []
            self._progress = {}
            self._transfer = None
            self._snapshot_wanted = False
        super()._become_follower(epoch, leader)

    def _voters_changed(self) -> None:
        super()._voters_changed()
        if self.role == LEADER:
            for voter in self.voters:
                if voter.key not in self._progress and voter.key != self.key:
                    self._progress[voter.key] = Progress(voter.key, self.log.end, self._now)

    # -- time ------------------------------------------------------------------------------------------------------

    def _tick_leader(self) -> None:
        settings = self.settings
        if self._now - self._ticked_ms > settings.election_timeout_ms // 2:
            # We were asleep, and answers may wait to be read: they get a heartbeat's time before we draw conclusions.
            for progress in self._progress.values():
                waited = settings.election_timeout_ms - settings.heartbeat_ms
                progress.answered_ms = max(progress.answered_ms, self._now - waited)
        self._ticked_ms = self._now
        if not self._hears_majority():
            self._become_follower(self.epoch, None)
            return
        if self._transfer is not None and self._now >= self._transfer[1]:
            self._transfer = None
        if self._now >= self._heartbeat_at:
            self._forget_silent_observers()
            self._heartbeat()

    def _hears_majority(self) -> bool:
        return self.voters.is_quorum(self._heard(self._now - self.settings.election_timeout_ms))

    def _heard(self, oldest: int) -> list[ReplicaKey]:
        """This one, and who answered it after that."""
        return [self.key, *(key for key, progress in self._progress.items() if progress.answered_ms > oldest)]

    def _forget_silent_observers(self) -> None:
        oldest = self._now - self.settings.observer_timeout_ms
        for key, progress in list(self._progress.items()):
            if key not in self.voters and progress.answered_ms < oldest:
                del self._progress[key]

    def _heartbeat(self) -> None:
        self._heartbeat_at = self._now + self.settings.heartbeat_ms
        self._round += 1
        for progress in self._progress.values():
            progress.waiting = False
            if progress.state == REPLICATE and self.log.epoch_before(progress.next) is None:
                progress.probe(progress.match)  # what it may have lost on the way is gone here: it needs a snapshot
            if progress.state != PROBE:  # a probe is a heartbeat
                self._beat(progress)
            self._replicate(progress)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _replicate(self, progress: Progress) -> None:
        settings = self.settings
        while progress.may_send(settings.appends_in_flight_max, settings.bytes_in_flight_max):
            if progress.state == SNAPSHOT:
                self._send_piece(progress)
                return
            epoch = self.log.epoch_before(progress.next)
            if epoch is None:
                if not self._begin_snapshot(progress):
                    return
                continue
            entries = tuple(self.log.read(progress.next, self.log.end, settings.append_bytes_max))
            if not entries and progress.state == REPLICATE:
                return
            self._send_append(progress, progress.next, epoch, entries)
            if progress.state == PROBE:
                progress.waiting = True
            else:
                progress.sent(entries[-1].end, sum(map(weight, entries)))

    def _beat(self, progress: Progress) -> None:
        """Nothing but that we lead and what is committed. That what was sent before arrived, its answer tells."""
        prev = progress.next
        epoch = self.log.epoch_before(prev) if progress.state != SNAPSHOT else None
        if epoch is None:
            prev, epoch = 0, NO_EPOCH  # every log agrees there
        self._send_append(progress, prev, epoch, ())

    def _send_append(self, progress: Progress, prev: int, epoch: int, entries: tuple[Entry, ...]) -> None:
        progress.sent_commit = self.commit
        self._send(AppendRequest(self.epoch, self.key, progress.key, prev, epoch, self.commit, self._round, entries))

    def _begin_snapshot(self, progress: Progress) -> bool:
        snapshot = self.snapshot
        if snapshot is None or snapshot.end_offset < self.log.start:
            self._snapshot_wanted = True
            progress.waiting = True  # until the next heartbeat looks again
            progress.state = PROBE
            return False
        progress.begin_snapshot(snapshot)
        return True

    def _send_piece(self, progress: Progress) -> None:
        snapshot = progress.snapshot
        if snapshot is None or snapshot != self.snapshot:
            # A newer one took its place, and its file may be gone.
            if not self._begin_snapshot(progress):
                return
            snapshot = progress.snapshot
            if snapshot is None:
                return
        total = progress.total = self._reader.snapshot_size(snapshot)
        data = self._reader.read_snapshot(snapshot, progress.position, self.settings.snapshot_piece_bytes)
        voters = encode_voters(self.voters_at(snapshot.end_offset))
        progress.waiting = True
        self._send(
            SnapshotRequest(
                self.epoch, self.key, progress.key, snapshot, voters, progress.position, total, self._round, data
            )
        )

    def _flush_leader(self) -> None:
        """Before a `Ready` leaves: one message carries all that was asked for since the last."""
        if self._flushed == (self.log.end, self.commit) and not self._round_wanted:
            return
        self._flushed = (self.log.end, self.commit)
        if self._round_wanted:
            self._round_wanted = False
            self._round += 1
            for progress in self._progress.values():
                if progress.key in self.voters:
                    self._beat(progress)
        for progress in self._progress.values():
            self._replicate(progress)
            if progress.sent_commit < self.commit and progress.state == REPLICATE:
                self._beat(progress)

    # -- answers ---------------------------------------------------------------------------------------------------

    def _on_append_response(self, message: AppendResponse) -> None:
        progress = self._progress.get(message.sender) if self.role == LEADER else None
        if progress is None:
            return
        progress.end_offset = message.end_offset
        if message.rejected >= 0:
            self._on_rejection(progress, message)
            progress.heard(self._now, self.log.end, message.round)
        elif progress.snapshot is None or message.match >= progress.snapshot.end_offset:
            if message.match > self.log.end:
                invariant(False, f"{message.sender} has {message.match}, we have {self.log.end}")
            moved = progress.advance(message.match, message.round)
            progress.heard(self._now, self.log.end, message.round)
            if moved:
                self._on_progress(progress)
        else:
            progress.heard(self._now, self.log.end, message.round)
        if self.role == LEADER:
            self._replicate(progress)

    def _on_rejection(self, progress: Progress, message: AppendResponse) -> None:
        if progress.state == SNAPSHOT:
            return
        if message.hint_offset < progress.match:
            if message.round > progress.answered_round and message.end_offset < progress.match:
                # It lost what it had promised to keep. Better it gets that again than that nobody notices.
                progress.went_back += 1
                progress.match = 0
                progress.probe(self._agreement(message))
            return
        expected = (
            message.rejected > progress.match if progress.state == REPLICATE else message.rejected == progress.next
        )
        if expected:
            progress.probe(max(self._agreement(message), progress.match))

    def _agreement(self, message: AppendResponse) -> int:
        """The largest offset at which its log and ours may agree, going by its hint."""
        epoch, end = self.log.end_of_epoch(message.hint_epoch)
        if epoch > message.hint_epoch:
            return self.log.start - 1  # they part before our log begins, so only a snapshot helps
        return end if epoch < message.hint_epoch else min(end, message.hint_offset)

    def _on_snapshot_response(self, message: SnapshotResponse) -> None:
        progress = self._progress.get(message.sender) if self.role == LEADER else None
        if progress is None:
            return
        progress.heard(self._now, self.log.end, message.round)
        if message.snapshot != progress.snapshot:
            return
        if message.position >= progress.total:
            progress.end_offset = message.snapshot.end_offset
            if progress.advance(message.snapshot.end_offset, message.round):
                self._on_progress(progress)
        elif message.position > progress.position or message.position == 0 < progress.position:
            progress.position = message.position
            progress.waiting = False
        if self.role == LEADER:
            self._replicate(progress)

    def _on_progress(self, progress: Progress) -> None:
        self._advance_commit()
        if self._transfer is not None and self._transfer[0] == progress.key and self.role == LEADER:
            self._hand_over_if_ready()

    def _on_durable(self) -> None:
        super()._on_durable()
        if self.role == LEADER:
            self._advance_commit()
        elif self.role == CANDIDATE:
            self._count_votes()

    # -- commit ----------------------------------------------------------------------------------------------------

    def _match_of(self, key: ReplicaKey) -> int:
        if key == self.key:
            return self.log.durable_end
        progress = self._progress.get(key)
        return 0 if progress is None else progress.match

    def _advance_commit(self) -> None:
        reached = self.voters.reached_by_majority(self._match_of)
        if reached > self.commit and self._may_commit(reached):
            self._set_commit(reached)
            self._after_commit()

    def _may_commit(self, offset: int) -> bool:
        # Entries of earlier epochs are committed by one of ours behind them, never by being counted.
        return offset > self._epoch_start

    def _after_commit(self) -> None:
        if self.key not in self.voters and self._voter_history[-1][0] <= self.commit:
            # Our removal is committed, so the others can do without us.
            best = max(self.voters.keys, key=lambda key: (self._match_of(key), -key.id))
            self._send(TimeoutNow(self.epoch, self.key, best))
            self._become_follower(self.epoch, None)

    # -- reads, transfer, observers --------------------------------------------------------------------------------

    def _take_reads(self) -> tuple[ReadGrant, ...]:
        if self.role != LEADER or not self._reads:
            return ()
        confirmed = self.voters.reached_by_majority(self._round_of)
        granted = []
        rest = []
        for read in self._reads:
            if read.round <= confirmed and read.offset <= self._applied:
                granted.append(ReadGrant(read.context, read.offset))
            else:
                rest.append(read)
        self._reads = rest
        return tuple(granted)

    def _round_of(self, key: ReplicaKey) -> int:
        if key == self.key:
            return self._round
        progress = self._progress.get(key)
        return 0 if progress is None else progress.acked_round

    def _hand_over_if_ready(self) -> None:
        if self._transfer is not None:
            key = self._transfer[0]
            if self._match_of(key) == self.log.end:
                self._send(TimeoutNow(self.epoch, self.key, key))

    def _on_observe_request(self, message: ObserveRequest) -> None:
        if self.role != LEADER:
            super()._on_observe_request(message)
        elif message.sender not in self._progress:
            observers = len(self._progress) - len(self.voters) + 1
            if observers < self.settings.observers_max:
                progress = Progress(message.sender, self.log.end, self._now)
                progress.end_offset = message.end_offset
                self._progress[message.sender] = progress
                self._replicate(progress)
