"""All consumer groups (KIP-848) of one shard: requests, timers and records find their group here.

Pure as the rest of the room: a request is decided on a draft, and what it decided comes back as an outcome.
"""

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidelog.coordination import Outcome, Timer, TimerKey
from tidelog.errors import KafkaError
from tidelog.groups import consumer_describe
from tidelog.groups.classic_group import ClassicGroup
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
from tidelog.groups.consumer_rebalance import JOIN, REBALANCE, SESSION, SYNC, Draft, remove
from tidelog.groups.consumer_topics import TopicAnswers, Topics, TopicTable
from tidelog.groups.group import Context, Dice, GroupSettings
from tidelog.groups.history import EventKind
from tidelog.groups.records import ConsumerGroupMetadataKey, GroupRecord
from tidelog.groups.refusals import refuse
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.schema import Message

Decision = Outcome[Any, GroupRecord]

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
        self._classic_settings = classic
        self._dice = dice
        self._topics = TopicAnswers(topics or TopicTable())
        self._groups: dict[str, ConsumerGroup] = {}
        self._handlers: MappingProxyType[type[Message], Callable[..., Decision]] = MappingProxyType(
            {
                ConsumerGroupHeartbeatRequest: self._heartbeat,
                ConsumerGroupDescribeRequest: self._describe,
            }
        )

    def topics_changed(self, topics: Topics) -> None:
        """Each group notices on its members' next heartbeat whether that concerns it."""
        self._topics = TopicAnswers(topics)

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

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
        member_id = request.member_id or f"{self._dice.getrandbits(128):032x}"
        return draft.outcome(stay(draft, request, member_id, context, self._settings, self._topics))

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            raise UnknownMemberId(request.group_id, request.member_id)
        member = group.identified(request.member_id, request.instance_id)
        draft = Draft(group, now_ms)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            leave_for_a_moment(draft, member)
        else:
            remove(draft, [member], self._topics, EventKind.LEFT)
        return draft.outcome(
            ConsumerGroupHeartbeatResponse(
                member_id=member.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
            )
        )

    def _describe(self, request: ConsumerGroupDescribeRequest, *_: object) -> Decision:
        described = []
        for group_id in request.group_ids:
            group = self._groups.get(group_id)
            if group is None:
                described.append(consumer_describe.not_found(group_id))
            else:
                described.append(consumer_describe.describe(group, self._topics.topics))
        return Outcome(ConsumerGroupDescribeResponse(groups=tuple(described)))

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
        remove(draft, [member], self._topics, EventKind.EVICTED, EVICTIONS[kind])
        return draft.outcome()

    def on_loaded(self, now_ms: int) -> Outcome[None, GroupRecord]:
        """Nobody knows when members were last heard of: each gets a whole session from now."""
        timers: list[Timer] = []
        for group in self._groups.values():
            draft = Draft(group, now_ms)
            for member in group.members.values():
                session_ms = self._settings.group_consumer_session_timeout_ms
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
                del self._groups[group_id]
                return
        elif group is None:
            group = self._groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)

    def remember(self, item: Any) -> None:
        """Nothing of a consumer group is kept in memory only."""
