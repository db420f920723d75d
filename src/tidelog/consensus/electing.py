"""Elections: who stands, who votes for whom, and when nobody should.

Before it begins a new epoch a voter asks whether it would win (pre-vote), so that one that was cut off can't unseat a
leader by coming back. Who heard from a leader lately votes for nobody: then a leader that hears from a majority knows
that there is no other.
"""

from tidelog.consensus.messages import (
    AnyMessage,
    AppendRequest,
    LeaderHint,
    ObserveRequest,
    SnapshotRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.consensus.replica import CANDIDATE, FOLLOWER, LEADER, PROSPECTIVE, Replica
from tidelog.consensus.voters import ANY_DIRECTORY, NOBODY, ReplicaKey


class Electing(Replica):
    _granted: set[ReplicaKey]

    def _become_follower(self, epoch: int, leader: ReplicaKey | None) -> None:
        if epoch > self.epoch:
            self._enter_epoch(epoch, None)
        self.role = FOLLOWER
        self.leader = leader
        self._set_election_timer()

    # -- standing --------------------------------------------------------------------------------------------------

    def _on_election_timeout(self) -> None:
        self.leader = None
        if self.key in self.voters:
            self._stand(PROSPECTIVE)
        else:
            self.role = FOLLOWER
            self._look_for_leader()
        self._set_election_timer()

    def _stand(self, role: str, *, transferred: bool = False) -> None:
        """As PROSPECTIVE nothing changes for anybody; as CANDIDATE a new epoch begins here."""
        self.role = role
        self.leader = None
        self._granted = {self.key}
        if role == CANDIDATE:
            self._enter_epoch(self.epoch + 1, self.key)
        self._set_election_timer()
        asked = self.epoch if role == CANDIDATE else self.epoch + 1
        for voter in self.voters:
            if voter.key != self.key:
                self._send(
                    VoteRequest(
                        asked,
                        self.key,
                        voter.key,
                        self.log.end,
                        self.log.last_epoch,
                        role == PROSPECTIVE,
                        transferred,
                    )
                )
        self._count_votes()

    def _count_votes(self) -> None:
        if not self.voters.is_quorum(self._granted):
            return
        if self.role == PROSPECTIVE:
            self._stand(CANDIDATE)
        elif self._vow <= self._persisted:  # until then our own vote is only an intention
            self._become_leader()

    def _become_leader(self) -> None:
        self.role = LEADER
        self.leader = self.key

    def _on_vote_response(self, message: VoteResponse) -> None:
        asking = PROSPECTIVE if message.pre_vote else CANDIDATE
        if self.role != asking or message.epoch != self.epoch + message.pre_vote:
            if self.role == PROSPECTIVE and not message.granted:
                self._ask_leader(message.leader_id)
            return
        if message.granted:
            self._granted.add(message.sender)
            self._count_votes()

    def _ask_leader(self, leader_id: int) -> None:
        """Somebody still has a leader, and it is not replicating to us: perhaps we are no voter any more."""
        if leader_id not in (NOBODY, self.key.id):
            leader = ReplicaKey(leader_id, ANY_DIRECTORY)
            self._send(ObserveRequest(self.epoch, self.key, leader, self.log.end))

    # -- voting ----------------------------------------------------------------------------------------------------

    def _hears_leader(self) -> bool:
        if self.role == LEADER:
            return True  # it would have stepped down without a majority
        return self.leader is not None and self._now - self._leader_heard_ms < self.settings.election_timeout_ms

    def _on_vote_request(self, message: VoteRequest) -> None:
        granted = self._would_vote_for(message)
        if granted and not message.pre_vote and self.voted_for is None:
            self._enter_epoch(self.epoch, message.sender)
        if granted and not message.pre_vote:
            self._set_election_timer()
        epoch = message.epoch if granted else self.epoch
        self._send(VoteResponse(epoch, self.key, message.sender, message.pre_vote, granted, self.leader_id))

    def _would_vote_for(self, message: VoteRequest) -> bool:
        if message.epoch < self.epoch or not self.log.end:
            # A voter had history before it was made one. With none, this disk is not what it was.
            return False
        if message.pre_vote:
            if self._hears_leader() or (message.epoch == self.epoch and self.voted_for not in (None, message.sender)):
                return False
        elif self.voted_for not in (None, message.sender) or self.role not in (FOLLOWER, PROSPECTIVE):
            return False
        elif self.leader is not None and self.voted_for is None:
            return False  # this epoch has its leader
        return self.log.is_covered_by(message.last_epoch, message.end_offset)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if self.key in self.voters and self.role == FOLLOWER and message.sender == self.leader:
            self._stand(CANDIDATE, transferred=True)

    # -- replicas without a leader ---------------------------------------------------------------------------------

    def _look_for_leader(self) -> None:
        known = {voter.id for voter in self.voters} | self.peers
        for node_id in sorted(known - {self.key.id}):
            self._ask_leader(node_id)

    def _on_observe_request(self, message: ObserveRequest) -> None:
        if self.leader is not None:
            self._send(LeaderHint(self.epoch, self.key, message.sender, self.leader))

    def _on_leader_hint(self, message: LeaderHint) -> None:
        if self.leader is None and message.epoch >= self.epoch and message.leader.id != message.sender.id:
            self._ask_leader(message.leader.id)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _settle_epoch(self, message: AnyMessage) -> bool:
        """Whether the message still has to be handled, in its epoch."""
        if isinstance(message, ObserveRequest | LeaderHint):
            return True
        if message.epoch > self.epoch:
            if isinstance(message, VoteRequest):
                if not message.pre_vote:
                    if self._hears_leader() and not message.transferred:
                        return False
                    self._become_follower(message.epoch, None)
            elif not (isinstance(message, VoteResponse) and message.pre_vote and message.granted):
                self._become_follower(message.epoch, None)
        elif message.epoch < self.epoch:
            if isinstance(message, AppendRequest | SnapshotRequest):
                self._refuse_old_leader(message)
                return False
            return isinstance(message, VoteRequest)
        return True

    def _refuse_old_leader(self, message: AppendRequest | SnapshotRequest) -> None:
        """Our epoch in any answer makes it step down."""
        self._send(VoteResponse(self.epoch, self.key, message.sender, False, False, self.leader_id))
