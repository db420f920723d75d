"""Entries: sent, repaired, committed, read, and replaced by snapshots."""

import pytest
from raft_cluster import Cluster, MemoryStore, key_of

from tidelog.consensus.entries import DATA, Entry, SnapshotId
from tidelog.consensus.errors import HandingOver, NotLeader, Overloaded
from tidelog.consensus.messages import AppendRequest, AppendResponse, SnapshotRequest
from tidelog.consensus.progress import REPLICATE
from tidelog.consensus.replica import LEADER
from tidelog.consensus.settings import Settings
from tidelog.consensus.voters import Voter


def test_what_is_proposed_is_applied_everywhere_in_order() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    for number in range(20):
        cluster.propose(1, b"%d" % number, count=1 + number % 3)
    cluster.elapse(500)
    expected = [b"%d" % number for number in range(20)]
    assert [member.machine.values for member in cluster.members.values()] == [expected] * 3
    assert len({member.raft.log.end for member in cluster.members.values()}) == 1


def test_only_a_leader_takes_proposals_and_says_who_is() -> None:
    cluster = Cluster(1, 2, 3)
    with pytest.raises(NotLeader) as refused:
        cluster[2].propose(b"a")
    assert refused.value.leader_id == -1
    leader = cluster.elect(1)
    with pytest.raises(NotLeader) as refused:
        cluster[2].propose(b"a")
    assert refused.value.leader_id == 1
    leader.transfer(key_of(2), cluster.now)
    with pytest.raises(HandingOver):
        leader.propose(b"a")


def test_a_proposal_is_committed_once_a_majority_has_it_on_disk_and_not_before() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    before = leader.commit
    leader.propose(b"a")
    cluster.turn(cluster.members[1])  # synced here
    assert leader.commit == before
    two = cluster.members[2]
    for message in [message for message in cluster.inbox if message.to.id == 2]:
        two.raft.receive(message, cluster.now)
    cluster.inbox.clear()
    cluster.turn(two, syncs=False)
    assert not [m for m in cluster.inbox if isinstance(m, AppendResponse) and m.match > before]
    sync = two.store.begin_sync()
    assert sync is not None
    two.driver.synced(sync, cluster.now)
    cluster.turn(two)
    cluster.settle()
    assert leader.commit == before + 1


def test_a_leader_with_a_slow_disk_commits_by_the_others() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    leader.propose(b"a")
    cluster.turn(cluster.members[1], syncs=False)
    cluster.settle()
    assert leader.log.durable_end < leader.log.end == leader.commit


def test_entries_of_an_earlier_epoch_are_not_committed_by_counting() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.filter = lambda message: not isinstance(message, AppendRequest | AppendResponse)
    cluster.propose(1, b"old")
    cluster.heal()
    two = cluster.boot(cluster.members[2].store)
    cluster.boot(cluster.members[3].store)
    one = cluster.boot(cluster.members[1].store)
    one.raft._on_election_timeout()
    cluster.turn(one)
    cluster.filter = lambda message: not isinstance(message, AppendResponse) or message.match < one.raft.log.end
    cluster.settle()
    old = one.raft._epoch_start
    assert one.raft.role == LEADER
    assert one.raft._may_commit(old) is False
    assert one.raft.commit < old
    cluster.heal()
    cluster.elapse(500)
    assert one.raft.commit == one.raft.log.end
    assert two.machine.values == [b"old"]


def test_what_an_isolated_leader_wrote_is_replaced_in_few_messages() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.isolate(1)
    for number in range(200):
        cluster.propose(1, b"lost %d" % number)
    cluster.elapse(3000)
    new = cluster.leader().key.id
    for number in range(50):
        cluster.propose(new, b"kept %d" % number)
    cluster.heal()
    cluster.sent.clear()
    cluster.elapse(500)
    assert cluster.members[1].machine.values == [b"kept %d" % number for number in range(50)]
    rejections = [message for message in cluster.sent if isinstance(message, AppendResponse) and message.rejected >= 0]
    assert len(rejections) <= 4


def test_messages_are_bounded_and_so_is_what_flies() -> None:
    settings = Settings(append_bytes_max=500, appends_in_flight_max=3, bytes_in_flight_max=10_000)
    cluster = Cluster(1, 2, 3, settings=settings)
    leader = cluster.elect(1)
    cluster.filter = lambda message: message.to.id != 2
    for _ in range(100):
        cluster.propose(1, b"x" * 100)
    progress = leader._progress[key_of(2)]
    assert progress.state == REPLICATE
    assert len(progress.flying) == 3
    appends = [message for message in cluster.sent if isinstance(message, AppendRequest) and message.entries]
    assert max(len(message.entries) for message in appends) <= 3
    cluster.heal()
    cluster.elapse(2000)
    assert len(cluster.members[2].machine.values) == 100


def test_too_much_that_is_not_committed_is_refused() -> None:
    cluster = Cluster(1, 2, 3, settings=Settings(proposals_bytes_max=1000))
    leader = cluster.elect(1)
    cluster.isolate(1)
    for _ in range(11):
        leader.propose(b"x" * 100)
    end = leader.log.end
    with pytest.raises(Overloaded):
        leader.propose(b"x")
    assert leader.log.end == end


