"""A replica of the quorum: what can be asked of it, and what it wants done.

Deterministic: the same calls with the same dice give the same `Ready`s. Time is monotonic milliseconds and goes with
the calls that need it. After any calls, take `ready()` until it is None; `ready.py` says what to do with it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.consensus.control import encode_voters
from tidelog.consensus.entries import DATA, VOTERS, Entry, SnapshotId
from tidelog.consensus.errors import (
    ChangeInProgress,
    DuplicateVoter,
    HandingOver,
    LastVoter,
    NotCaughtUp,
    NotLeader,
    Overloaded,
    VoterNotFound,
)
from tidelog.consensus.leading import Leading, PendingRead
from tidelog.consensus.messages import (
    AnyMessage,
    AppendRequest,
    AppendResponse,
    LeaderHint,
    ObserveRequest,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.consensus.ready import LogReader, Ready, Restored
from tidelog.consensus.replica import LEADER
from tidelog.consensus.settings import DEFAULTS, Dice, Settings
from tidelog.consensus.voters import ANY_DIRECTORY, NOBODY, ReplicaKey, Voter, VoterSet

__all__ = ["Proposed", "QuorumStatus", "Raft", "ReplicaState"]


class Proposed(NamedTuple):
    """Where an entry was put. It is committed if what is committed at `offset` has this epoch; otherwise it is lost."""

    offset: int
    epoch: int


class ReplicaState(NamedTuple):
    """As DescribeQuorum tells it. Times are of the caller's monotonic clock; -1 is never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumStatus(NamedTuple):
    """Only the leader knows of the others' logs."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]


class Raft(Leading):
    def __init__(
        self,
        key: ReplicaKey,
        restored: Restored,
        reader: LogReader,
        *,
        settings: Settings = DEFAULTS,
        dice: Dice,
        now_ms: int,
    ) -> None:
        self._progress = {}
        self._reads = []
        self._refused_reads = []
        self._granted = set()
        self._unsettled: deque[tuple[int, int]] = deque()  # (end offset, bytes) of proposals that are not committed
        self._unsettled_bytes = 0
        super().__init__(key, restored, reader, settings, dice, now_ms)
        if self.voters.keys == {key}:
            self._election_deadline = now_ms  # nobody else could be the leader
        self._handlers: Final = {
            VoteRequest: self._on_vote_request,
            VoteResponse: self._on_vote_response,
            AppendRequest: self._on_append_request,
            AppendResponse: self._on_append_response,
            SnapshotRequest: self._on_snapshot_request,
            SnapshotResponse: self._on_snapshot_response,
            TimeoutNow: self._on_timeout_now,
            ObserveRequest: self._on_observe_request,
            LeaderHint: self._on_leader_hint,
        }

    # -- what happens to it ----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._now = now_ms
        if self.role == LEADER:
            self._tick_leader()
        elif now_ms >= self._election_deadline:
            self._on_election_timeout()

    @property
    def next_tick_ms(self) -> int:
        """Nothing happens by time alone before this."""
        return self._heartbeat_at if self.role == LEADER else self._election_deadline

    def receive(self, message: AnyMessage, now_ms: int) -> None:
        self._now = now_ms
        to = message.to
        if to.id != self.key.id or to.directory_id not in (self.key.directory_id, ANY_DIRECTORY):
            return  # for a disk that this node no longer has
        if self._settle_epoch(message):
            self._handlers[type(message)](message)  # type: ignore[operator]

    def leader_gone(self, now_ms: int) -> None:
        """The leader's process has most likely ended: stand soon, without waiting for its silence to grow long. Only a
        hint. Where the others still hear it they refuse their pre-vote, and nothing happens."""
        if self.role != LEADER and self.leader is not None:
            self._now = now_ms
            self.leader = None
            self._election_deadline = now_ms + int(self._dice.random() * self.settings.heartbeat_ms)

    def ready(self) -> Ready | None:
        """None once there is nothing more to do."""
        if self.role == LEADER:
            self._flush_leader()
        if not (self._outbox or self._applied < self.commit or self._reads or self._wants_write() or self._rest()):
            return None
        ready = self._take_ready()
        return ready if any(ready) else None

    def _rest(self) -> bool:
        """What is seldom there."""
        return self._load is not None or bool(self._refused_reads) or self._snapshot_wanted

    def _take_ready(self) -> Ready:
        committed = self._take_committed()
        reads = self._take_reads()
        write = self._take_write()
        messages = tuple(self._outbox)
        self._outbox.clear()
        load, self._load = self._load, None
        refused = tuple(self._refused_reads)
        self._refused_reads.clear()
        wanted, self._snapshot_wanted = self._snapshot_wanted, False
        return Ready(write, messages, load, tuple(committed), reads, refused, wanted)

    def snapshot_saved(self, snapshot: SnapshotId, log_start: int) -> None:
        """The store has a snapshot of what was applied, and its log begins at `log_start` now."""
        if self.snapshot is None or snapshot > self.snapshot:
            voters = self.voters_at(snapshot.end_offset)
            self.snapshot = snapshot
            self.log.forget_before(log_start)
            self.log.note_snapshot(snapshot)
            later = [(end, each) for end, each in self._voter_history if end > snapshot.end_offset]
            self._voter_history = [(0, voters), *later]

    # -- what can be asked -----------------------------------------------------------------------------------------

    def form(self, voter: Voter, now_ms: int) -> None:
        """Begin a quorum of one, on a disk that belongs to none. What its log holds becomes the quorum's history."""
        self._now = now_ms
        if len(self.voters):
            raise DuplicateVoter(voter.id)
        self._append(Entry(self.log.end, self.epoch, VOTERS, 1, encode_voters(VoterSet([voter]))))
        self._election_deadline = now_ms

    def propose(self, data: bytes, count: int = 1) -> Proposed:
        """`data`: a record batch with `count` records. Raises NotLeader, HandingOver or Overloaded and does nothing."""
        self._check_leads()
        while self._unsettled and self._unsettled[0][0] <= self.commit:
            self._unsettled_bytes -= self._unsettled.popleft()[1]
        if self._unsettled_bytes > self.settings.proposals_bytes_max:
            raise Overloaded(f"{self._unsettled_bytes} bytes wait to be committed")
        proposed = self._propose(DATA, count, data)
        self._unsettled.append((self.log.end, len(data)))
        self._unsettled_bytes += len(data)
        return proposed

    def read(self, context: object) -> None:
        """Some later `Ready` has `context` among its `reads`, or among `refused_reads`. Raises NotLeader."""
        if self.role != LEADER:
            raise NotLeader(self.leader_id)
        # Behind our own first entry is everything that any leader before us committed.
        self._reads.append(PendingRead(self._round + 1, max(self.commit, self._epoch_end), context))
        self._round_wanted = True

    def transfer(self, to: ReplicaKey, now_ms: int) -> None:
        """Hand leadership over. Proposals are refused meanwhile; after an election timeout it is given up."""
        self._now = now_ms
        if self.role != LEADER:
            raise NotLeader(self.leader_id)
        if to not in self.voters:
            raise VoterNotFound(to)
        if to != self.key:
            self._transfer = (to, now_ms + self.settings.election_timeout_ms)
            self._hand_over_if_ready()

    def best_successor(self) -> ReplicaKey | None:
        """The voter to `transfer` to before stopping."""
        oldest = self._now - self.settings.election_timeout_ms
        alive = [p for key, p in self._progress.items() if key in self.voters and p.answered_ms > oldest]
        return max(alive, key=lambda p: (p.match, -p.key.id)).key if alive else None

    def add_voter(self, voter: Voter) -> Proposed:
        """An observer that has caught up becomes a voter."""
        self._check_may_change_voters()
        if self.voters.has_id(voter.id):
            raise DuplicateVoter(voter.id)
        if not self.is_followed_by(voter.key):
            raise NotCaughtUp(f"{voter.key} does not follow closely enough")
        return self._propose(VOTERS, 1, encode_voters(self.voters.with_voter(voter)))

    def is_followed_by(self, key: ReplicaKey) -> bool:
        """Closely enough to become a voter."""
        progress = self._progress.get(key)
        oldest = self._now - self.settings.election_timeout_ms
        return progress is not None and progress.match >= self._epoch_end and progress.caught_up_ms >= oldest

    def remove_voter(self, key: ReplicaKey) -> Proposed:
        """A leader that removes itself leads until that is committed."""
        self._check_may_change_voters()
        if key not in self.voters:
            raise VoterNotFound(key)
        if len(self.voters) == 1:
            raise LastVoter
        return self._propose(VOTERS, 1, encode_voters(self.voters.without(key)))

    def bears_loss_of(self, key: ReplicaKey, since_ms: int | None = None) -> bool:
        """Whether those that would be left are a quorum of themselves, going by who answered this leader since then, or
        just now. To be wrong about it would stop the quorum until one that is dead comes back."""
        oldest = self._now - 2 * self.settings.heartbeat_ms if since_ms is None else since_ms
        return self.voters.without(key).is_quorum(self._heard(oldest))

    def follow_peers(self, node_ids: Iterable[int]) -> None:
        """Whom to ask for a leader as long as the log names no voters."""
        self.peers = frozenset(node_ids) - {self.key.id}

    def status(self) -> QuorumStatus:
        states = [self._own_state()]
        states += [ReplicaState(p.key, p.end_offset, p.answered_ms, p.caught_up_ms) for p in self._progress.values()]
        by_key = {state.key: state for state in states}
        unknown = -1
        voters = [by_key.get(v.key, ReplicaState(v.key, unknown, unknown, unknown)) for v in self.voters]
        observers = [state for state in states if state.key not in self.voters]
        return QuorumStatus(self.leader_id, self.epoch, self.commit, tuple(voters), tuple(observers))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _become_leader(self) -> None:
        super()._become_leader()
        self._unsettled.clear()
        self._unsettled_bytes = 0

    def _own_state(self) -> ReplicaState:
        now = self._now if self.role == LEADER else NOBODY
        return ReplicaState(self.key, self.log.end, now, now)

    def _check_leads(self) -> None:
        if self.role != LEADER:
            raise NotLeader(self.leader_id)
        if self._transfer is not None:
            raise HandingOver(f"leadership goes to {self._transfer[0]}")

    def _check_may_change_voters(self) -> None:
        self._check_leads()
        if self.commit < self._epoch_end:
            raise ChangeInProgress("this leader has not committed anything yet")
        if self._voter_history[-1][0] > self.commit:
            raise ChangeInProgress("the last change of voters is not committed yet")

    def _propose(self, kind: int, count: int, data: bytes) -> Proposed:
        entry = Entry(self.log.end, self.epoch, kind, count, data)
        self._append(entry)
        return Proposed(entry.offset, entry.epoch)
