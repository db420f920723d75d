"""Classic groups become consumer groups and back while they work."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from consumer_migrants import ClassicConsumer, live
from consumer_world import GROUP, Consumer, World

from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import State
from tidelog.groups.consumer_group import GroupState
from tidelog.groups.consumer_heartbeat import ConsumerGroupSettings
from tidelog.groups.history import EventKind
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

both = pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])


def classic_pair(world: World, cooperative: bool, **facts: Any) -> tuple[ClassicConsumer, ClassicConsumer]:
    a = ClassicConsumer(world, "a", cooperative=cooperative, **facts)
    b = ClassicConsumer(world, "b", cooperative=cooperative, **facts)
    live(a, b)
    assert sorted(a.numbers + b.numbers) == [0, 1, 2, 3]
    return a, b


@both
def test_a_group_is_upgraded_member_by_member(cooperative: bool) -> None:
    world = World()
    a, b = classic_pair(world, cooperative)
    generation = a.generation
    c = Consumer(world, "c")
    assert c.beat().error_code == 0
    assert world.shard.classic(GROUP) is None
    assert world.group.epoch == generation + 1
    live(a, b, c)
    assert sorted(a.numbers + b.numbers + [n for _, n in c.owned]) == [0, 1, 2, 3]
    assert world.group.state is GroupState.STABLE
    assert [len(one.owned) for one in (a, b, c)].count(1) == 2, "balanced over both kinds"

    described = world.send(ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False), 1)
    assert sorted(member.member_type for member in described.groups[0].members) == [0, 0, 1]

    a.leave()
    d = Consumer(world, "d")
    live(b, c, d)
    b.leave()
    live(c, d)
    assert sorted(c.numbers + d.numbers) == [0, 1, 2, 3]
    assert world.group.classic_members() == 0


@both
def test_a_group_is_downgraded_when_the_last_consumer_protocol_member_leaves(cooperative: bool) -> None:
    world = World()
    a, b = classic_pair(world, cooperative)
    c = Consumer(world, "c")
    live(a, b, c)
    epoch = world.group.epoch
    assert c.leave().error_code == 0
    assert world.groups.find(GROUP) is None
    classic = world.shard.classic(GROUP)
    assert classic is not None
    assert (classic.generation, classic.state) == (epoch + 1, State.PREPARING_REBALANCE)
    live(a, b)
    assert sorted(a.numbers + b.numbers) == [0, 1, 2, 3]
    classic = world.shard.classic(GROUP)
    assert classic is not None
    assert classic.state is State.STABLE


def test_who_dies_downgrades_a_group_too() -> None:
    world = World()
    a, b = classic_pair(world, True)
    live(a, b, Consumer(world, "c"))
    live(a, b, rounds=60)
    assert world.groups.find(GROUP) is None
    assert sorted(a.numbers + b.numbers) == [0, 1, 2, 3]


@both
def test_both_directions_survive_a_new_coordinator(cooperative: bool) -> None:
    world = World()
    a, b = classic_pair(world, cooperative)
    c = Consumer(world, "c")
    c.beat()
    world.load()
    assert set(world.group.members) == {a.member_id, b.member_id, "c"}
    live(a, b, c)
    assert sorted(a.numbers + b.numbers + c.numbers) == [0, 1, 2, 3]
    c.leave()
    world.load()
    live(a, b)
    assert sorted(a.numbers + b.numbers) == [0, 1, 2, 3]


@pytest.mark.parametrize("pokes", range(6))
def test_an_upgrade_in_the_middle_of_a_rebalance(pokes: int) -> None:
    """Whoever waits for the others in the classic group is sent to join again."""
    world = World()
    a, b = ClassicConsumer(world, "a"), ClassicConsumer(world, "b")
    live(a, rounds=4)
    for _ in range(pokes):
        b.poke()
    c = Consumer(world, "c")
    assert c.beat().error_code == 0
    assert not any(waiter == one.waiter for one in (a, b) for waiter in world.runtime._deferred)
    live(a, b, c)
    assert sorted(a.numbers + b.numbers + c.numbers) == [0, 1, 2, 3]


def test_classic_members_keep_what_they_need_not_give_up() -> None:
    world = World({"orders": 6})
    a = ClassicConsumer(world, "a", cooperative=True)
    b = ClassicConsumer(world, "b", cooperative=True)
    live(a, b)
    before = a.owned, b.owned
    live(a, b, Consumer(world, "c"))
    assert a.owned < before[0]
    assert b.owned < before[1]


def test_a_static_member_changes_its_protocol_in_place() -> None:
    world = World()
    a, b = ClassicConsumer(world, "a", instance_id="i"), ClassicConsumer(world, "b")
    live(a, b)
    held, generation, joins = a.numbers, a.generation, b.joins
    a2 = Consumer(world, "a2", instance_id="i")
    a2.beat()
    assert a2.numbers == held
    assert world.group.epoch == generation, "it took over a place: nothing to rebalance"
    live(a2, b)
    assert (b.joins, b.generation) == (joins, generation), "and the other never knew"

    a3 = ClassicConsumer(world, "a3", instance_id="i")
    a3.poke()
    assert world.groups.find(GROUP) is None, "the last consumer-protocol member is a classic one now"
    live(a3, b)
    assert sorted(a3.numbers + b.numbers) == [0, 1, 2, 3]


@pytest.mark.parametrize(("policy", "up", "down"), [
    ("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False),
])  # fmt: skip
def test_the_policy_decides(policy: str, up: bool, down: bool) -> None:
    world = World(settings=ConsumerGroupSettings(group_consumer_migration_policy=policy))
    a = ClassicConsumer(world, "a")
    live(a)
    c = Consumer(world, "c")
    response = c.beat()
    if not up:
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert policy in (response.error_message or "")
        live(a)
        assert a.numbers == [0, 1, 2, 3]
        return
    live(a, c)
    c.leave()
    assert (world.groups.find(GROUP) is None) is down
    live(a)
    assert a.numbers == [0, 1, 2, 3]


def test_groups_of_something_else_are_not_upgraded() -> None:
    world = World()
    protocol = JoinGroupRequestProtocol(name="v1", metadata=b"whatever")
    world.post(
        JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="connect", protocols=(protocol,)
        ),
        3,
    )
    assert Consumer(world, "c").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_groups_change_their_protocol_freely() -> None:
    world = World()
    a = ClassicConsumer(world, "a")
    live(a)
    a.leave()
    c = Consumer(world, "c")
    assert c.beat().error_code == 0
    assert c.numbers == [0, 1, 2, 3]
    c.leave()
    live(a)
    assert a.numbers == [0, 1, 2, 3]
    assert world.groups.find(GROUP) is None
    world.load()
    assert world.groups.find(GROUP) is None
    live(a)
    assert a.numbers == [0, 1, 2, 3]


# -- what classic members of a consumer group are told -----------------------------------------------------------------


def mixed() -> tuple[World, ClassicConsumer, Consumer]:
    world = World()
    a, c = ClassicConsumer(world, "a"), Consumer(world, "c")
    live(a, c)
    assert sorted(a.numbers + c.numbers) == [0, 1, 2, 3]
    assert world.group.classic_members() == 1
    return world, a, c


def test_generations_and_members_are_checked() -> None:
    world, a, c = mixed()

    def beat(member_id: str, generation: int) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
        return int(world.send(request, 4).error_code)

    def sync(member_id: str, generation: int, protocol: str = "range") -> int:
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, protocol_type="consumer",
            protocol_name=protocol, assignments=(),
        )  # fmt: skip
        return int(world.send(request, 5).error_code)

    for ask in (beat, sync):
        assert ask(a.member_id, a.generation) == 0
        assert ask(a.member_id, a.generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert ask("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert ask("c", c.epoch) == ErrorCode.UNKNOWN_MEMBER_ID, "that one does not speak the classic protocol"
    assert sync(a.member_id, a.generation, "sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    check = world.group.check_commit
    assert check(a.member_id, None, a.generation, tuple, transactional=False, version=7) is ErrorCode.NONE
    assert check(a.member_id, None, 0, tuple, transactional=False, version=7) is ErrorCode.ILLEGAL_GENERATION


def test_joining_needs_an_assignor_in_common() -> None:
    world, _, _ = mixed()
    for type_, name, metadata in (("connect", "range", b"\0\0"), ("consumer", "mine", b"\0\0\0\0\0\0\0\0\0\0"),
                                  ("consumer", "range", b"\0")):  # fmt: skip
        protocol = JoinGroupRequestProtocol(name=name, metadata=metadata)
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type=type_, protocols=(protocol,)
        )
        assert world.send(request, 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_rejoin_is_evicted() -> None:
    world, a, c = mixed()
    d = Consumer(world, "d")
    for _ in range(70):  # its background thread heartbeats, its application never comes back
        request = HeartbeatRequest(group_id=GROUP, generation_id=a.generation, member_id=a.member_id)
        world.send(request, 4)
        live(c, d, rounds=1)
    assert a.member_id not in world.group.members
    assert sorted(c.numbers + d.numbers) == [0, 1, 2, 3]
    reasons = [event.reason for event in world.history if event.kind is EventKind.EVICTED]
    assert len(reasons) == 1
    assert "max.poll.interval.ms" in reasons[0]
    assert not world.groups._asked_to_rejoin


def test_a_classic_member_that_does_not_sync_is_evicted() -> None:
    world, a, c = mixed()
    b = ClassicConsumer(world, "b")
    b.poke()
    b.poke()
    assert b.member_id in world.group.members
    for _ in range(65):
        request = HeartbeatRequest(group_id=GROUP, generation_id=b.generation, member_id=b.member_id)
        world.send(request, 4)
        live(a, c, rounds=1)
    assert b.member_id not in world.group.members


def test_leaving_names_each_member() -> None:
    world, a, c = mixed()
    members = (MemberIdentity(member_id=a.member_id), MemberIdentity(member_id="x"), MemberIdentity(member_id="c"))
    response = world.send(LeaveGroupRequest(group_id=GROUP, members=members), 5)
    codes = [member.error_code for member in response.members]
    assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    live(c)
    assert c.numbers == [0, 1, 2, 3]
    old = LeaveGroupRequest(group_id=GROUP, member_id="x")
    assert world.send(old, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_the_embedded_protocol(version: int) -> None:
    world = World()
    a = ClassicConsumer(world, "a", version=version)
    c = Consumer(world, "c")
    live(a, c)
    assert sorted(a.numbers + c.numbers) == [0, 1, 2, 3]
