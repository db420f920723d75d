"""ConsumerGroupHeartbeat, versions 0 and 1: a member joins, stays or leaves, and learns its assignment.

| member epoch | meaning |
|---|---|
| 0 | joins, or starts over after it was fenced; owns nothing |
| > 0 | is alive; must be the epoch the coordinator knows, or the one before if an answer was lost |
| -1 | leaves |
| -2 | a static member leaves for a moment: its partitions wait for it until its session times out |

Version 1 adds patterns and leaves the choice of the member id to the client. An empty pattern is no pattern: librdkafka
always sends one.
"""

from typing import Final

import msgspec

from tidelog.errors import InvalidRequest
from tidelog.groups import consumer_records
from tidelog.groups.assignors import ASSIGNORS
from tidelog.groups.consumer_errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Slot,
    from_wire,
    slots_of,
    to_wire,
)
from tidelog.groups.consumer_rebalance import SESSION, Draft, refresh, replace, settle, subscribe
from tidelog.groups.consumer_topics import TopicAnswers
from tidelog.groups.group import Context
from tidelog.wire.messages.groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENT_CHOOSES_MEMBER_ID: Final = 1

HURRY_MS: Final = 200
"""For a member on its way to its target: it, or who waits for it, sits idle until its next heartbeat."""
STEADY_MS_MIN: Final = 500
STEADY_MS_PER_MEMBER: Final = 20
"""A settled member learns of a change with its next heartbeat. So a small shard hears of each often, and balances again
within a second; a crowded one no oftener than the setting says."""


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's settings of the same names; the defaults are Kafka's."""

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_migration_policy: str = "bidirectional"  # or upgrade, downgrade, disabled


def validate(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    if not request.group_id:
        raise InvalidRequest("GroupId must not be empty")
    if request.instance_id == "" or request.rack_id == "":
        raise InvalidRequest("InstanceId and RackId must be null or not empty")
    epoch = request.member_epoch
    if not request.member_id and (version >= CLIENT_CHOOSES_MEMBER_ID or epoch != JOIN_EPOCH):
        raise InvalidRequest("MemberId must not be empty")
    if epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest(f"MemberEpoch {epoch} has no meaning")
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a member with an InstanceId can leave for a moment")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be given when joining")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when joining")
        # Empty ones are accepted: a member may be part of a group and read nothing yet.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest("SubscribedTopicNames or SubscribedTopicRegex must be given when joining")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise UnsupportedAssignor(request.server_assignor, tuple(ASSIGNORS))


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, settings: ConsumerGroupSettings) -> None:
    known = member_id in group.members or (instance_id is not None and instance_id in group.static_members)
    if not known and len(group.members) >= settings.group_consumer_max_size:
        raise GroupMaxSizeReached(group.group_id, settings.group_consumer_max_size)


def stay(
    draft: Draft,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    context: Context,
    settings: ConsumerGroupSettings,
    topics: TopicAnswers,
    members_here: int,
) -> ConsumerGroupHeartbeatResponse:
    """A member joins or says that it lives. Three steps, each only if needed: what it says about itself, the group's
    target, its own way towards it."""
    check_room(draft.group, member_id, request.instance_id, settings)
    owned = from_wire(request.topic_partitions)
    before = _find(draft, request, member_id, owned)
    after = _updated(before, request, context)
    reason = subscribe(draft, before, after, topics)
    refresh(draft, reason, topics)
    member = settle(draft, member_id, owned)
    draft.set_timer(SESSION, member_id, settings.group_consumer_session_timeout_ms)
    answer_lost = JOIN_EPOCH < request.member_epoch < before.member_epoch
    tell = answer_lost or _is_full(request) or member.assigned != before.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=_interval(member.is_reconciled(draft.group.target_epoch), settings, members_here),
        assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=to_wire(member.assigned)) if tell else None,
    )


def leave_for_a_moment(draft: Draft, member: ConsumerMember) -> None:
    """Its partitions stay with its name; what it was asked to give up it no longer has."""
    settled = MemberState.STABLE if member.state is MemberState.UNREVOKED_PARTITIONS else member.state
    gone = msgspec.structs.replace(member, member_epoch=STATIC_LEAVE_EPOCH, state=settled, revoking={})
    draft.write(consumer_records.current(draft.group.group_id, gone))


def _find(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: frozenset[Slot] | None
) -> ConsumerMember:
    """The member as the coordinator knows it, a blank one if it is new."""
    group, instance_id = draft.group, request.instance_id
    if request.member_epoch != JOIN_EPOCH:
        member = group.identified(member_id, instance_id)
        _check_epoch(member, request.member_epoch, owned)
        return member
    holder = None if instance_id is None else group.static_member(instance_id)
    if holder is None or holder.member_id == member_id:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if holder.member_epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
        raise UnreleasedInstanceId(holder.instance_id or "", holder.member_id)
    return replace(draft, holder, member_id)


def _check_epoch(member: ConsumerMember, epoch: int, owned: frozenset[Slot] | None) -> None:
    if epoch == member.member_epoch:
        return
    # One behind is forgiven if it owns nothing but what it was told it may: the last answer was lost on the way.
    forgiven = epoch == member.previous_member_epoch and owned is not None and owned <= set(slots_of(member.assigned))
    if epoch > member.member_epoch or not forgiven:
        raise FencedMemberEpoch(member.member_id, member.member_epoch, epoch)


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerMember:
    """Null and -1 mean "as before"."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return msgspec.structs.replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if pattern is None else pattern or None,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member that says everything about itself wants to hear everything about itself."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _interval(settled: bool, settings: ConsumerGroupSettings, members_here: int) -> int:
    """`group.consumer.heartbeat.interval.ms` at most."""
    wanted = max(STEADY_MS_MIN, members_here * STEADY_MS_PER_MEMBER) if settled else HURRY_MS
    return min(wanted, settings.group_consumer_heartbeat_interval_ms)
