"""What every replica has, whatever its role: its key, epoch, vote, log and voters, and what it wants written and sent.

The rule that keeps promises: a message leaves only after the epoch and vote it was sent in are durable. How far the log
is durable is said in the message itself, so nothing else has to wait.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.consensus.control import decode_voters
from tidelog.consensus.entries import VOTERS, Entry, HardState, SnapshotId
from tidelog.consensus.log import ReplicatedLog
from tidelog.consensus.messages import AnyMessage
from tidelog.consensus.ready import LogReader, Restored, SnapshotPiece, Write
from tidelog.consensus.settings import Dice, Settings
from tidelog.consensus.voters import NOBODY, ReplicaKey, VoterSet
from tidelog.errors import invariant

FOLLOWER: Final = "follower"
"""Also of what is no voter: it follows and never stands for election."""
PROSPECTIVE: Final = "prospective"
"""Asks whether it would be elected."""
CANDIDATE: Final = "candidate"
LEADER: Final = "leader"


class Replica:
    def __init__(
        self, key: ReplicaKey, restored: Restored, reader: LogReader, settings: Settings, dice: Dice, now_ms: int
    ) -> None:
        self.key = key
        self.settings = settings
        self.role = FOLLOWER
        self.epoch = restored.hard_state.epoch
        self.voted_for = restored.hard_state.voted_for
        self.leader: ReplicaKey | None = None
        self.log = ReplicatedLog(restored, reader, settings.cache_bytes)
        self.snapshot = restored.snapshot
        """The newest one that the store has."""
        self.commit = self.log.start if restored.snapshot is None else restored.snapshot.end_offset
        self.peers: frozenset[int] = frozenset()
        """Nodes to ask for a leader while no voters are known."""
        invariant(self.epoch >= self.log.last_epoch, f"epoch {self.epoch} but the log has {self.log.last_epoch}")
        self._reader = reader
        self._dice = dice
        self._now = now_ms
        self._leader_heard_ms = now_ms
        self._voter_history = [(0, restored.snapshot_voters)]
        self._voter_history += [
            (end, voters) for end, voters in restored.voters if end > self.commit or not self.snapshot
        ]
        self.voters = self._voter_history[-1][1]
        # What the next write will hold, and what was in those under way.
        self._number = 1
        self._persisted = 0
        self._hard_state_changed = False
        self._truncate_to: int | None = None
        self._piece: SnapshotPiece | None = None
        self._entries: list[Entry] = []
        self._written_end = self.log.end  # handed out in writes so far
        self._under_way: list[tuple[int, int]] = []  # (number, end of the log with that write)
        # What leaves.
        self._vow = 0  # number of the write that holds the present epoch and vote
        self._held: list[tuple[int, AnyMessage]] = []
        self._outbox: list[AnyMessage] = []
        self._applied = self.commit
        self._load: SnapshotId | None = restored.snapshot
        # The first time sooner: no leader was heard of yet, and if there is one its followers refuse the question.
        self._election_deadline = now_ms + int((0.2 + 0.5 * dice.random()) * settings.election_timeout_ms)

    @property
    def leader_id(self) -> int:
        return NOBODY if self.leader is None else self.leader.id

    @property
    def applied(self) -> int:
        """Everything below was handed out as committed."""
        return self._applied

    # -- hard state and messages -----------------------------------------------------------------------------------

    def _enter_epoch(self, epoch: int, voted_for: ReplicaKey | None) -> None:
        invariant(epoch >= self.epoch, f"epoch {epoch} after {self.epoch}")
        self.epoch = epoch
        self.voted_for = voted_for
        self._hard_state_changed = True
        self._vow = self._number

    def _send(self, message: AnyMessage) -> None:
        if self._vow > self._persisted:
            self._held.append((self._vow, message))
        else:
            self._outbox.append(message)

    def _set_election_timer(self) -> None:
        timeout = self.settings.election_timeout_ms
        self._election_deadline = self._now + timeout + int(self._dice.random() * timeout)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self._entries.append(entry)
        if entry.kind == VOTERS:
            self._voter_history.append((entry.end, decode_voters(entry.data)))
            self._voters_changed()

    def _truncate(self, offset: int) -> None:
        invariant(offset >= self.commit, f"truncation to {offset}, but {self.commit} is committed")
        self.log.truncate(offset)
        while self._entries and self._entries[-1].offset >= offset:
            self._entries.pop()
        if offset < self._written_end:
            self._truncate_to = offset if self._truncate_to is None else min(offset, self._truncate_to)
            self._written_end = offset
        self._under_way = [(number, min(end, offset)) for number, end in self._under_way]
        while self._voter_history[-1][0] > offset:
            self._voter_history.pop()
        self._voters_changed()

    def _voters_changed(self) -> None:
        self.voters = self._voter_history[-1][1]

    def voters_at(self, offset: int) -> VoterSet:
        """As they were after everything below `offset`."""
        return next(voters for end, voters in reversed(self._voter_history) if end <= offset)

    def _set_commit(self, offset: int) -> None:
        if not self.commit <= offset <= self.log.end:
            invariant(False, f"commit {offset} outside {self.commit}..{self.log.end}")
        self.commit = offset

    # -- writes ----------------------------------------------------------------------------------------------------

    def _wants_write(self) -> bool:
        return bool(self._hard_state_changed or self._entries or self._truncate_to is not None or self._piece)

    def _take_write(self) -> Write | None:
        if not self._wants_write():
            return None
        write = Write(
            self._number,
            HardState(self.epoch, self.voted_for) if self._hard_state_changed else None,
            self._piece,
            self._truncate_to,
            tuple(self._entries),
            self.commit,
        )
        self._number += 1
        self._hard_state_changed = False
        self._piece = None
        self._truncate_to = None
        self._entries.clear()
        self._written_end = self.log.end
        self._under_way.append((write.number, self.log.end))
        return write

    def persisted(self, number: int, now_ms: int) -> None:
        """Every write up to `number` is durable."""
        self._now = now_ms
        self._persisted = max(self._persisted, number)
        done = [end for each, end in self._under_way if each <= number]
        if done:
            self._under_way = self._under_way[len(done) :]
            self.log.became_durable(max(done))
        if self._held:
            self._outbox += [message for vow, message in self._held if vow <= number]
            self._held = [(vow, message) for vow, message in self._held if vow > number]
        self._on_durable()

    def _on_durable(self) -> None:
        """More of the log is durable, or a snapshot that was being received."""

    def _take_committed(self) -> Sequence[Entry]:
        committed = self.log.read(self._applied, self.commit, self.settings.committed_bytes_max)
        if committed:
            self._applied = committed[-1].end
        return committed
