"""Voters change one at a time; everybody else observes."""

import pytest
from raft_cluster import Cluster, MemoryStore, key_of, voters_of

from tidelog.consensus.errors import ChangeInProgress, DuplicateVoter, LastVoter, NotCaughtUp, NotLeader, VoterNotFound
from tidelog.consensus.formation import (
    FORM,
    JOIN,
    WAIT,
    DiskReport,
    TwoHistories,
    decide,
    newcomers,
    next_voter,
    report,
)
from tidelog.consensus.messages import AppendResponse
from tidelog.consensus.replica import FOLLOWER, LEADER
from tidelog.consensus.voters import ReplicaKey, Voter, VoterSet


def voter(node_id: int, disk: int = 0) -> Voter:
    return Voter(*key_of(node_id, disk))


def change(cluster: Cluster) -> None:
    cluster.turn(cluster.members[cluster.leader().key.id])
    cluster.settle()


def test_an_observer_follows_and_never_stands() -> None:
    cluster = Cluster(1, 2, 3, others=[4])
    cluster.elect(1)
    cluster.elapse(3000)
    cluster.propose(1, b"a")
    assert cluster.members[4].machine.values == [b"a"]
    cluster.isolate(4)
    cluster.elapse(10_000)
    assert cluster[4].role == FOLLOWER
    assert cluster[4].epoch == cluster[1].epoch


def test_observers_do_not_count() -> None:
    cluster = Cluster(1, 2, 3, others=[4, 5])
    leader = cluster.elect(1)
    cluster.elapse(3000)
    cluster.isolate(2, 3)
    before = leader.commit
    leader.propose(b"a")
    cluster.turn(cluster.members[1])
    cluster.settle()
    assert cluster[4].log.end == leader.log.end
    assert leader.commit == before


def test_a_silent_observer_is_forgotten_and_found_again() -> None:
    cluster = Cluster(1, others=[2])
    leader = cluster.elect(1)
    cluster.elapse(3000)
    assert [state.key for state in leader.status().observers] == [key_of(2)]
    cluster.isolate(2)
    cluster.elapse(15_000, step=100)
    assert leader.status().observers == ()
    cluster.heal()
    cluster.elapse(3000)
    assert [state.key for state in leader.status().observers] == [key_of(2)]


def test_a_quorum_of_one_grows_to_three_and_survives_its_first_voter() -> None:
    cluster = Cluster(1, others=[2, 3])
    leader = cluster.elect(1)
    cluster.propose(1, b"a")
    cluster.elapse(3000)
    for node_id in (2, 3):
        leader.add_voter(voter(node_id))
        change(cluster)
    assert leader.voters == voters_of(1, 2, 3)
    cluster.isolate(1)
    cluster.elapse(4000)
    new = cluster.leader()
    cluster.propose(new.key.id, b"b")
    assert cluster.members[new.key.id].machine.values == [b"a", b"b"]


def test_changes_wait_for_each_other_and_for_a_commit_of_the_leader() -> None:
    cluster = Cluster(1, 2, 3, others=[4])
    leader = cluster.elect(1)
    cluster.elapse(3000)
    cluster.filter = lambda message: not isinstance(message, AppendResponse) or message.sender.id == 4
    leader.add_voter(voter(4))
    with pytest.raises(ChangeInProgress):
        leader.remove_voter(key_of(2))
    cluster.heal()
    change(cluster)
    cluster.elapse(300)
    leader.remove_voter(key_of(2))
    change(cluster)
    assert leader.voters == voters_of(1, 3, 4)

    fresh = Cluster(1, 2, 3)
    fresh.filter = lambda message: not isinstance(message, AppendResponse)
    fresh.elect(1)
    with pytest.raises(ChangeInProgress):
        fresh[1].remove_voter(key_of(2))


def test_what_cannot_be_changed() -> None:
    cluster = Cluster(1, others=[2])
    leader = cluster.elect(1)
    with pytest.raises(LastVoter):
        leader.remove_voter(key_of(1))
    with pytest.raises(VoterNotFound):
        leader.remove_voter(key_of(7))
    with pytest.raises(DuplicateVoter):
        leader.add_voter(voter(1, disk=3))
    with pytest.raises(NotCaughtUp):
        leader.add_voter(voter(7))
    with pytest.raises(VoterNotFound):
        leader.transfer(key_of(7), 0)
    with pytest.raises(NotLeader):
        cluster[2].add_voter(voter(2))


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.elapse(300)
    leader.remove_voter(key_of(1))
    assert leader.role == LEADER
    change(cluster)
    assert leader.role != LEADER
    assert cluster.leader().key.id in (2, 3)  # told to stand at once
    cluster.elapse(3000)
    assert cluster.leader().voters == voters_of(2, 3)
    assert cluster[1].role == FOLLOWER
    assert cluster[1].leader_id in (2, 3)  # observes


def test_a_change_that_is_cut_off_is_undone() -> None:
    cluster = Cluster(1, 2, 3, others=[4])
    leader = cluster.elect(1)
    cluster.elapse(3000)
    cluster.isolate(1)
    leader.add_voter(voter(4))
    change_only_here = cluster.members[1]
    cluster.turn(change_only_here)
    assert leader.voters == voters_of(1, 2, 3, 4)
    cluster.elapse(4000)
    cluster.heal()
    cluster.elapse(1000)
    assert cluster[1].voters == voters_of(1, 2, 3)


