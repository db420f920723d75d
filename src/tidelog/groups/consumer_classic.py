"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that still speak the classic protocol in a consumer group.

To such a member the group looks as if somebody else were its leader. A generation is its member epoch. Each step of its
reconciliation is a rebalance of its own: it is told to rejoin, says what it still owns, and syncs for what it has now.
"""

from typing import Final

import msgspec

from tidelog.errors import ErrorCode, KafkaError, MalformedMessage
from tidelog.groups.classic_join import MEMBER_ID_REQUIRED_SINCE
from tidelog.groups.consumer_embedded import Subscription, owned_slots, read_subscription, write_assignment
from tidelog.groups.consumer_errors import IllegalGeneration, UnknownMemberId
from tidelog.groups.consumer_group import ConsumerGroup, waits_for_others
from tidelog.groups.consumer_heartbeat import ConsumerGroupSettings, check_room
from tidelog.groups.consumer_member import ConsumerMember, MemberState
from tidelog.groups.consumer_rebalance import JOIN, SESSION, SYNC, Asked, Draft, refresh, replace, settle, subscribe
from tidelog.groups.consumer_topics import TopicAnswers
from tidelog.groups.embedded import CONSUMER
from tidelog.groups.group import Context, Dice, new_member_id
from tidelog.groups.records import ClassicMemberMetadata, ClassicProtocol
from tidelog.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

UNKNOWN: Final = ""
MANY_LEAVE_SINCE: Final = 3


class InconsistentGroupProtocol(KafkaError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- join --------------------------------------------------------------------------------------------------------------


def join(
    draft: Draft,
    request: JoinGroupRequest,
    context: Context,
    settings: ConsumerGroupSettings,
    topics: TopicAnswers,
    dice: Dice,
) -> JoinGroupResponse:
    check_room(draft.group, request.member_id, request.group_instance_id, settings)
    subscription = _check_protocols(draft.group, request)
    member_id = request.member_id or new_member_id(context.client_id, dice)
    nameless = request.member_id == UNKNOWN and request.group_instance_id is None
    if nameless and context.version >= MEMBER_ID_REQUIRED_SINCE:
        return _joined(member_id, -1, "", ErrorCode.MEMBER_ID_REQUIRED)
    before = _find(draft, request, member_id)
    after = _updated(before, request, subscription, context)
    reason = subscribe(draft, before, after, topics)
    refresh(draft, reason, topics)
    member = settle(draft, member_id, owned_slots(subscription, topics.topics))
    draft.set_timer(JOIN, member_id, None)
    draft.set_timer(SESSION, member_id, request.session_timeout_ms)
    draft.set_timer(SYNC, member_id, member.rebalance_timeout_ms)
    draft.remember(Asked(draft.group.group_id, member_id, rejoin=False))
    return _joined(member_id, member.member_epoch, request.protocols[0].name)


def _joined(member_id: str, generation: int, protocol: str, code: ErrorCode = ErrorCode.NONE) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=protocol,
        leader="",  # nobody: the coordinator assigns
        member_id=member_id,
        members=(),
    )


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> Subscription:
    """A consumer with one assignor in common with all other classic members: they may be among themselves again."""
    if request.protocol_type != CONSUMER or not request.protocols:
        raise InconsistentGroupProtocol(f"group {group.group_id!r} is one of consumers")
    offered = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != request.member_id:
            offered &= {protocol.name for protocol in member.classic.supported_protocols}
    if not offered:
        raise InconsistentGroupProtocol(f"no assignor in common with the classic members of group {group.group_id!r}")
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except MalformedMessage as error:
        raise InconsistentGroupProtocol(f"the subscription cannot be read: {error}") from None


def _find(draft: Draft, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    group, instance_id = draft.group, request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if request.member_id != UNKNOWN:
        return group.identified(member_id, instance_id)
    holder = group.static_member(instance_id)
    return ConsumerMember(member_id=member_id) if holder is None else replace(draft, holder, member_id)


def _updated(
    member: ConsumerMember, request: JoinGroupRequest, subscription: Subscription, context: Context
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return msgspec.structs.replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex=None,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=one.name, metadata=bytes(one.metadata)) for one in request.protocols
            ),
        ),
    )


# -- sync and heartbeat ------------------------------------------------------------------------------------------------


def sync(draft: Draft, request: SyncGroupRequest, topics: TopicAnswers, asked: bool) -> SyncGroupResponse:
    member, classic = _classic_member(draft.group, request)
    protocol = classic.supported_protocols[0]
    wrong_type = request.protocol_type not in (None, CONSUMER)
    if wrong_type or request.protocol_name not in (None, protocol.name):
        raise InconsistentGroupProtocol(f"{request.protocol_type}/{request.protocol_name} is not what it joined with")
    if draft.group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _ask_to_rejoin(draft, member, asked)
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    draft.set_timer(SYNC, member.member_id, None)
    draft.set_timer(SESSION, member.member_id, classic.session_timeout_ms)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, topics.topics, bytes(protocol.metadata)),
    )


def heartbeat(draft: Draft, request: HeartbeatRequest, asked: bool) -> ErrorCode:
    """A member must rejoin if the group moved on, if it has to give something up, or if what it waits for is free."""
    member, classic = _classic_member(draft.group, request)
    draft.set_timer(SESSION, member.member_id, classic.session_timeout_ms)
    free = member.state is MemberState.UNRELEASED_PARTITIONS and not waits_for_others(draft.group, member)
    if member.member_epoch >= draft.group.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS and not free:
        return ErrorCode.NONE
    _ask_to_rejoin(draft, member, asked)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _ask_to_rejoin(draft: Draft, member: ConsumerMember, asked: bool) -> None:
    """Its time runs from the first time on, however often it is told."""
    if not asked:
        draft.set_timer(JOIN, member.member_id, member.rebalance_timeout_ms)
        draft.remember(Asked(draft.group.group_id, member.member_id, rejoin=True))


def _classic_member(
    group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = group.identified(request.member_id, request.group_instance_id)
    if member.classic is None:
        raise UnknownMemberId(group.group_id, request.member_id)
    if request.generation_id != member.member_epoch:
        raise IllegalGeneration(member.member_id, member.member_epoch, request.generation_id)
    return member, member.classic


# -- leave -------------------------------------------------------------------------------------------------------------


def leavers(
    group: ConsumerGroup, request: LeaveGroupRequest, version: int
) -> tuple[list[tuple[ConsumerMember, str]], tuple[MemberResponse, ...]]:
    """Who leaves with which reason, and what to answer for each that was named."""
    named = request.members if version >= MANY_LEAVE_SINCE else (MemberIdentity(member_id=request.member_id),)
    leaving: dict[str, tuple[ConsumerMember, str]] = {}
    answers = []
    for one in named:
        code, member_id = ErrorCode.NONE, one.member_id
        try:
            member = _leaver(group, one)
            member_id = member.member_id
            leaving[member_id] = member, one.reason or "no reason given"
        except KafkaError as error:
            code = error.code
        answers.append(MemberResponse(member_id=member_id, group_instance_id=one.group_instance_id, error_code=code))
    return list(leaving.values()), tuple(answers)


def _leaver(group: ConsumerGroup, one: MemberIdentity) -> ConsumerMember:
    instance_id = one.group_instance_id
    member_id = one.member_id
    if member_id == UNKNOWN and instance_id is not None:
        # An administrator removes a static member, not knowing its id.
        member_id = group.static_members.get(instance_id, UNKNOWN)
    member = group.identified(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(group.group_id, member_id)
    return member
