"""Who leads, and who may not."""

from raft_cluster import Cluster, MemorySync, key_of, voters_of

from tidelog.consensus.entries import HardState
from tidelog.consensus.messages import AppendRequest, TimeoutNow, VoteRequest, VoteResponse
from tidelog.consensus.replica import CANDIDATE, FOLLOWER, LEADER, PROSPECTIVE
from tidelog.consensus.settings import Settings


def test_a_quorum_of_one_leads_as_soon_as_its_vote_is_on_disk() -> None:
    cluster = Cluster(1)
    raft = cluster[1]
    raft.tick(0)
    assert raft.role == CANDIDATE
    cluster.turn(cluster.members[1])
    assert raft.role == LEADER
    assert raft.epoch == 1
    assert cluster.members[1].store.hard_state == HardState(1, key_of(1))


def test_three_voters_elect_one_leader_and_keep_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elapse(5000)
    leader = cluster.leader()
    epoch = leader.epoch
    cluster.elapse(20_000)
    assert cluster.leader() is leader
    assert {member.raft.epoch for member in cluster.members.values()} == {epoch}
    assert {member.raft.leader_id for member in cluster.members.values()} == {leader.key.id}


def test_nothing_is_asked_or_granted_before_the_vote_is_durable() -> None:
    cluster = Cluster(1, 2, 3)
    one, two = cluster.members[1], cluster.members[2]
    one.raft._stand(CANDIDATE)
    cluster.turn(one, syncs=False)
    assert cluster.inbox == []  # the request waits for our own vote
    one.driver.synced(MemorySync(1), cluster.now)
    cluster.turn(one)
    (request,) = [message for message in cluster.inbox if message.to.id == 2]
    assert isinstance(request, VoteRequest)
    cluster.inbox.clear()
    two.raft.receive(request, cluster.now)
    cluster.turn(two, syncs=False)
    assert cluster.inbox == []
    two.driver.synced(MemorySync(1), cluster.now)
    cluster.turn(two)
    (response,) = cluster.inbox
    assert isinstance(response, VoteResponse)
    assert response.granted


def test_a_vote_is_given_once_per_epoch_also_after_a_restart() -> None:
    cluster = Cluster(1, 2, 3)
    three = cluster[3]
    three.receive(VoteRequest(5, key_of(1), key_of(3), 1, 0, False), 0)
    cluster.turn(cluster.members[3])
    member = cluster.boot(cluster.members[3].store)
    assert member.raft.epoch == 5
    assert member.raft.voted_for == key_of(1)
    cluster.inbox.clear()
    member.raft.receive(VoteRequest(5, key_of(2), key_of(3), 1, 0, False), 0)
    member.raft.receive(VoteRequest(5, key_of(1), key_of(3), 1, 0, False), 0)
    cluster.turn(member)
    assert [(m.to.id, m.granted) for m in cluster.inbox if isinstance(m, VoteResponse)] == [(2, False), (1, True)]


def test_a_shorter_or_older_log_gets_no_vote() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.propose(1, b"a")
    voter = cluster.boot(cluster.members[3].store)  # no leader heard of since
    end, last = voter.raft.log.end, voter.raft.log.last_epoch
    asked = [(end - 1, last), (end + 9, last - 1), (end, last)]
    cluster.inbox.clear()
    for epoch, (end_offset, last_epoch) in enumerate(asked, start=7):
        voter.raft.receive(VoteRequest(epoch, key_of(2), key_of(3), end_offset, last_epoch, False), 0)
    cluster.turn(voter)
    assert [message.granted for message in cluster.inbox if isinstance(message, VoteResponse)] == [False, False, True]


def test_one_that_was_cut_off_comes_back_without_unseating_the_leader() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    cluster.elapse(20_000)
    assert cluster[3].role == PROSPECTIVE
    assert cluster[3].epoch == leader.epoch  # it asked often, and began nothing
    cluster.heal()
    cluster.elapse(3000)
    assert cluster.leader() is leader
    assert cluster[3].leader_id == 1


