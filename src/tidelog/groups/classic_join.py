"""JoinGroup 0-9 of a classic group.

A new dynamic member is first told its id (from version 4) and asked to come back with it, so that a client that
retries does not fill the group with ghosts. A static member that comes back takes its old place.
"""

from typing import Any, Final

import msgspec

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import ClassicGroup, Member, State
from tidelog.groups.classic_rebalance import complete_if_all_joined, rebalance, rebalance_or_complete, remove
from tidelog.groups.classic_step import UNKNOWN, Step, join_error, joined
from tidelog.groups.group import Context, Dice, new_member_id
from tidelog.groups.history import EventKind
from tidelog.groups.records import GroupRecord
from tidelog.wire.messages.groups import JoinGroupRequest

MEMBER_ID_REQUIRED_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member that waits for a rebalance has no id to heartbeat with; after this long it is presumed gone."""

JoinOutcome = Outcome[Any, GroupRecord]
Protocols = tuple[tuple[str, bytes], ...]


def join(step: Step, request: JoinGroupRequest, context: Context, dice: Dice) -> JoinOutcome:
    group = step.group
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if not _has_room(group, request.member_id, step.settings.group_max_size):
        return _turn_away(step, request, context)
    if not group.supports(request.protocol_type, protocols):
        return _refuse(step, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request, context)
    if request.member_id == UNKNOWN:
        return _join_new(step, request, protocols, context, dice)
    if request.member_id in group.pending_members and request.group_instance_id is None:
        return _add(step, request, protocols, context, request.member_id)
    if code := group.check_member(request.member_id, request.group_instance_id):
        return _refuse(step, code, request, context)
    return _rejoin(step, request, protocols, context)


def _has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING_REBALANCE:
        # Those who wait count, not those who are listed: the last to rejoin a group that must shrink stay out.
        member = group.members.get(member_id)
        waiting = sum(each.join_waiter is not None for each in group.members.values())
        return (member is not None and member.join_waiter is not None) or waiting < size_max
    return member_id in group.members or len(group.members) < size_max


def _turn_away(step: Step, request: JoinGroupRequest, context: Context) -> JoinOutcome:
    member = step.group.members.get(request.member_id)
    if member is not None:
        remove(step, [member], EventKind.EVICTED, "the group is full (group.max.size)")
    else:
        step.group = step.group.without(request.member_id)
    complete_if_all_joined(step)
    return step.outcome(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN, context.version))


def _refuse(step: Step, code: ErrorCode, request: JoinGroupRequest, context: Context) -> JoinOutcome:
    return step.outcome(join_error(code, request.member_id, context.version))


def _join_new(step: Step, request: JoinGroupRequest, protocols: Protocols, context: Context, dice: Dice) -> JoinOutcome:
    instance_id = request.group_instance_id
    member_id = new_member_id(instance_id or context.client_id, dice)
    if instance_id is not None:
        old = step.group.static.get(instance_id)
        if old is not None:
            return _replace_static(step, request, protocols, context, old, member_id)
        return _add(step, request, protocols, context, member_id)
    if context.version < MEMBER_ID_REQUIRED_SINCE:
        return _add(step, request, protocols, context, member_id)
    step.group = step.group.with_(pending_members=step.group.pending_members | {member_id})
    step.expect_id(member_id, request.session_timeout_ms)
    return step.outcome(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, context.version))


def _add(step: Step, request: JoinGroupRequest, protocols: Protocols, context: Context, member_id: str) -> JoinOutcome:
    group = step.group
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        join_waiter=context.waiter,
        join_version=context.version,
        is_new=True,
    )
    if not group.members:
        group = group.with_(protocol_type=request.protocol_type)
    if group.initial is not None:
        group = group.with_(initial=msgspec.structs.replace(group.initial, extended=True))
    step.group = group.with_member(member)
    step.expect(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    step.note(EventKind.JOINED, member, _reason(request))
    rebalance_or_complete(step, f"member {member_id} joined: {_reason(request)}")
    return step.outcome()


def _rejoin(step: Step, request: JoinGroupRequest, protocols: Protocols, context: Context) -> JoinOutcome:
    group = step.group
    member = group.members[request.member_id]
    same = member.protocols == protocols
    if group.state is State.PREPARING_REBALANCE:
        pass
    elif group.state is State.COMPLETING_REBALANCE and same:
        # It may have missed the answer to its first request.
        return step.outcome(joined(group, member.member_id))
    elif group.state is State.STABLE and same and group.leader != member.member_id:
        return step.outcome(joined(group, member.member_id))
    # A leader that joins again wants a rebalance although nothing about it changed: topics may have.
    _update(step, member, request, protocols, context)
    what = "leader" if group.leader == member.member_id else "member"
    rebalance_or_complete(step, f"{what} {member.member_id} joined again: {_reason(request)}")
    return step.outcome()


def _update(step: Step, member: Member, request: JoinGroupRequest, protocols: Protocols, context: Context) -> Member:
    # A second request while the first still waits: the client gave up on that one.
    step.complete_join(member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, member.join_version))
    updated = msgspec.structs.replace(
        member,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        join_waiter=context.waiter,
        join_version=context.version,
    )
    step.group = step.group.with_member(updated)
    return updated


def _replace_static(
    step: Step, request: JoinGroupRequest, protocols: Protocols, context: Context, old_id: str, member_id: str
) -> JoinOutcome:
    """A static member is back under a new member id. If that changes nothing for the others, they never learn of it."""
    group = step.group
    was_leader = group.leader
    old = group.members[old_id]
    step.refuse_waiting(old, ErrorCode.FENCED_INSTANCE_ID, old_id)
    member = msgspec.structs.replace(
        old,
        member_id=member_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        join_waiter=context.waiter,
        join_version=context.version,
        sync_waiter=None,
    )
    members = {member_id if key == old_id else key: each for key, each in group.members.items()}
    pending_sync = group.pending_sync
    if old_id in pending_sync:
        pending_sync = pending_sync - {old_id} | {member_id}
    step.group = group = group.with_(
        members=members | {member_id: member},
        static=group.static | {member.instance_id: member_id},
        leader=member_id if was_leader == old_id else was_leader,
        pending_sync=pending_sync,
    )
    step.expect_id(old_id, None)
    step.expect(member)
    step.note(EventKind.REPLACED, member, _reason(request))
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id at this moment.
        rebalance(step, f"static member {member.instance_id} came back during a rebalance")
    elif group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(step)
    elif group.elect_protocol() != group.protocol:
        rebalance(step, f"static member {member.instance_id} came back with other protocols")
    else:
        return _keep_generation(step, member, was_leader or "")
    return step.outcome()


def _keep_generation(step: Step, member: Member, was_leader: str) -> JoinOutcome:
    settled = msgspec.structs.replace(member, join_waiter=None)
    step.group = group = step.group.with_member(settled).with_subscriptions()
    step.records.append(group.record())
    if member.join_version >= SKIP_ASSIGNMENT_SINCE:
        response = joined(group, member.member_id, skip=group.leader == member.member_id)
    else:
        # Told that the old id leads, it takes itself for a follower and does not assign anew.
        response = joined(group, member.member_id, leader=was_leader)
    return step.outcome(response)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has only one timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else max(request.rebalance_timeout_ms, 0)


def _reason(request: JoinGroupRequest) -> str:
    return request.reason or "no reason given"
