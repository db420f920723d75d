"""The consumer protocol (KIP-848) as transcripts: who joins, who leaves, who is told what."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from consumer_world import GROUP, Consumer, World, settle, topic_id

from tidelog.errors import ErrorCode
from tidelog.groups.consumer_group import GroupState
from tidelog.groups.consumer_heartbeat import HURRY_MS, STEADY_MS_MIN, ConsumerGroupSettings
from tidelog.groups.consumer_member import MemberState
from tidelog.groups.history import EventKind
from tidelog.wire.messages.groups import ConsumerGroupDescribeRequest

JOIN = {"rebalance_timeout_ms": 60_000, "topic_partitions": ()}


def test_the_first_member_gets_everything_at_once() -> None:
    world = World()
    response = Consumer(world, "a").beat()
    assert response.member_epoch == 1
    assert response.heartbeat_interval_ms == STEADY_MS_MIN
    assert response.assignment is not None
    assert [(t.topic_id, t.partitions) for t in response.assignment.topic_partitions] == [
        (topic_id("orders"), (0, 1, 2, 3))
    ]
    assert world.group.state is GroupState.STABLE


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.beat()
    waiting = b.beat()
    assert (waiting.member_epoch, b.numbers) == (2, [])
    assert waiting.heartbeat_interval_ms == HURRY_MS
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    asked = a.beat(full=False)
    assert asked.member_epoch == 1, "it stays in its epoch until it has given up"
    assert asked.assignment is not None
    assert a.numbers == [0, 1]
    assert world.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert b.beat(full=False).assignment is None, "nothing is free yet, and nothing changed"

    assert a.beat().member_epoch == 2
    b.beat(full=False)
    assert (a.numbers, b.numbers) == ([0, 1], [2, 3])
    assert world.group.state is GroupState.STABLE


def test_only_what_must_move_moves_when_a_third_member_joins() -> None:
    world = World({"orders": 12})
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    before = {"a": a.owned, "b": b.owned}
    c = Consumer(world, "c")
    settle(a, b, c)
    assert [len(one.owned) for one in (a, b, c)] == [4, 4, 4]
    assert a.owned < before["a"]
    assert b.owned < before["b"]


def test_an_answer_carries_the_assignment_only_when_it_changed_or_was_asked_for() -> None:
    world = World()
    a = Consumer(world, "a")
    a.beat()
    assert a.beat(full=False).assignment is None
    assert a.beat(full=True).assignment is not None
    log = len(world.log)
    a.beat(full=False)
    assert len(world.log) == log, "a heartbeat that changes nothing writes nothing"


def test_the_more_members_the_fewer_heartbeats_of_each() -> None:
    world = World()
    many = [Consumer(world, f"m{n}") for n in range(100)]
    settle(*many, rounds=3)
    assert many[0].beat().heartbeat_interval_ms == 2_000
    world.load()
    assert many[0].beat().heartbeat_interval_ms == 2_000
    for one in many[5:]:
        one.leave()
    settle(*many[:5])
    assert many[0].beat().heartbeat_interval_ms == STEADY_MS_MIN
    calm = World(settings=ConsumerGroupSettings(group_consumer_heartbeat_interval_ms=100))
    assert Consumer(calm, "a").beat().heartbeat_interval_ms == 100, "never longer than the setting"


def test_who_leaves_frees_its_partitions() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    assert b.leave().member_epoch == -1
    settle(a, rounds=1)
    assert a.numbers == [0, 1, 2, 3]
    assert a.leave().error_code == 0
    assert world.group.state is GroupState.EMPTY
    assert world.group.epoch == world.group.target_epoch, "an empty group has nothing left to assign"


def test_a_silent_member_is_evicted_and_its_partitions_move_on() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    for _ in range(9):
        world.advance(5_000)
        a.beat(full=False)
    settle(a, rounds=1)
    assert a.numbers == [0, 1, 2, 3]
    assert b.beat(full=False).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    evicted = [event for event in world.history if event.kind is EventKind.EVICTED]
    assert [(event.member_id, event.client_id) for event in evicted] == [("b", "b")]
    assert "session" in evicted[0].reason


def test_a_member_that_does_not_give_up_in_time_is_evicted() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a)
    b.beat()
    for _ in range(13):  # it heartbeats, but its application never gets to revoking
        owned = a.owned
        a.beat()
        a.owned = owned
        b.beat(full=False)
        world.advance(5_000)
    assert "a" not in world.group.members
    assert b.numbers == [0, 1, 2, 3]
    evicted = [event for event in world.history if event.kind is EventKind.EVICTED]
    assert [event.member_id for event in evicted] == ["a"]
    assert "max.poll.interval.ms" in evicted[0].reason


def test_giving_up_in_time_stops_the_clock() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    for _ in range(20):
        world.advance(5_000)
        a.beat(full=False)
        b.beat(full=False)
    assert world.group.state is GroupState.STABLE


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_epochs_ahead_or_behind_are_fenced() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    for epoch in (a.epoch + 1, a.epoch - 2 or 99):
        assert world.heartbeat("a", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_lost_answer_is_repeated() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a)
    b.beat()
    a.beat()
    lost = a.beat(lost=True)
    assert lost.member_epoch == a.epoch + 1
    again = a.beat(full=False)
    assert again.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns, so it might own too much"

    c = Consumer(world, "c")
    settle(a, b, c)
    before = c.epoch
    b.leave()
    c.beat(lost=True)
    again = c.beat()
    assert (again.error_code, c.epoch) == (0, before + 1)
    assert again.assignment is not None


def test_a_fenced_member_may_start_over_under_its_id() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    a.take(world.heartbeat("a", 77))
    assert a.epoch == 0
    response = a.beat()
    assert (response.error_code, a.numbers) == (0, [0, 1])
    assert b.beat(full=False).assignment is None, "nobody else noticed"


def test_unknown_members_and_groups() -> None:
    world = World()
    assert world.heartbeat("a", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    Consumer(world, "a").beat()
    response = world.heartbeat("b", 3)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "'b'" in (response.error_message or "")
    assert world.heartbeat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
    ],
    ids=str,
)
def test_what_no_client_may_say(fields: dict[str, object]) -> None:
    said = {"member_id": "a", "epoch": 0, "subscribed_topic_names": ("orders",), **JOIN, **fields}
    response = World().heartbeat(**said)  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message


def test_version_0_is_given_a_member_id() -> None:
    world = World()
    response = world.heartbeat("", 0, version=0, subscribed_topic_names=("orders",), **JOIN)
    assert response.error_code == 0
    assert list(world.group.members) == [response.member_id]


def test_a_full_group_takes_nobody_but_its_own() -> None:
    world = World(settings=ConsumerGroupSettings(group_consumer_max_size=1))
    a = Consumer(world, "a", instance_id="i")
    a.beat()
    assert Consumer(world, "b").beat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat().error_code == 0
    a.leave(-2)
    assert Consumer(world, "a2", instance_id="i").beat().error_code == 0


# -- assignors and subscriptions ---------------------------------------------------------------------------------------


def test_the_assignor_most_members_want() -> None:
    world = World({"orders": 4, "payments": 4})
    topics = ("orders", "payments")
    a = Consumer(world, "a", topics, server_assignor="range")
    b = Consumer(world, "b", topics, server_assignor="range")
    c = Consumer(world, "c", topics, server_assignor="uniform")
    settle(a, b, c)
    described = world.send(ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False), 1)
    assert described.groups[0].assignor_name == "range"
    assert a.owned == {(topic_id(name), n) for name in topics for n in (0, 1)}
    unknown = world.heartbeat("d", 0, subscribed_topic_names=("orders",), server_assignor="sticky", **JOIN)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_member_may_change_its_mind() -> None:
    world = World({"orders": 2, "payments": 2})
    a, b = Consumer(world, "a"), Consumer(world, "b")
    settle(a, b)
    a.subscription["subscribed_topic_names"] = ("payments",)
    settle(a, b)
    assert a.owned == {(topic_id("payments"), 0), (topic_id("payments"), 1)}
    assert b.owned == {(topic_id("orders"), 0), (topic_id("orders"), 1)}


def test_new_partitions_and_topics_are_noticed() -> None:
    world = World({"orders": 2})
    a = Consumer(world, "a", ("orders", "later"))
    settle(a)
    epoch = a.epoch
    world.set_topics({"orders": 2, "unrelated": 5})
    assert a.beat(full=False).member_epoch == epoch, "topics of others are no reason to rebalance"
    world.set_topics({"orders": 3, "later": 1})
    a.beat(full=False)
    assert a.epoch == epoch + 1
    assert a.owned == {(topic_id("orders"), n) for n in range(3)} | {(topic_id("later"), 0)}
    world.set_topics({"orders": 3})
    settle(a)
    assert a.owned == {(topic_id("orders"), n) for n in range(3)}


def test_an_empty_pattern_matches_nothing() -> None:
    world = World({"orders": 2, "payments": 2})
    a = Consumer(world, "a", ("orders",), subscribed_topic_regex="")
    settle(a)
    assert a.owned == {(topic_id("orders"), 0), (topic_id("orders"), 1)}
    assert not world.group.regexes


def test_a_pattern_follows_the_topics() -> None:
    world = World({"orders-eu": 1, "payments": 1})
    a = Consumer(world, "a", (), subscribed_topic_regex="orders-.*")
    settle(a)
    assert a.owned == {(topic_id("orders-eu"), 0)}
    world.set_topics({"orders-eu": 1, "orders-us": 1, "payments": 1})
    settle(a)
    assert a.owned == {(topic_id("orders-eu"), 0), (topic_id("orders-us"), 0)}
    a.subscription["subscribed_topic_regex"] = "pay.*"
    settle(a)
    assert a.owned == {(topic_id("payments"), 0)}
    assert list(world.group.regexes) == ["pay.*"]
    a.leave()
    assert not world.group.regexes


def test_a_bad_pattern_is_refused_and_changes_nothing() -> None:
    world = World()
    response = world.heartbeat("a", 0, subscribed_topic_regex="(", **JOIN)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.log


def test_a_member_of_a_group_without_topics_waits_for_them() -> None:
    world = World({"orders": 2})
    a = Consumer(world, "a", ("later",))
    assert a.beat().error_code == 0
    assert (a.epoch, a.numbers) == (1, [])
    world.set_topics({"later": 2})
    settle(a)
    assert a.numbers == [0, 1]


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_member_is_back_before_anybody_noticed() -> None:
    world = World()
    a, b = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    settle(a, b)
    epoch, held = world.group.epoch, a.owned
    assert a.leave(-2).member_epoch == -2
    assert b.beat(full=False).assignment is None
    again = Consumer(world, "a2", instance_id="i")
    assert again.beat().error_code == 0
    assert (again.owned, again.epoch, world.group.epoch) == (held, epoch, epoch)
    assert set(world.group.members) == {"a2", "b"}
    assert world.history[-2].kind is EventKind.REPLACED
    assert world.heartbeat("a", epoch, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_given_away() -> None:
    world = World()
    Consumer(world, "a", instance_id="i").beat()
    assert Consumer(world, "b", instance_id="i").beat().error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    world = World()
    a, b = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    settle(a, b)
    a.leave(-2)
    for _ in range(10):
        world.advance(5_000)
        b.beat(full=False)
    assert b.numbers == [0, 1, 2, 3]
    assert world.heartbeat("x", 5, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good() -> None:
    world = World()
    a, b = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    settle(a, b)
    a.leave(-1)
    settle(b, rounds=1)
    assert b.numbers == [0, 1, 2, 3]


# -- commits, description, reload --------------------------------------------------------------------------------------


def test_commits_of_strangers_and_of_other_epochs_are_refused() -> None:
    world = World()
    a = Consumer(world, "a")
    a.beat()
    group = world.group

    def check(member_id: str, epoch: int, version: int = 9, transactional: bool = False) -> ErrorCode:
        elsewhere = [(topic_id("payments"), 0)]
        return group.check_commit(
            member_id, None, epoch, lambda: elsewhere, transactional=transactional, version=version
        )

    assert check("a", a.epoch) is ErrorCode.NONE
    assert check("a", a.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("b", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("a", a.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert check("a", a.epoch, version=3, transactional=True) is ErrorCode.NONE
    assert group.check_fetch(None, -1) is ErrorCode.NONE
    assert group.check_fetch("a", a.epoch) is ErrorCode.NONE
    assert group.check_fetch("a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_fetch("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_delete() is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert world.group.check_commit("", None, -1, tuple, transactional=False, version=9) is ErrorCode.NONE
    assert world.group.check_delete() is ErrorCode.NONE


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_commit_overtaken_by_a_new_epoch_counts_for_what_the_member_kept(reloaded: bool) -> None:
    """The answer that carries the new epoch is on its way; what was assigned before and since is the member's own."""
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.beat()
    old = a.epoch
    b.beat()
    a.beat(full=False)  # asked to give up two of four
    a.beat()
    b.beat(full=False)
    assert (a.numbers, b.numbers, a.epoch, b.epoch) == ([0, 1], [2, 3], old + 1, old + 1)
    if reloaded:
        world.load()

    def check(member_id: str, epoch: int, *numbers: int, transactional: bool = False) -> ErrorCode:
        slots = [(topic_id("orders"), number) for number in numbers]
        return world.group.check_commit(member_id, None, epoch, lambda: slots, transactional=transactional, version=9)

    assert check("a", old, 0, 1) is ErrorCode.NONE
    assert check("a", old, 0, 1, transactional=True) is ErrorCode.NONE
    assert check("a", old, 0, 2) is ErrorCode.STALE_MEMBER_EPOCH, "another has it now"
    assert check("a", old - 1, 0) is ErrorCode.STALE_MEMBER_EPOCH, "before it was given anything"
    assert check("a", old + 2, 0) is ErrorCode.STALE_MEMBER_EPOCH, "an epoch that nobody was told of"
    assert check("a", -1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("b", old, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it was the other's then"
    assert check("b", old + 1, 2) is ErrorCode.NONE
    assert world.group.check_fetch("a", old) is ErrorCode.STALE_MEMBER_EPOCH

    b.leave()
    settle(a)
    assert a.numbers == [0, 1, 2, 3]
    assert check("a", old, 0, 1) is ErrorCode.NONE
    assert check("a", old, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it was away in between"


def test_description() -> None:
    world = World()
    a, b = Consumer(world, "a", instance_id="i"), Consumer(world, "b")
    a.beat()
    b.beat()
    request = ConsumerGroupDescribeRequest(group_ids=(GROUP, "nobody"), include_authorized_operations=False)
    group, missing = world.send(request, 1).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = group.members
    assert (first.member_id, first.instance_id, first.member_epoch, first.member_type) == ("a", "i", 1, 1)
    assert [(t.topic_name, t.partitions) for t in first.assignment.topic_partitions] == [("orders", (0, 1, 2, 3))]
    assert [t.partitions for t in first.target_assignment.topic_partitions] == [(0, 1)]
    assert [t.partitions for t in second.target_assignment.topic_partitions] == [(2, 3)]
    assert (missing.error_code, missing.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "nobody")


def test_a_new_coordinator_carries_on() -> None:
    world = World()
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.load()
    settle(a, b)
    assert (a.numbers, b.numbers) == ([0, 1], [2, 3])
    world.load()
    world.advance(44_000)
    assert set(world.group.members) == {"a", "b"}, "each has a whole session from the load on"
    world.advance(2_000)
    assert not world.group.members


def test_deleting_a_group_leaves_nothing() -> None:
    world = World()
    a = Consumer(world, "a", ("orders",), subscribed_topic_regex="pay.*")
    a.beat()
    for record in world.group.tombstones():
        world.groups.replay(record)
    assert world.groups.find(GROUP) is None