def test_a_read_waits_for_a_majority_and_for_what_was_committed() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.propose(1, b"a")
    member = cluster.members[1]
    leader.read("first")
    cluster.turn(member)
    assert member.reads == []
    cluster.settle()
    assert [grant.context for grant in member.reads] == ["first"]
    assert member.reads[0].offset == leader.commit
    with pytest.raises(NotLeader):
        cluster[2].read("x")


def test_a_leader_that_was_replaced_answers_no_read() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    cluster.isolate(1)
    leader.read("lost")
    cluster.turn(cluster.members[1])
    cluster.elapse(4000)
    assert cluster.members[1].reads == []
    assert cluster.members[1].refused == ["lost"]


def test_reads_of_a_new_leader_see_what_the_old_one_committed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.elect(1)
    cluster.propose(1, b"a")
    two = cluster.members[2]
    two.raft._stand("candidate", transferred=True)
    cluster.turn(two)
    cluster.filter = lambda message: not (isinstance(message, AppendResponse))
    cluster.settle()
    two.raft.read("r")
    cluster.turn(two)
    cluster.settle()
    assert two.reads == []
    cluster.heal()
    cluster.elapse(500)
    assert [grant.context for grant in two.reads] == ["r"]
    assert two.machine.values == [b"a"]


def test_one_that_is_far_behind_gets_a_snapshot_in_pieces() -> None:
    cluster = Cluster(1, 2, 3, settings=Settings(snapshot_piece_bytes=64), snapshot_bytes=2000)
    cluster.elect(1)
    cluster.isolate(3)
    for number in range(100):
        cluster.propose(1, b"value %d" % number)
    assert cluster[1].log.start > cluster[3].log.end
    cluster.heal()
    cluster.elapse(3000)
    assert cluster.members[3].machine.values == cluster.members[1].machine.values
    pieces = [message for message in cluster.sent if isinstance(message, SnapshotRequest)]
    assert max(len(piece.data) for piece in pieces) == 64
    assert cluster[3].voters == cluster[1].voters
    cluster.propose(1, b"after")
    cluster.elapse(300)
    assert cluster.members[3].machine.values[-1] == b"after"


def test_one_whose_log_parts_before_ours_begins_gets_a_snapshot() -> None:
    cluster = Cluster(1, 2, 3, snapshot_bytes=1500)
    cluster.elect(1)
    cluster.isolate(1)
    for number in range(60):
        cluster.propose(1, b"lost %d" % number)
    cluster.elapse(3000)
    new = cluster.leader().key.id
    for number in range(20):
        cluster.propose(new, b"kept %d" % number)
    log = cluster[new].log
    assert cluster[1].log.start < log.start < log.end < cluster[1].log.end
    cluster.heal()
    cluster.sent.clear()
    cluster.elapse(1500)
    assert cluster.members[1].machine.values == [b"kept %d" % number for number in range(20)]
    assert len(cluster.sent) < 200  # and nobody went round in circles


def test_a_snapshot_that_comes_late_takes_nothing_away() -> None:
    cluster = Cluster(1, 2, 3)
    two = cluster.members[2]
    entries = tuple(Entry(offset, 4, DATA, 1, b"%d" % offset) for offset in range(1, 6))
    two.raft.receive(AppendRequest(4, key_of(1), key_of(2), 1, 0, 0, 1, entries), 0)
    cluster.turn(two)
    acknowledged = [message for message in cluster.inbox if isinstance(message, AppendResponse)]
    assert acknowledged[-1].match == 6
    for snapshot in (SnapshotId(3, 4), SnapshotId(1, 0)):  # one that it does not know to be committed, one that it does
        late = SnapshotRequest(4, key_of(1), key_of(2), snapshot, b"", 0, 5, 1, b"state")
        two.raft.receive(late, 0)
        cluster.turn(two)
        assert two.raft.log.end == 6
    assert two.raft.commit == 3
    assert two.machine.values == [b"1", b"2"]


def test_a_log_from_before_there_was_a_quorum_is_its_beginning() -> None:
    store = MemoryStore(key_of(1))
    store.entries = [Entry(0, 0, DATA, 2, b"topics"), Entry(2, 0, DATA, 1, b"settings")]
    cluster = Cluster(others=[2])
    member = cluster.boot(store)
    assert member.machine.values == []
    member.raft.form(Voter(*key_of(1)), cluster.now)
    member.raft.tick(cluster.now)
    cluster.turn(member)
    assert member.raft.role == LEADER
    assert member.machine.values == [b"topics", b"settings"]
    cluster.elapse(3000)
    assert cluster.members[2].machine.values == [b"topics", b"settings"]


def test_a_follower_whose_disk_went_back_is_noticed_and_gets_it_again() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.elect(1)
    for number in range(5):
        cluster.propose(1, b"%d" % number)
    store = cluster.members[2].store
    store.entries = store.entries[:3]
    cluster.boot(store)
    cluster.elapse(1000)
    assert leader._progress[key_of(2)].went_back == 1
    assert cluster.members[2].machine.values == [b"%d" % number for number in range(5)]