def test_a_leader_that_hears_from_no_majority_steps_down() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.isolate(1)
    cluster.elapse(4000)
    assert cluster[1].role != LEADER
    assert cluster.leader().key.id in (2, 3)


def test_a_leader_that_slept_listens_before_it_steps_down() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.now += 3000  # nobody ticked: the whole machine stood still
    leader.tick(cluster.now)
    assert leader.role == LEADER
    cluster.turn(cluster.members[1])
    cluster.settle()
    cluster.elapse(2000)
    assert cluster.leader() is leader


def test_one_way_silence_ends_in_one_leader() -> None:
    for deaf in (True, False):
        cluster = Cluster(1, 2, 3)
        cluster.elect(1)
        if deaf:
            cluster.filter = lambda message: message.to.id != 1
        else:
            cluster.filter = lambda message: message.sender.id != 1
        cluster.elapse(5000)
        assert cluster.leader().key.id in (2, 3)
        assert cluster[1].role != LEADER or not deaf  # one that nobody answers steps down by itself
        cluster.heal()
        cluster.elapse(2000)
        assert sum(cluster[node_id].role == LEADER for node_id in (1, 2, 3)) == 1


def test_an_old_leader_that_wakes_up_learns_and_follows() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.isolate(1)
    cluster.elapse(4000)
    new = cluster.leader()
    cluster.heal()
    cluster.elapse(1000)
    assert cluster[1].role == FOLLOWER
    assert cluster[1].leader_id == new.key.id


def test_leadership_is_handed_over_without_waiting_for_a_timeout() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.propose(1, b"a")
    leader.transfer(key_of(2), cluster.now)
    cluster.turn(cluster.members[1])
    cluster.settle()
    assert cluster[2].role == LEADER
    assert cluster[1].role == FOLLOWER
    assert cluster.now == 0
    assert any(isinstance(message, TimeoutNow) for message in cluster.sent)


def test_a_handover_that_does_not_happen_is_given_up() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.filter = lambda message: not isinstance(message, TimeoutNow)
    leader.transfer(key_of(2), cluster.now)
    cluster.elapse(Settings().election_timeout_ms + 40)
    assert leader.role == LEADER
    cluster.heal()
    cluster.propose(1, b"after")
    cluster.elapse(300)
    assert cluster.members[2].machine.values[-1] == b"after"


def test_a_successor_is_alive_and_has_the_most() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.isolate(2)
    cluster.propose(1, b"a")
    cluster.elapse(1500)
    assert leader.best_successor() == key_of(3)


def test_what_is_for_another_disk_is_ignored() -> None:
    cluster = Cluster(1, 2, 3)
    raft = cluster[3]
    raft.receive(VoteRequest(5, key_of(1), key_of(3, disk=1), 9, 3, False), 0)
    raft.receive(AppendRequest(5, key_of(1), key_of(3, disk=1), 1, 0, 1, 1), 0)
    cluster.turn(cluster.members[3])
    assert raft.epoch == 0
    assert cluster.inbox == []


def test_a_node_with_an_empty_disk_votes_for_nobody() -> None:
    cluster = Cluster(1, 2, others=[3])
    cluster.members[3].raft.receive(VoteRequest(5, key_of(1), key_of(3), 9, 3, False), 0)
    cluster.turn(cluster.members[3])
    (response,) = cluster.inbox
    assert isinstance(response, VoteResponse)
    assert not response.granted


def test_one_that_has_the_history_votes_even_if_it_does_not_know_yet_that_it_is_a_voter() -> None:
    cluster = Cluster(1, others=[2])
    cluster.elect(1)
    cluster.elapse(3000)
    two = cluster[2]
    assert two.key not in two.voters
    voter = cluster.boot(cluster.members[2].store)
    cluster.inbox.clear()
    request = VoteRequest(9, key_of(1), key_of(2), voter.raft.log.end + 1, voter.raft.log.last_epoch, False)
    voter.raft.receive(request, cluster.now)
    cluster.turn(voter)
    assert [message.granted for message in cluster.inbox if isinstance(message, VoteResponse)] == [True]
    assert voters_of(1) == voter.raft.voters
