"""Bugs to plant: each a small change to the production classes, of the kind that has been made for real."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.process import Process, WatchedStore, directory_id

from tidelog.consensus.entries import Entry, HardState, SnapshotId
from tidelog.consensus.leading import PendingRead
from tidelog.consensus.messages import AnyMessage, AppendRequest, AppendResponse, VoteRequest
from tidelog.consensus.raft import Raft
from tidelog.consensus.ready import ReadGrant, Ready, Restored
from tidelog.consensus.replica import CANDIDATE, LEADER
from tidelog.consensus.voters import ReplicaKey


class Mutation(NamedTuple):
    name: str
    raft: type[Raft] = Raft
    store: type[WatchedStore] = WatchedStore
    process: type[Process] = Process
    seeds: tuple[int, ...] = ()
    """Worlds in which it shows, tried first. When worlds change, any other will do."""


class PromisesBeforeFsync(Raft):
    def _send(self, message: AnyMessage) -> None:
        self._outbox.append(message)


class AcksBeforeFsync(Raft):
    def _ack(self) -> None:
        if self.leader is not None:
            self._ack_due = False
            self._send(
                AppendResponse(self.epoch, self.key, self.leader, self._matched, self.log.end, self._heard_round)
            )

    def _on_append_request(self, message: AppendRequest) -> None:
        super()._on_append_request(message)
        if self._ack_due:
            self._ack()


class AcksWhatDoesNotMatch(Raft):
    def _ack(self) -> None:
        self._matched = self.log.end
        super()._ack()


class LeaderCountsWhatItHasNotSynced(Raft):
    def _match_of(self, key: ReplicaKey) -> int:
        return self.log.end if key == self.key else super()._match_of(key)


class CommitsOldEpochsByCounting(Raft):
    def _may_commit(self, offset: int) -> bool:
        return True


class CountsObservers(Raft):
    def _advance_commit(self) -> None:
        matches = sorted([self.log.durable_end, *(p.match for p in self._progress.values())], reverse=True)
        reached = matches[self.voters.majority - 1]
        if reached > self.commit and self._may_commit(reached):
            self._set_commit(reached)
            self._after_commit()


class VotesTwice(Raft):
    def _would_vote_for(self, message: VoteRequest) -> bool:
        voted, self.voted_for = self.voted_for, None
        granted = super()._would_vote_for(message)
        self.voted_for = voted
        return granted


class VotesForShorterLogs(Raft):
    def _would_vote_for(self, message: VoteRequest) -> bool:
        longest = VoteRequest(
            message.epoch, message.sender, message.to, self.log.end, self.log.last_epoch, message.pre_vote
        )
        return super()._would_vote_for(longest)


class WinsWithoutItsOwnVote(Raft):
    """Leads before its epoch and vote are durable."""

    def _count_votes(self) -> None:
        persisted, self._persisted = self._persisted, 1 << 60
        super()._count_votes()
        self._persisted = persisted


class TruncatesWhatItHas(Raft):
    def _take(self, entries: tuple[Entry, ...]) -> None:
        fresh = [entry for entry in entries if entry.offset >= self.commit]
        if fresh and fresh[0].offset < self.log.end:
            self._truncate(fresh[0].offset)
        for entry in fresh:
            if entry.offset == self.log.end:
                self._append(entry)


class TruncatesCommitted(Raft):
    def _has(self, entry: Entry) -> bool:
        return False

    def _truncate(self, offset: int) -> None:
        commit, self.commit = self.commit, 0
        super()._truncate(offset)
        self.commit = min(commit, offset)


class NoLogMatching(Raft):
    def _agrees(self, message: AppendRequest) -> bool:
        return message.prev_offset <= self.log.end


class CommitsWhatDoesNotMatch(Raft):
    def _learn_commit(self, message: AppendRequest) -> None:
        commit = min(message.commit, self.log.end)
        if commit > self.commit:
            self._set_commit(commit)


class TwoChangesAtOnce(Raft):
    def _check_may_change_voters(self) -> None:
        history, self._voter_history = self._voter_history, [(0, self.voters)]
        try:
            super()._check_may_change_voters()
        finally:
            self._voter_history = history


class ChangesVotersBeforeItCommitted(Raft):
    def _check_may_change_voters(self) -> None:
        end, self._epoch_end = self._epoch_end, 0
        try:
            super()._check_may_change_voters()
        finally:
            self._epoch_end = end


class KeepsTruncatedVoters(Raft):
    def _truncate(self, offset: int) -> None:
        history = list(self._voter_history)
        super()._truncate(offset)
        self._voter_history = history
        self._voters_changed()


class ReadsWithoutAsking(Raft):
    def _round_of(self, key: ReplicaKey) -> int:
        return 1 << 60


class ReadsBeforeApplying(Raft):
    def _take_reads(self) -> tuple[ReadGrant, ...]:
        self._reads = [PendingRead(read.round, 0, read.context) for read in self._reads]
        return super()._take_reads()

    def _take_committed(self) -> Sequence[Entry]:
        return super()._take_committed() if self._now % 3 == 0 else ()


class NoPreVote(Raft):
    def _on_election_timeout(self) -> None:
        if self.key in self.voters and self._installing is None:
            self._stand(CANDIDATE)
        else:
            super()._on_election_timeout()


class PreVotesDespiteALeader(Raft):
    def _hears_leader(self) -> bool:
        return False


class NoCheckQuorum(Raft):
    def _hears_majority(self) -> bool:
        return True


class SnapshotOffByOne(Raft):
    """Takes the last entry of a snapshot for one that comes after it."""

    def _take_ready(self) -> Ready:
        if self._load is not None:
            self._applied -= 1
        return super()._take_ready()


class InstallsOldSnapshots(Raft):
    def _has_state_of(self, snapshot: SnapshotId) -> bool:
        return False


class LeadsForEver(Raft):
    """Does not notice that its epoch is over."""

    def _settle_epoch(self, message: AnyMessage) -> bool:
        return self.role == LEADER or super()._settle_epoch(message)


class ForgetsItsVote(WatchedStore):
    def restore(self) -> Restored:
        restored = super().restore()
        return restored._replace(hard_state=HardState(restored.hard_state.epoch))


class ForgetsItsEpoch(WatchedStore):
    def restore(self) -> Restored:
        restored = super().restore()
        latest = max(
            (epoch for epoch, _ in restored.epochs), default=restored.snapshot.epoch if restored.snapshot else 0
        )
        return restored._replace(hard_state=HardState(latest))


class SameIdOnAnyDisk(Process):
    """A node with a new disk passes for the voter that it was."""

    @property
    def key(self) -> ReplicaKey:
        return super().key._replace(directory_id=directory_id(self.id, 0))


class VotesWithAnEmptyDisk(Raft):
    def _would_vote_for(self, message: VoteRequest) -> bool:
        if not self.log.end and message.epoch >= self.epoch and not message.pre_vote:
            return self.voted_for in (None, message.sender)
        return super()._would_vote_for(message) or (not self.log.end and message.pre_vote)


MUTATIONS = (
    Mutation("promises-before-fsync", PromisesBeforeFsync),
    Mutation("acks-before-fsync", AcksBeforeFsync),
    Mutation("acks-what-does-not-match", AcksWhatDoesNotMatch, seeds=(134,)),
    Mutation("leader-counts-what-it-has-not-synced", LeaderCountsWhatItHasNotSynced),
    Mutation("leads-before-its-vote-is-durable", WinsWithoutItsOwnVote),
    Mutation("commits-old-epochs-by-counting", CommitsOldEpochsByCounting),
    Mutation("counts-observers", CountsObservers),
    Mutation("votes-twice", VotesTwice, seeds=(7,)),
    Mutation("votes-for-shorter-logs", VotesForShorterLogs, seeds=(4,)),
    Mutation("vote-forgotten-on-restart", store=ForgetsItsVote, seeds=(217,)),
    Mutation("epoch-forgotten-on-restart", store=ForgetsItsEpoch, seeds=(35,)),
    Mutation("leads-for-ever", LeadsForEver),
    Mutation("truncates-what-it-has", TruncatesWhatItHas),
    Mutation("truncates-committed", TruncatesCommitted),
    Mutation("no-log-matching", NoLogMatching),
    Mutation("commits-what-does-not-match", CommitsWhatDoesNotMatch, seeds=(93,)),
    Mutation("two-changes-of-voters-at-once", TwoChangesAtOnce),
    Mutation("changes-voters-before-it-committed", ChangesVotersBeforeItCommitted, seeds=(11,)),
    Mutation("keeps-truncated-voters", KeepsTruncatedVoters, seeds=(53,)),
    Mutation("reads-without-asking", ReadsWithoutAsking, seeds=(51,)),
    Mutation("reads-before-applying", ReadsBeforeApplying),
    Mutation("no-pre-vote", NoPreVote),
    Mutation("pre-votes-despite-a-leader", PreVotesDespiteALeader, seeds=(166,)),
    Mutation("no-check-quorum", NoCheckQuorum),
    Mutation("snapshot-off-by-one", SnapshotOffByOne),
    Mutation("installs-old-snapshots", InstallsOldSnapshots, seeds=(27,)),
    Mutation("votes-with-an-empty-disk", VotesWithAnEmptyDisk, process=SameIdOnAnyDisk, seeds=(8,)),
)
