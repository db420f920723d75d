"""How a quorum begins: who of the nodes that were started together may form it, alone, for the others to join.

A list of voters in a command line says who should be there, not who has been. So nobody forms a quorum before every
listed node has said what is on its disk: then a node that lost its disk finds that the others have one, and joins
it. The first forms a quorum of one; the others observe it, catch up and are added one by one, as any voter is.

A disk with history from before there was a quorum forms it wherever it is in the list; two such disks are two clusters.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.consensus.raft import Raft, ReplicaState
from tidelog.consensus.replica import LEADER
from tidelog.consensus.voters import ReplicaKey, Voter
from tidelog.errors import ErrorCode, KafkaError

WAIT: Final = "wait"
"""Ask again whoever has not answered."""
FORM: Final = "form"
JOIN: Final = "join"


class DiskReport(NamedTuple):
    """What a node answers when it is asked what it has."""

    key: ReplicaKey
    has_quorum: bool
    """Its log names voters."""
    end_offset: int


class TwoHistories(KafkaError):
    """Joining them would lose one."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


def report(raft: Raft) -> DiskReport:
    return DiskReport(raft.key, len(raft.voters) > 0, raft.log.end)


def decide(own: DiskReport, listed: Iterable[int], others: Mapping[int, DiskReport]) -> str:
    """What this node does, given what others said since it started. Raises TwoHistories."""
    if own.has_quorum or any(each.has_quorum for each in others.values()):
        return JOIN
    wanted = set(listed) | {own.key.id}
    old = [each.key.id for each in [own, *others.values()] if each.end_offset > 0]
    if len(old) > 1:
        raise TwoHistories(f"nodes {sorted(old)} each have metadata of their own: empty all but one")
    if wanted - {own.key.id} - others.keys():
        return WAIT
    first = old[0] if old else min(wanted)
    return FORM if own.key.id == first else JOIN


def newcomers(raft: Raft) -> list[ReplicaKey]:
    """Who follows this leader without a vote, each from the disk that its node has now. That is the one it was heard
    from last: others are what is remembered of disks that are gone, and no reason to take a vote from the new one."""
    status = raft.status()
    last: dict[int, ReplicaState] = {}
    for state in (*status.voters, *status.observers):
        known = last.get(state.key.id)
        if known is None or state.last_fetch_ms > known.last_fetch_ms:
            last[state.key.id] = state
    return [state.key for state in status.observers if last[state.key.id] is state]


def next_voter(
    raft: Raft, listed: Mapping[int, Voter], retired: Collection[int] = ()
) -> tuple[ReplicaKey | None, Voter | None]:
    """(whom to remove, whom to add) for a leader to come closer to the listed voters; at most one is not None.

    `listed` is keyed by node id, each with the disk that the node has now. A voter whose node came back with another
    disk is removed once the new disk follows. Those that are `retired` go as soon as the others can do without them.
    """
    if raft.role != LEADER:
        return None, None
    for voter in raft.voters:
        if voter.id in retired and raft.bears_loss_of(voter.key):
            return voter.key, None
    following = newcomers(raft)
    for voter in raft.voters:
        present = listed.get(voter.id)
        if present is not None and present.key != voter.key and present.key in following and len(raft.voters) > 1:
            return voter.key, None
    for voter in listed.values():
        if not raft.voters.has_id(voter.id) and raft.is_followed_by(voter.key):
            return None, voter
    return None, None
