"""SyncGroup 0-5, Heartbeat 0-4 and LeaveGroup 0-5 of a classic group."""

from typing import Any, Final

import msgspec

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import Change, ClassicGroup, Member, State
from tidelog.groups.classic_rebalance import complete_if_all_joined, rebalance, remove
from tidelog.groups.classic_step import SYNC, UNKNOWN, Step, session_timer
from tidelog.groups.history import EventKind, counted
from tidelog.groups.records import GroupRecord
from tidelog.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MANY_LEAVE_SINCE: Final = 3

# Sync -----------------------------------------------------------------------------------------------------------------


def sync(step: Step, request: SyncGroupRequest, waiter: int) -> Outcome[Any, GroupRecord]:
    group = step.group
    if code := _check_sync(group, request):
        return Outcome(SyncGroupResponse(error_code=code, assignment=b""))
    member = group.members[request.member_id]
    if group.state is State.STABLE:
        _synced(step, member.member_id)
        return step.outcome(_assigned(group, member))
    # A second request while the first still waits: the client gave up on that one.
    overtaken = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    step.complete_sync(member, overtaken)
    step.group = group.with_member(msgspec.structs.replace(member, sync_waiter=waiter))
    _synced(step, member.member_id)
    if group.leader == member.member_id:
        _assign(step, {each.member_id: bytes(each.assignment) for each in request.assignments})
    return step.outcome()


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if code := group.check_member(request.member_id, request.group_instance_id):
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for given, actual in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
        if given is not None and actual is not None and given != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _synced(step: Step, member_id: str) -> None:
    step.group = step.group.with_(pending_sync=step.group.pending_sync - {member_id})
    if not step.group.pending_sync:
        step.set_timer(SYNC, None)


def _assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _assign(step: Step, assignments: dict[str, bytes]) -> None:
    """The leader has decided. Whoever it forgot gets nothing."""
    group = step.group
    before = group.owners
    waiting = group.members
    members = {
        key: msgspec.structs.replace(member, assignment=assignments.get(key, b""), sync_waiter=None)
        for key, member in waiting.items()
    }
    stopped_ms = max(step.now_ms - group.stopped_since_ms, 0) if group.stopped_since_ms >= 0 else -1
    group = group.with_(members=members, owners=None, stopped_since_ms=-1, is_stored=True)
    step.group = group = group.after(Change.ASSIGNED, step.now_ms)
    step.records.append(group.record())
    for key, member in waiting.items():
        if member.sync_waiter is not None:
            step.complete_sync(member, _assigned(group, members[key]))
            # Its session may have run out unnoticed while it waited.
            step.expect(member)
    moved = -1
    after = group.current_owners()
    if before is not None and after is not None:
        moved = sum(before.get(partition, owner) != owner for partition, owner in after.items())
    step.note(EventKind.STABLE, stopped_ms=stopped_ms, partitions_moved=moved)


# Heartbeat ------------------------------------------------------------------------------------------------------------


def heartbeat(group: ClassicGroup, request: HeartbeatRequest) -> Outcome[Any, GroupRecord]:
    """Changes nothing but a timer, and is by far the most frequent request."""
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is ErrorCode.NONE and request.generation_id != group.generation:
        code = ErrorCode.ILLEGAL_GENERATION
    if code:
        return Outcome(HeartbeatResponse(error_code=code))
    if group.state is State.PREPARING_REBALANCE:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return Outcome(HeartbeatResponse(error_code=code), timers=(session_timer(group, request.member_id),))


# Leave ----------------------------------------------------------------------------------------------------------------


def leave(step: Step, request: LeaveGroupRequest, version: int) -> Outcome[Any, GroupRecord]:
    leavers = request.members
    if version < MANY_LEAVE_SINCE:
        leavers = (MemberIdentity(member_id=request.member_id),)
    before = len(step.group.members)
    results = tuple(_leave_one(step, leaver) for leaver in leavers)
    gone = before - len(step.group.members)
    if gone and step.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance(step, f"{counted(gone, 'member')} left")
    else:
        complete_if_all_joined(step)
    if version < MANY_LEAVE_SINCE:
        return step.outcome(LeaveGroupResponse(error_code=results[0].error_code))
    return step.outcome(LeaveGroupResponse(members=results))


def _leave_one(step: Step, leaver: MemberIdentity) -> MemberResponse:
    group = step.group
    member_id = leaver.member_id
    code = ErrorCode.NONE
    if member_id == UNKNOWN and leaver.group_instance_id is not None:
        # An administrator removes a static member, not knowing its id.
        member_id = group.static.get(leaver.group_instance_id, UNKNOWN)
    if member_id in group.pending_members:
        step.group = group.without(member_id)
        step.expect_id(member_id, None)
    else:
        code = group.check_member(member_id, leaver.group_instance_id)
        if code is ErrorCode.NONE:
            remove(step, [group.members[member_id]], EventKind.LEFT, leaver.reason or "no reason given")
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=code)
