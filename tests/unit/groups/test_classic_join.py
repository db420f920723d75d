"""Joining, from the first member to a full group, as transcripts of requests and answers."""

import pytest
from sim import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
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

from tidelog.errors import ErrorCode, InvariantViolated
from tidelog.groups.classic_group import NEXT, Change, ClassicGroup, State
from tidelog.groups.group import GroupSettings


def state(sim: Sim, group_id: str = GROUP) -> State | None:
    group = sim.shard.classic(group_id)
    return None if group is None else group.state


def test_every_transition_is_in_the_table() -> None:
    for before in State:
        for change in Change:
            group = ClassicGroup(group_id=GROUP, state=before)
            if (before, change) in NEXT:
                after = group.after(change, 7)
                assert (after.state, after.state_since_ms) == (NEXT[before, change], 7)
            else:
                with pytest.raises(InvariantViolated):
                    group.after(change, 7)


def test_every_state_but_dead_is_reached_and_left() -> None:
    reachable = set(NEXT.values())
    assert reachable == set(State) - {State.DEAD}
    assert {before for before, _ in NEXT} == set(State) - {State.DEAD}


def test_first_member_is_told_its_id_then_leads() -> None:
    sim = Sim()
    told = sim.ask(join(), 9, "orders-app")
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("orders-app-")
    assert told.generation_id == -1
    waiter = sim.submit(join(told.member_id), 9)
    assert state(sim) is State.PREPARING_REBALANCE
    sim.advance(0)
    joined = sim.answers[waiter]
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id == told.member_id
    assert [member.metadata for member in joined.members] == [subscription("t")]
    assert state(sim) is State.COMPLETING_REBALANCE
    synced = sim.ask(sync(told.member_id, 1, {told.member_id: assignment("t", 0, 1)}))
    assert (synced.error_code, bytes(synced.assignment)) == (0, assignment("t", 0, 1))
    assert state(sim) is State.STABLE


@pytest.mark.parametrize("version", range(4))
def test_old_clients_join_without_an_id(version: int) -> None:
    sim = Sim()
    waiter = sim.submit(join(rebalance_ms=-1 if version == 0 else REBALANCE_MS), version)
    sim.advance(0)
    joined = sim.answers[waiter]
    assert (joined.error_code, joined.generation_id) == (0, 1)
    group = sim.shard.classic(GROUP)
    assert group is not None
    assert group.rebalance_timeout_ms == (SESSION_MS if version == 0 else REBALANCE_MS)


