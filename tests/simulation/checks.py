"""What must hold after every step. A check looks only at what the step changed, so that it can be made every time."""

from tests.simulation.process import Process
from tests.simulation.state import EMPTY, FoldMachine, State, fold

from tidelog.consensus.control import decode_voters
from tidelog.consensus.entries import VOTERS, Entry
from tidelog.consensus.messages import AnyMessage, AppendResponse, VoteRequest, VoteResponse
from tidelog.consensus.replica import LEADER
from tidelog.consensus.voters import ReplicaKey, VoterSet


class Violation(AssertionError):
    """Something that must never happen."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


class Checks:
    def __init__(self, processes: dict[int, Process]) -> None:
        self.processes = processes
        self.leaders: dict[int, ReplicaKey] = {}
        self.written: dict[tuple[int, int], tuple[Entry, int | None]] = {}
        """(offset, epoch) to what any log ever had there, and the epoch before it."""
        self.history: list[Entry] = []
        """All that is committed."""
        self.history_end = 0
        self.states: dict[int, State] = {0: EMPTY}
        self.voters = VoterSet()
        self.acked_end = 0
        self.reads = 0

    # -- appended --------------------------------------------------------------------------------------------------

    def appended(self, process: Process, entries: tuple[Entry, ...]) -> None:
        raft = process.raft
        for entry in entries:
            before = raft.log.epoch_before(entry.offset)
            known = self.written.setdefault((entry.offset, entry.epoch), (entry, before))
            if known[0] != entry or (known[1] != before and None not in (known[1], before)):
                raise Violation(f"log matching: {process.id} has another {entry.offset} of epoch {entry.epoch}")
            if entry.kind == VOTERS and raft.role == LEADER and entry.epoch == raft.epoch:
                self._one_change(process, entry)

    def _one_change(self, process: Process, entry: Entry) -> None:
        raft = process.raft
        before = [(end, voters) for end, voters in raft._voter_history if end < entry.end]
        end, voters = before[-1] if before else (0, VoterSet())
        changed = voters.keys ^ decode_voters(entry.data).keys
        require(len(changed) <= 1, f"membership: {process.id} changes {sorted(changed)} at once")
        require(end <= raft.commit, f"membership: {process.id} changes voters while the change before is not committed")
        own = any(each.epoch == raft.epoch for each in self.history[-200:])
        require(own, f"membership: {process.id} changes voters before it committed anything in its epoch")

    # -- after a step ----------------------------------------------------------------------------------------------

    def after(self, process: Process) -> None:
        raft = process.raft
        machine = process.machine
        if machine.loaded or machine.applied:
            self._state_moved(process, machine)
        if raft.commit < process.commit:
            raise Violation(f"commit of {process.id} went from {process.commit} to {raft.commit}")
        epoch, match = process.acknowledged
        if epoch == raft.epoch and raft.log.end < match:
            raise Violation(f"promise: {process.id} ends at {raft.log.end}, and has acknowledged {match} in this epoch")
        if raft._voter_history[-1][0] > raft.log.end:
            raise Violation(f"membership: {process.id} goes by voters that are not in its log any more")
        if raft.role == LEADER:
            self._leader(process)
        process.commit = raft.commit

    def _state_moved(self, process: Process, machine: FoldMachine) -> None:
        for state in machine.loaded:
            require(
                self.states.get(state.end_offset) == state,
                f"state machine: {process.id} loaded a snapshot of {state.end_offset} that is not that state",
            )
        machine.loaded.clear()
        for entry in machine.applied:
            self._applied(process, entry)
        machine.applied.clear()
        end = machine.state.end_offset
        require(end == process.raft.applied, f"state machine: {process.id} is at {end}, not {process.raft.applied}")
        same = self.states.get(end) == machine.state
        require(same, f"state machine: {process.id} differs from the others after {end}")

    def _applied(self, process: Process, entry: Entry) -> None:
        if entry.offset == self.history_end:
            self._committed(entry)
            return
        known = self.states.get(entry.end)
        require(
            entry.offset < self.history_end and known is not None,
            f"state machine: {process.id} applied {entry.offset}, but {self.history_end} is next",
        )

    def _committed(self, entry: Entry) -> None:
        self.states[entry.end] = fold(self.states[entry.offset], entry)
        self.history.append(entry)
        self.history_end = entry.end
        if entry.kind == VOTERS:
            voters = decode_voters(entry.data)
            changed = self.voters.keys ^ voters.keys
            require(not len(self.voters) or len(changed) <= 1, f"membership: {sorted(changed)} changed at once")
            self.voters = voters

    def _leader(self, process: Process) -> None:
        raft = process.raft
        known = self.leaders.get(raft.epoch)
        if known is None:
            self.leaders[raft.epoch] = raft.key
            self._leader_is_complete(process)
        elif known != raft.key:
            raise Violation(f"election safety: {known} and {raft.key} lead epoch {raft.epoch}")
        if raft.commit > process.commit:
            self._commit_is_durable(process)

    def _leader_is_complete(self, process: Process) -> None:
        log = process.raft.log
        if not self.history or max(self.leaders) > process.raft.epoch:
            return  # a candidate that was asleep learns of its election after others were elected, and commits nothing
        last = self.history[-1]
        has = log.end >= last.end and (log.epoch_before(last.end) in (last.epoch, None))
        require(has, f"leader completeness: {process.id} leads without {last.offset}, which is committed")

    def _commit_is_durable(self, process: Process) -> None:
        raft = process.raft
        commit = raft.commit
        epoch = raft.log.epoch_before(commit)
        if epoch not in (raft.epoch, None):
            raise Violation(f"commit rule: {process.id} of epoch {raft.epoch} counted {commit} of epoch {epoch}")
        disks = [each for other in self.processes.values() for each in other.lost]
        disks += [(p.key, p.store.durable_end, p.raft) for p in self.processes.values() if p.driver is not None]
        have = {key for key, end, each in disks if end >= commit and each.log.epoch_before(commit) in (epoch, None)}
        require(
            raft.voters.is_quorum(have),
            f"durability: {process.id} committed {commit}, but only {sorted(have)} have it on disk",
        )

    def sent(self, process: Process, message: AnyMessage) -> None:
        """Nothing is said in an epoch, and no vote given, that a crash could make unsaid."""
        if isinstance(message, VoteRequest | VoteResponse) and message.pre_vote:
            return
        durable = process.store.durable_state
        if message.epoch > durable.epoch:
            raise Violation(f"promise: {process.id} speaks in epoch {message.epoch}, on its disk is {durable.epoch}")
        if isinstance(message, AppendResponse) and message.rejected < 0:
            process.acknowledged = max(process.acknowledged, (message.epoch, message.match))
        votes = isinstance(message, VoteResponse) and message.granted and message.epoch == durable.epoch
        if votes and durable.voted_for != message.to:
            raise Violation(f"promise: {process.id} votes for {message.to}, on its disk is {durable.voted_for}")

    # -- clients ---------------------------------------------------------------------------------------------------

    def acknowledged(self, entry: Entry) -> None:
        require(self.history_end >= entry.end, f"{entry.offset} was acknowledged but not applied")
        self.acked_end = max(self.acked_end, entry.end)

    def read(self, process: Process, floor: int) -> None:
        self.reads += 1
        seen = process.machine.state.end_offset
        require(seen >= floor, f"stale read: {process.id} answered from {seen}, but {floor} was acknowledged before")
