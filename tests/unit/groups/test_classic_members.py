"""Members that sync, heartbeat, leave, fall silent, and static members that come back."""

import pytest
from sim import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Sim,
    assignment,
    heartbeat,
    join,
    leave,
    new_member,
    stable_group,
    subscription,
    sync,
)

from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.history import EVENTS_MAX, EventKind
from tidelog.wire.messages.groups import LeaveGroupRequest, MemberIdentity


def group_of(sim: Sim) -> ClassicGroup:
    group = sim.shard.classic(GROUP)
    assert group is not None
    return group


# Sync and heartbeat ---------------------------------------------------------------------------------------------------


def test_sync_is_refused_with_the_reason() -> None:
    sim = Sim()
    (leader, _), generation = stable_group(sim, 2)
    assert sim.ask(sync("ghost", generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(sync(leader, generation - 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sim.ask(sync(leader, generation, protocol_name="sticky")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sim.ask(sync(leader, generation, group_id="none")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(sync(leader, generation, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_sync_of_a_stable_group_repeats_the_assignment() -> None:
    sim = Sim()
    (_, follower), generation = stable_group(sim, 2)
    again = sim.ask(sync(follower, generation))
    assert bytes(again.assignment) == assignment("t", 1)
    assert (again.protocol_type, again.protocol_name) == ("consumer", "range")


def test_whom_the_leader_forgets_gets_nothing() -> None:
    sim = Sim()
    ids, _ = stable_group(sim, 2)
    for member_id in ids:
        sim.submit(join(member_id), 9)
    waiter = sim.submit(sync(ids[1], 2))
    sim.ask(sync(ids[0], 2, {ids[0]: assignment("t", 0), "ghost": assignment("t", 1)}))
    assert bytes(sim.answers[waiter].assignment) == b""


def test_only_the_leader_assigns() -> None:
    sim = Sim()
    (leader, follower), _ = stable_group(sim, 2)
    for member_id in (leader, follower):
        sim.submit(join(member_id), 9)
    waiter = sim.submit(sync(follower, 2, {follower: assignment("t", 0, 1)}))
    assert waiter not in sim.answers
    sim.ask(sync(leader, 2, {leader: assignment("t", 0, 1)}))
    assert bytes(sim.answers[waiter].assignment) == b""


def test_member_that_never_syncs_is_out_although_the_others_work() -> None:
    sim = Sim()
    (leader, lazy), _ = stable_group(sim, 2)
    for member_id in (leader, lazy):
        sim.submit(join(member_id), 9)
    sim.ask(sync(leader, 2, {leader: assignment("t", 0), lazy: assignment("t", 1)}))
    for _ in range(REBALANCE_MS // 5_000):
        assert sim.ask(heartbeat(leader, 2)).error_code == 0
        sim.ask(heartbeat(lazy, 2))
        sim.advance(5_000)
    assert sim.ask(heartbeat(lazy, 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(heartbeat(leader, 2)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_is_refused_with_the_reason() -> None:
    sim = Sim()
    (leader,), generation = stable_group(sim, 1)
    assert sim.ask(heartbeat(leader, generation)).error_code == 0
    assert sim.ask(heartbeat(leader, generation - 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sim.ask(heartbeat("ghost", generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(heartbeat(leader, generation, group_id="none")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_evicted_after_its_session() -> None:
    sim = Sim()
    (leader, silent), generation = stable_group(sim, 2)
    for _ in range(3):
        sim.advance(SESSION_MS // 3)
        assert sim.ask(heartbeat(leader, generation)).error_code == 0
    sim.advance(SESSION_MS // 3)
    assert sim.ask(heartbeat(leader, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert sim.ask(heartbeat(silent, generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(join(leader), 9).generation_id == generation + 1


def test_member_that_waits_for_others_is_not_evicted_for_silence() -> None:
    sim = Sim()
    (leader, busy), generation = stable_group(sim, 2)
    waiter = sim.submit(join(leader), 9)
    for _ in range(5):
        sim.advance(SESSION_MS - 1)
        sim.ask(heartbeat(busy, generation))
    assert waiter not in sim.answers
    sim.submit(join(busy), 9)
    assert sim.answers[waiter].generation_id == generation + 1
    sim.advance(SESSION_MS - 1)
    assert sim.ask(heartbeat(leader, generation + 1)).error_code == 0


# Leave ----------------------------------------------------------------------------------------------------------------


def test_last_member_leaves_an_empty_group_with_a_new_generation() -> None:
    sim = Sim()
    (only,), generation = stable_group(sim, 1)
    assert sim.ask(leave(only)).members[0].error_code == 0
    group = group_of(sim)
    assert (group.state, group.generation, group.protocol, group.leader) == (State.EMPTY, generation + 1, None, None)
    assert sim.reloaded().shard.dump() == sim.shard.dump()
    assert len(sim.runtime._timers) == 0


@pytest.mark.parametrize("version", range(3))
def test_old_clients_leave_alone(version: int) -> None:
    sim = Sim()
    (only,), _ = stable_group(sim, 1)
    ghost = LeaveGroupRequest(group_id=GROUP, member_id="ghost")
    assert sim.ask(ghost, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(LeaveGroupRequest(group_id=GROUP, member_id=only), version).error_code == 0
    assert group_of(sim).state is State.EMPTY


def test_several_leave_at_once_and_each_is_told_how_it_went() -> None:
    sim = Sim()
    ids, generation = stable_group(sim, 4)
    answers = sim.ask(leave(ids[1], "ghost", ids[2], instance_ids=("nobody",))).members
    assert [answer.error_code for answer in answers] == [0, 25, 0, 25]
    assert sim.ask(heartbeat(ids[0], generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(group_of(sim).members) == {ids[0], ids[3]}


def test_pending_member_may_leave() -> None:
    sim = Sim()
    (leader,), generation = stable_group(sim, 1)
    pending = sim.ask(join(), 9).member_id
    assert sim.ask(leave(pending)).members[0].error_code == 0
    assert sim.ask(heartbeat(leader, generation)).error_code == 0
    assert sim.ask(join(pending), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_completes_the_rebalance_that_waited_for_it() -> None:
    sim = Sim()
    (leader, other), _ = stable_group(sim, 2)
    waiter = sim.submit(join(leader), 9)
    sim.ask(leave(other))
    assert sim.answers[waiter].generation_id == 2


def test_member_that_leaves_while_it_waits_is_answered() -> None:
    sim = Sim()
    (leader, _), _ = stable_group(sim, 2)
    waiter = sim.submit(join(leader), 9)
    sim.ask(leave(leader))
    assert sim.answers[waiter].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Static members -------------------------------------------------------------------------------------------------------


def static_pair(sim: Sim, version: int = 9) -> tuple[str, str, str]:
    """Leader a and follower b, both static, stable in generation 1: their ids, and who leads."""
    waiters = {name: sim.submit(join(instance_id=name), version) for name in ("a", "b")}
    sim.advance(0)
    ids = {name: sim.answers[waiter].member_id for name, waiter in waiters.items()}
    leader = sim.answers[waiters["a"]].leader
    shares = {ids["a"]: assignment("t", 0), ids["b"]: assignment("t", 1)}
    for name in ("b", "a"):
        sim.submit(sync(ids[name], 1, shares if ids[name] == leader else None, instance_id=name))
    assert group_of(sim).state is State.STABLE
    return ids["a"], ids["b"], leader


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("version", [5, 9])
def test_static_member_is_back_without_a_rebalance(who: str, version: int) -> None:
    sim = Sim()
    a, b, leader = static_pair(sim)
    old, other, other_name = (a, b, "b") if who == "a" else (b, a, "a")
    back = sim.ask(join(instance_id=who), version)
    assert (back.error_code, back.generation_id) == (0, 1)
    assert back.member_id not in (a, b)
    assert sim.ask(heartbeat(other, 1, instance_id=other_name)).error_code == 0
    was_leader = old == leader
    if version >= 9:
        assert back.skip_assignment == was_leader
        assert back.leader == (back.member_id if was_leader else leader)
    else:
        assert back.leader == leader, "so that it does not assign anew"
    expected = assignment("t", 0 if who == "a" else 1)
    assert bytes(sim.ask(sync(back.member_id, 1, instance_id=who)).assignment) == expected
    assert sim.ask(heartbeat(old, 1, instance_id=who)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert sim.ask(sync(old, 1, instance_id=who)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert sim.ask(join(old, instance_id=who)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert sim.reloaded().shard.dump() == sim.shard.dump()


def test_static_member_with_other_protocols_makes_a_rebalance() -> None:
    sim = Sim()
    waiter = sim.submit(join(instance_id="a", protocols=("range", "sticky")), 9)
    sim.advance(0)
    member_id = sim.answers[waiter].member_id
    sim.ask(sync(member_id, 1, {member_id: b""}, instance_id="a"))
    back = sim.ask(join(instance_id="a", protocols=("sticky", "range")), 9)
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_static_member_that_waits_is_fenced_by_its_double() -> None:
    sim = Sim()
    a, b, _ = static_pair(sim)
    waiter = sim.submit(join(a, instance_id="a", metadata=subscription("u")), 9)
    double = sim.submit(join(instance_id="a"), 9)
    assert sim.answers[waiter].error_code == ErrorCode.FENCED_INSTANCE_ID
    sim.submit(join(b, instance_id="b"), 9)
    assert sim.answers[double].generation_id == 2


def test_static_member_back_during_the_sync_phase_starts_over() -> None:
    sim = Sim()
    a, b, _ = static_pair(sim)
    for name, member_id in (("a", a), ("b", b)):
        sim.submit(join(member_id, instance_id=name, metadata=subscription("u")), 9)
    assert group_of(sim).state is State.COMPLETING_REBALANCE
    sim.submit(join(instance_id="b"), 9)
    assert group_of(sim).state is State.PREPARING_REBALANCE


def test_static_member_keeps_its_place_through_a_rebalance_it_misses() -> None:
    sim = Sim()
    a, b, _ = static_pair(sim)
    waiter = sim.submit(join(a, instance_id="a", metadata=subscription("u"), rebalance_ms=1_000, session_ms=30_000), 9)
    group = group_of(sim)
    assert group.rebalance_timeout_ms == REBALANCE_MS
    for _ in range(REBALANCE_MS // 5_000):
        sim.ask(heartbeat(b, 1, instance_id="b"))
        sim.advance(5_000)
    assert sim.answers[waiter].generation_id == 2
    assert b in group_of(sim).members


def test_static_member_that_stays_away_loses_its_place() -> None:
    sim = Sim()
    static_pair(sim)
    sim.advance(SESSION_MS)
    assert group_of(sim).state is State.EMPTY
    assert group_of(sim).static == {}


def test_static_members_that_all_die_while_one_waits_for_the_assignment_are_forgotten() -> None:
    sim = Sim()
    a, b, leader = static_pair(sim)
    follower, name = (b, "b") if leader == a else (a, "a")
    for each, member_id in (("a", a), ("b", b)):
        sim.submit(join(member_id, instance_id=each, metadata=subscription("u")), 9)
    waiter = sim.submit(sync(follower, 2, instance_id=name))
    sim.advance(SESSION_MS)
    assert sim.answers[waiter].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    sim.advance(REBALANCE_MS + SESSION_MS)
    assert group_of(sim).state is State.EMPTY


@pytest.mark.parametrize("rebalance_ms", [0, -7])
def test_absurd_rebalance_timeout_does_not_make_the_coordinator_spin(rebalance_ms: int) -> None:
    sim = Sim()
    static_pair(sim)
    for name in ("a", "b"):
        sim.ask(join(instance_id=name, rebalance_ms=rebalance_ms), 9)
    sim.ask(leave(instance_ids=("a",)))
    began_ms = sim.now_ms
    for _ in range(3):
        deadline = sim.runtime.next_deadline_ms
        assert deadline is not None
        sim.advance(max(deadline - sim.now_ms, 0))
    assert sim.now_ms >= began_ms + 2_000, "nobody but a silent static member is left, and its session is not over"
    sim.advance(SESSION_MS)
    assert group_of(sim).state is State.EMPTY


def test_administrator_removes_a_static_member_by_its_instance() -> None:
    sim = Sim()
    a, b, _ = static_pair(sim)
    answer = sim.ask(leave(instance_ids=("b",))).members[0]
    assert (answer.member_id, answer.group_instance_id, answer.error_code) == ("", "b", 0)
    assert set(group_of(sim).members) == {a}
    assert sim.ask(heartbeat(b, 1, instance_id="b")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Failover -------------------------------------------------------------------------------------------------------------


def test_stable_group_goes_on_under_a_new_coordinator() -> None:
    sim = Sim()
    ids, generation = stable_group(sim, 3)
    other = sim.reloaded()
    assert other.shard.dump() == sim.shard.dump()
    for member_id in ids:
        assert other.ask(heartbeat(member_id, generation)).error_code == 0
    other.advance(SESSION_MS)
    assert group_of(other).state is State.EMPTY


def test_rebalance_that_was_going_on_is_forgotten_and_begins_again() -> None:
    sim = Sim()
    (leader, follower), generation = stable_group(sim, 2)
    sim.submit(join(leader, metadata=subscription("u")), 9)
    other = sim.reloaded()
    assert other.ask(heartbeat(follower, generation)).error_code == 0
    other.submit(join(leader, metadata=subscription("u")), 9)
    assert other.ask(heartbeat(follower, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


# History --------------------------------------------------------------------------------------------------------------


def test_history_tells_who_came_who_went_and_how_long_the_group_stood_still() -> None:
    sim = Sim()
    (leader, other), _ = stable_group(sim, 2)
    sim.ask(leave(other))
    sim.advance(1_500)
    sim.ask(join(leader), 9)
    sim.advance(500)
    sim.ask(sync(leader, 2, {leader: assignment("t", 0, 1)}))
    kinds = [event.kind for event in sim.shard.history.of(GROUP)]
    assert kinds[:2] == [EventKind.JOINED, EventKind.REBALANCE]
    left = next(event for event in sim.shard.history.of(GROUP) if event.kind is EventKind.LEFT)
    assert (left.member_id, left.client_id, left.reason) == (other, "client", "no reason given")
    last = sim.shard.history.of(GROUP)[-1]
    assert (last.kind, last.generation, last.members) == (EventKind.STABLE, 2, 1)
    assert (last.stopped_ms, last.partitions_moved) == (2_000, 1)


def test_history_does_not_keep_a_novel() -> None:
    sim = Sim()
    (only,), _ = stable_group(sim, 1)
    request = LeaveGroupRequest(group_id=GROUP, members=(MemberIdentity(member_id=only, reason="x" * 30_000),))
    sim.ask(request)
    assert max(len(event.reason) for event in sim.shard.history.of(GROUP)) == 255


def test_history_is_bounded_and_goes_with_its_group() -> None:
    sim = Sim()
    (leader,), _ = stable_group(sim, 1)
    for _ in range(EVENTS_MAX):
        generation = sim.ask(join(leader), 9).generation_id
        sim.ask(sync(leader, generation, {}))
    assert len(sim.shard.history.of(GROUP)) == EVENTS_MAX
    sim = Sim()
    member_id, _ = new_member(sim)
    sim.ask(leave(member_id))
    assert sim.shard.history.of(GROUP)