@pytest.mark.parametrize("version", range(10))
def test_a_refusal_can_be_said_in_every_version(version: int) -> None:
    assert Sim().ask(join(session_ms=1), version).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_requests_that_make_no_sense() -> None:
    sim = Sim()
    assert sim.ask(join(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert sim.ask(join(session_ms=1_800_001)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert sim.ask(join("ghost")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.ask(join(protocols=())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sim.ask(join(protocol_type="")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(sim.shard.all()) == []
    assert sim.log == []


def test_member_id_that_is_never_used_leaves_no_trace() -> None:
    sim = Sim()
    sim.ask(join())
    assert state(sim) is State.EMPTY
    sim.advance(SESSION_MS)
    assert state(sim) is None
    assert len(sim.runtime._timers) == 0


def test_second_member_makes_the_first_join_again() -> None:
    sim = Sim()
    (first,), generation = stable_group(sim, 1)
    second, waiter = new_member(sim)
    assert sim.ask(heartbeat(first, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiter not in sim.answers
    rejoined = sim.ask(join(first), 9)
    assert rejoined.generation_id == 2
    assert {member.member_id for member in rejoined.members} == {first, second}
    assert sim.answers[waiter].members == ()
    follower = sim.submit(sync(second, 2))
    assert follower not in sim.answers
    sim.ask(sync(first, 2, {first: assignment("t", 0), second: assignment("t", 1)}))
    assert bytes(sim.answers[follower].assignment) == assignment("t", 1)
    assert sim.ask(heartbeat(second, 2)).error_code == 0


def test_initial_delay_waits_for_others_and_is_extended_by_them() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    _, one = new_member(sim)
    sim.advance(2_000)
    _, two = new_member(sim)
    sim.advance(1_500)
    assert not sim.answers, "somebody came, so the delay began again"
    sim.advance(2_500)
    assert sim.answers[one].generation_id == sim.answers[two].generation_id == 1


def test_initial_delay_ends_with_the_rebalance_timeout() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    waiters = []
    for _ in range(20):
        waiters.append(new_member(sim, rebalance_ms=10_000)[1])
        sim.advance(1_000)
        if sim.answers:
            break
    assert sim.now_ms - START_MS <= 13_000
    assert all(waiter in sim.answers for waiter in waiters[:-1])


def test_protocol_that_all_know_and_most_want() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    waiters = [
        new_member(sim, protocols=protocols)[1]
        for protocols in (("sticky", "range"), ("range", "sticky"), ("range", "sticky", "roundrobin"))
    ]
    refused = sim.ask(join(protocols=("roundrobin",)))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sim.advance(10_000)
    assert {sim.answers[waiter].protocol_name for waiter in waiters} == {"range"}
    assert sim.ask(join(protocol_type="connect")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_follower_that_asks_again_is_told_the_same() -> None:
    sim = Sim()
    (leader, follower), generation = stable_group(sim, 2)
    again = sim.ask(join(follower), 9)
    assert (again.generation_id, again.leader, again.members) == (generation, leader, ())
    assert state(sim) is State.STABLE


def test_leader_that_asks_again_wants_a_rebalance() -> None:
    sim = Sim()
    (leader, follower), generation = stable_group(sim, 2)
    waiter = sim.submit(join(leader), 9)
    assert state(sim) is State.PREPARING_REBALANCE
    sim.ask(join(follower), 9)
    assert sim.answers[waiter].generation_id == generation + 1


def test_changed_subscription_makes_a_rebalance() -> None:
    sim = Sim()
    (_, follower), _ = stable_group(sim, 2)
    sim.submit(join(follower, metadata=subscription("t", "u")), 9)
    assert state(sim) is State.PREPARING_REBALANCE


def test_join_answer_that_was_lost_is_given_again() -> None:
    sim = Sim()
    member_id, waiter = new_member(sim)
    sim.advance(0)
    assert sim.ask(join(member_id), 9) == sim.answers[waiter]


def test_request_overtaken_by_a_second_one_of_the_same_member_ends() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    member_id, first = new_member(sim)
    second = sim.submit(join(member_id), 9)
    assert sim.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    sim.advance(10_000)
    assert sim.answers[second].generation_id == 1


def test_change_while_others_wait_for_the_assignment() -> None:
    sim = Sim()
    ids, _ = stable_group(sim, 3)
    leader, second, third = ids
    waiters = [sim.submit(join(member_id), 9) for member_id in (leader, second, third)]
    assert {sim.answers[waiter].generation_id for waiter in waiters} == {2}
    waits = sim.submit(sync(second, 2))
    sim.submit(join(third, metadata=subscription("x")), 9)
    assert sim.answers[waits].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert sim.ask(sync(second, 2)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_does_not_rejoin_in_time_is_out() -> None:
    sim = Sim()
    (leader, slow), _ = stable_group(sim, 2)
    waiter = sim.submit(join(leader), 9)
    for _ in range(REBALANCE_MS // 5_000):
        assert sim.ask(heartbeat(slow, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        sim.advance(5_000)
    joined = sim.answers[waiter]
    assert (joined.generation_id, joined.leader, len(joined.members)) == (2, leader, 1)
    assert sim.ask(heartbeat(slow, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    reasons = [event.reason for event in sim.shard.history.of(GROUP) if event.member_id == slow]
    assert "max.poll.interval.ms" in reasons[-1]


def test_leader_that_does_not_rejoin_is_replaced() -> None:
    sim = Sim()
    (leader, follower), _ = stable_group(sim, 2)
    waiter = sim.submit(join(follower, metadata=subscription("u")), 9)
    sim.advance(REBALANCE_MS)
    assert sim.answers[waiter].leader == follower
    assert sim.ask(heartbeat(leader, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_that_waits_too_long_is_presumed_gone() -> None:
    sim = Sim()
    (leader,), _ = stable_group(sim, 1, rebalance_ms=600_000)
    _, waiter = new_member(sim)
    for _ in range(60):
        sim.advance(5_000)
        sim.ask(heartbeat(leader, 1))
    assert sim.answers[waiter].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_full_group_turns_the_next_one_away() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=3_000, group_max_size=2))
    waiters = [new_member(sim)[1] for _ in range(2)]
    assert sim.ask(join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    sim.advance(10_000)
    assert {sim.answers[waiter].generation_id for waiter in waiters} == {1}
    assert sim.ask(join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_all_members_of_a_generation_that_nobody_syncs_are_removed() -> None:
    sim = Sim()
    member_id, _ = new_member(sim)
    sim.advance(0)
    for _ in range(REBALANCE_MS // 5_000):
        sim.ask(heartbeat(member_id, 1))
        sim.advance(5_000)
    assert state(sim) is State.EMPTY
    assert sim.ask(heartbeat(member_id, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_somebody_else_is_untouched() -> None:
    sim = Sim()
    stable_group(sim, 2)
    stable_group(sim, 1, group_id="other")
    assert sim.ask(leave("nobody")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert state(sim) is state(sim, "other") is State.STABLE