def test_a_removed_voter_learns_of_it_and_observes() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.elapse(300)
    cluster.isolate(3)
    leader.remove_voter(key_of(3))
    change(cluster)
    cluster.elapse(15_000, step=100)
    cluster.heal()
    cluster.elapse(5000)
    assert cluster[3].voters == voters_of(1, 2)
    assert cluster.leader() is leader


def test_a_node_with_a_new_disk_is_replaced() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.propose(1, b"a")
    cluster.boot(MemoryStore(key_of(3, disk=1)))
    listed = {1: voter(1), 2: voter(2), 3: voter(3, disk=1)}
    for _ in range(200):
        cluster.elapse(40)
        gone, fresh = next_voter(leader, listed)
        try:
            if gone is not None:
                leader.remove_voter(gone)
            elif fresh is not None:
                leader.add_voter(fresh)
        except (ChangeInProgress, NotCaughtUp):
            continue
        change(cluster)
    assert leader.voters == VoterSet(listed.values())
    assert cluster.members[3].machine.values == [b"a"]


def test_a_disk_that_is_gone_takes_no_vote_from_the_one_in_its_place() -> None:
    """The leader remembers it for a while, as one that follows without a vote."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.elapse(300)
    cluster.boot(MemoryStore(key_of(3, disk=1)))
    changes = []
    while cluster.now < 20_000:
        cluster.elapse(10)
        remembered = [state.key for state in leader.status().observers]
        listed = {key.id: voter(key.id, disk=int(key == key_of(3, disk=1))) for key in newcomers(leader)}
        gone, fresh = next_voter(leader, listed)
        try:
            if gone is not None:
                leader.remove_voter(gone)
            elif fresh is not None:
                leader.add_voter(fresh)
            else:
                continue
        except (ChangeInProgress, NotCaughtUp):
            continue
        changes.append((gone, fresh and fresh.key, key_of(3) in remembered))
        change(cluster)
    assert changes == [(key_of(3), None, False), (None, key_of(3, disk=1), True)]
    assert key_of(3) not in [state.key for state in leader.status().observers], "forgotten by now"


def test_the_quorum_is_described_as_it_is() -> None:
    cluster = Cluster(1, 2, 3, others=[4])
    leader = cluster.elect(1)
    cluster.elapse(3000)
    cluster.isolate(3)
    cut_at = cluster.now
    cluster.propose(1, b"a")
    cluster.elapse(600)
    status = leader.status()
    assert (status.leader_id, status.epoch, status.high_watermark) == (1, leader.epoch, leader.commit)
    states = {state.key.id: state for state in (*status.voters, *status.observers)}
    assert [state.key.id for state in status.observers] == [4]
    assert {node_id: state.log_end_offset for node_id, state in states.items()} == {
        1: leader.log.end,
        2: leader.log.end,
        3: leader.log.end - 1,
        4: leader.log.end,
    }
    assert states[3].last_fetch_ms <= cut_at
    assert states[3].last_caught_up_ms <= cut_at
    assert states[2].last_caught_up_ms > cut_at
    assert {state.log_end_offset for state in cluster[2].status().voters if state.key.id != 2} == {-1}


def disk(node_id: int, *, has_quorum: bool = False, end_offset: int = 0) -> DiskReport:
    return DiskReport(ReplicaKey(node_id, "x"), has_quorum, end_offset)


def test_who_forms_a_quorum() -> None:
    listed = [1, 2, 3]
    empty = {1: disk(1), 2: disk(2), 3: disk(3)}
    others = {node_id: {k: v for k, v in empty.items() if k != node_id} for node_id in listed}
    assert [decide(empty[node_id], listed, others[node_id]) for node_id in listed] == [FORM, JOIN, JOIN]
    assert decide(disk(1), listed, {2: disk(2)}) == WAIT
    assert decide(disk(1), [1], {}) == FORM
    # A node that lost its disk: the others have a quorum, or have not said yet.
    assert decide(disk(1), listed, {2: disk(2, has_quorum=True, end_offset=9)}) == JOIN
    assert decide(disk(1), listed, {}) == WAIT
    # A single node's history is the quorum's, wherever it is.
    old = disk(2, end_offset=5)
    assert decide(old, listed, {1: disk(1), 3: disk(3)}) == FORM
    assert decide(disk(1), listed, {2: old, 3: disk(3)}) == JOIN
    with pytest.raises(TwoHistories):
        decide(old, listed, {1: disk(1, end_offset=3), 3: disk(3)})
    assert report(Cluster(1)[1]) == DiskReport(key_of(1), True, 1)


def test_a_retired_voter_goes_when_the_others_can_do_without_it() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    assert next_voter(leader, {}, [3]) == (key_of(3), None)
    assert next_voter(leader, {}, [1]) == (key_of(1), None), "itself too"
    cluster.isolate(2)
    cluster.elapse(3000)
    assert leader.role == LEADER
    assert next_voter(leader, {}, [3]) == (None, None), "the two that were left would be no majority"
    assert next_voter(leader, {}, [2, 3]) == (key_of(2), None), "the dead one first"
    leader.remove_voter(key_of(2))
    change(cluster)
    assert next_voter(leader, {}, [2, 3]) == (key_of(3), None)
    leader.remove_voter(key_of(3))
    change(cluster)
    assert next_voter(leader, {}, [1]) == (None, None), "the last one stays"
