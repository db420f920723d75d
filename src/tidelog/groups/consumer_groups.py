"""All consumer groups (KIP-848) of one shard: requests, timers and records find their group here.

Pure as the rest of the room: a request is decided on a draft, and what it decided comes back as an outcome.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidelog.coordination import Outcome, Timer, TimerKey
from tidelog.errors import KafkaError
from tidelog.groups import classic_join, consumer_classic, consumer_describe
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.classic_step import Step
from tidelog.groups.consumer_errors import UnknownMemberId
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_heartbeat import (
    ConsumerGroupSettings,
    is_leaving,
    leave_for_a_moment,
    stay,
    validate,
)
from tidelog.groups.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, MemberState
from tidelog.groups.consumer_migration import downgrade, must_downgrade, upgrade, upgraded
from tidelog.groups.consumer_rebalance import JOIN, REBALANCE, SESSION, SYNC, Asked, Draft, remove
from tidelog.groups.consumer_topics import TopicAnswers, Topics, TopicTable
from tidelog.groups.group import Context, Dice, GroupSettings
from tidelog.groups.history import EventKind
from tidelog.groups.records import ConsumerGroupMetadataKey, GroupRecord
from tidelog.groups.refusals import refuse
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)
from tidelog.wire.schema import Message

Decision = Outcome[Any, GroupRecord]

LEFT_BY_ITSELF: Final = "left by itself (member epoch -1): closed, unsubscribed or stopped polling"
"""This protocol has no field for a reason."""

EVICTIONS: Final = MappingProxyType(
    {
        SESSION: "no heartbeat within its session timeout",
        REBALANCE: "did not give up its partitions within its rebalance timeout (max.poll.interval.ms)",
        JOIN: "did not rejoin within its rebalance timeout (max.poll.interval.ms)",
        SYNC: "joined but did not sync within its rebalance timeout",
    }
)


class ConsumerGroups:
    def __init__(
        self, settings: ConsumerGroupSettings, classic: GroupSettings, dice: Dice, topics: Topics | None = None
    ) -> None:
        self._settings = settings
        self._settings_of: Mapping[str, ConsumerGroupSettings] = MappingProxyType({})
        self._classic_settings = classic
        self._dice = dice
        self._topics = TopicAnswers(topics or TopicTable())
        self._groups: dict[str, ConsumerGroup] = {}
        self._members = 0
        """Of all groups."""
        self._handlers: MappingProxyType[type[Message], Callable[..., Decision]] = MappingProxyType(
            {
                ConsumerGroupHeartbeatRequest: self._heartbeat,
                ConsumerGroupDescribeRequest: self._describe,
                JoinGroupRequest: self._classic_join,
                SyncGroupRequest: self._classic_sync,
                HeartbeatRequest: self._classic_heartbeat,
                LeaveGroupRequest: self._classic_leave,
            }
        )
        self._asked_to_rejoin: set[tuple[str, str]] = set()

    def topics_changed(self, topics: Topics) -> None:
        """Each group notices on its members' next heartbeat whether that concerns it."""
        self._topics = TopicAnswers(topics)

    def settings_changed(self, settings_of: Mapping[str, ConsumerGroupSettings]) -> None:
        """Of groups that have settings of their own. Members are told with their next heartbeat."""
        self._settings_of = settings_of

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def topic_id(self, name: str) -> TopicId:
        topic = self._topics.topics.find(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id

    def all(self) -> Iterable[ConsumerGroup]:
        return self._groups.values()

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, request: Message, context: Context, now_ms: int, classic: ClassicGroup | None = None) -> Decision:
        try:
            return self._handlers[type(request)](request, context, now_ms, classic)
        except KafkaError as error:
            refusal = refuse(request, error.code, context.version)
            if isinstance(refusal, ConsumerGroupHeartbeatResponse):
                refusal = msgspec.structs.replace(refusal, error_message=str(error))
            return Outcome(refusal)

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: Context, now_ms: int, classic: ClassicGroup | None
    ) -> Decision:
        validate(request, context.version)
        if is_leaving(request):
            return self._leave(request, now_ms)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                # Its group is gone, and so is it: that it is told so makes it join again.
                raise UnknownMemberId(request.group_id, request.member_id)
            group = ConsumerGroup(request.group_id)
        draft = Draft(group, now_ms)
        if classic is not None:
            draft = upgrade(classic, self._settings, self._topics, now_ms)
        member_id = request.member_id or f"{self._dice.getrandbits(128):032x}"
        settings = self._settings_of.get(request.group_id, self._settings)
        response = stay(draft, request, member_id, context, settings, self._topics, self._members)
        outcome = draft.outcome(response)
        return outcome if classic is None else upgraded(classic, outcome)

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            raise UnknownMemberId(request.group_id, request.member_id)
        member = group.identified(request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )
        draft = Draft(group, now_ms)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            leave_for_a_moment(draft, member)
            return draft.outcome(response)
        remove(draft, [(member, LEFT_BY_ITSELF)], self._topics, EventKind.LEFT)
        return self._removed(group, draft, response)

    def _removed(self, group: ConsumerGroup, draft: Draft, response: Message | None) -> Decision:
        if must_downgrade(draft.group, self._settings, self._classic_settings):
            return downgrade(group, draft, self._classic_settings, self._topics.topics, response)
        return draft.outcome(response)

    def _describe(self, request: ConsumerGroupDescribeRequest, *_: object) -> Decision:
        described = []
        for group_id in request.group_ids:
            group = self._groups.get(group_id)
            if group is None:
                described.append(consumer_describe.not_found(group_id))
            else:
                described.append(consumer_describe.describe(group, self._topics.topics))
        return Outcome(ConsumerGroupDescribeResponse(groups=tuple(described)))

    # -- members that still speak the classic protocol ----------------------------------------------------------------

    def _classic_join(self, request: JoinGroupRequest, context: Context, now_ms: int, _: object) -> Decision:
        group = self._groups[request.group_id]
        if group.is_empty:
            return self._start_over_as_classic(group, request, context, now_ms)
        draft = Draft(group, now_ms)
        response = consumer_classic.join(draft, request, context, self._settings, self._topics, self._dice)
        if must_downgrade(draft.group, self._settings, self._classic_settings):
            # A static member came back as a classic one in place of the last that was not.
            return downgrade(group, draft, self._classic_settings, self._topics.topics, response, at_rest=True)
        return draft.outcome(response)

    def _start_over_as_classic(
        self, group: ConsumerGroup, request: JoinGroupRequest, context: Context, now_ms: int
    ) -> Decision:
        """Nobody is left of the consumer group: the first to come decides which protocol it has now."""
        if request.member_id != consumer_classic.UNKNOWN:
            raise UnknownMemberId(group.group_id, request.member_id)
        step = Step(ClassicGroup(group_id=group.group_id), self._classic_settings, now_ms)
        outcome = classic_join.join(step, request, context, self._dice)
        return msgspec.structs.replace(outcome, records=(*group.tombstones(), *outcome.records))

    def _classic_sync(self, request: SyncGroupRequest, context: Context, now_ms: int, _: object) -> Decision:
        draft = Draft(self._groups[request.group_id], now_ms)
        return draft.outcome(consumer_classic.sync(draft, request, self._topics, self._was_asked(request)))

    def _classic_heartbeat(self, request: HeartbeatRequest, context: Context, now_ms: int, _: object) -> Decision:
        draft = Draft(self._groups[request.group_id], now_ms)
        code = consumer_classic.heartbeat(draft, request, self._was_asked(request))
        return draft.outcome(HeartbeatResponse(error_code=code))

    def _was_asked(self, request: SyncGroupRequest | HeartbeatRequest) -> bool:
        return (request.group_id, request.member_id) in self._asked_to_rejoin

    def _classic_leave(self, request: LeaveGroupRequest, context: Context, now_ms: int, _: object) -> Decision:
        group = self._groups[request.group_id]
        leaving, answers = consumer_classic.leavers(group, request, context.version)
        if context.version < consumer_classic.MANY_LEAVE_SINCE:
            response = LeaveGroupResponse(error_code=answers[0].error_code)
        else:
            response = LeaveGroupResponse(members=answers)
        draft = Draft(group, now_ms)
        if leaving:
            remove(draft, leaving, self._topics, EventKind.LEFT)
        return self._removed(group, draft, response)

    # -- timers -------------------------------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, GroupRecord]:
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return Outcome()
        if kind == REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return Outcome()
        draft = Draft(group, now_ms)
        remove(draft, [(member, EVICTIONS[kind])], self._topics, EventKind.EVICTED)
        return self._removed(group, draft, None)

    def on_loaded(self, now_ms: int) -> Outcome[None, GroupRecord]:
        """Nobody knows when members were last heard of: each gets a whole session from now."""
        timers: list[Timer] = []
        for group in self._groups.values():
            draft = Draft(group, now_ms)
            for member in group.members.values():
                settings = self._settings_of.get(group.group_id, self._settings)
                session_ms = settings.group_consumer_session_timeout_ms
                if member.classic is not None:
                    session_ms = member.classic.session_timeout_ms
                draft.set_timer(SESSION, member.member_id, session_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    draft.set_timer(REBALANCE, member.member_id, member.rebalance_timeout_ms)
            timers += draft.outcome().timers
        return Outcome(timers=tuple(timers))

    # -- the log ------------------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group = self._groups.get(group_id)
        if record.value is None:
            if group is None:
                return  # the tombstone outlived what it deletes
            if isinstance(record.key, ConsumerGroupMetadataKey):
                self._members -= len(group.members)
                del self._groups[group_id]
                return
        elif group is None:
            group = self._groups[group_id] = ConsumerGroup(group_id)
        before = len(group.members)
        group.replay(record)
        self._members += len(group.members) - before

    def remember(self, item: Any) -> None:
        if isinstance(item, Asked):
            change = self._asked_to_rejoin.add if item.rejoin else self._asked_to_rejoin.discard
            change((item.group_id, item.member_id))
