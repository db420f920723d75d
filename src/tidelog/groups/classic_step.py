"""One decision about one classic group while it is being made: the value the group will have, and all else that will
happen. It ends as an Outcome; until then nothing outside has changed."""

from typing import Any, Final

import msgspec

from tidelog.coordination import Completion, Outcome, Timer, TimerKey
from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import NO_GENERATION, ClassicGroup, Member
from tidelog.groups.group import GroupSettings
from tidelog.groups.history import EventKind, GroupEvent
from tidelog.groups.records import GroupRecord
from tidelog.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

SESSION: Final = "session"
JOIN: Final = "join"
SYNC: Final = "sync"
TIMERS: Final = frozenset({SESSION, JOIN, SYNC})

UNKNOWN: Final = ""
"""The member id of somebody who has none yet."""

NULLABLE_PROTOCOL_SINCE: Final = 7

REASON_MAX: Final = 255
"""Clients send reasons of any length; Kafka's cut theirs here."""


class Forget(msgspec.Struct, frozen=True):
    """In an outcome's memory: nothing is left of this group."""

    group_id: str


class Step:
    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: int) -> None:
        self.group = group
        self.settings = settings
        self.now_ms = now_ms
        self.records: list[GroupRecord] = []
        self._timers: dict[TimerKey, int | None] = {}
        self._completions: list[Completion] = []
        self._events: list[GroupEvent] = []

    def outcome(self, response: Any = None) -> Outcome[Any, GroupRecord]:
        held = Forget(self.group.group_id) if self.group.is_forgettable else self.group
        return Outcome(
            response,
            records=tuple(self.records),
            timers=tuple(Timer(key, after_ms) for key, after_ms in self._timers.items()),
            completions=tuple(self._completions),
            memory=(held, *self._events),
        )

    # -- timers -------------------------------------------------------------------------------------------------------

    def expect(self, member: Member, within_ms: int | None = None) -> None:
        """The member has this long, by default its session, to be heard of again."""
        self.expect_id(member.member_id, member.session_timeout_ms if within_ms is None else within_ms)

    def expect_id(self, member_id: str, within_ms: int | None) -> None:
        self._timers[SESSION, self.group.group_id, member_id] = within_ms

    def set_timer(self, word: str, after_ms: int | None) -> None:
        self._timers[word, self.group.group_id] = after_ms

    # -- answers to those who wait ------------------------------------------------------------------------------------

    def complete_join(self, member: Member, response: JoinGroupResponse) -> None:
        if member.join_waiter is not None:
            self._completions.append(Completion(member.join_waiter, response))

    def complete_sync(self, member: Member, response: SyncGroupResponse) -> None:
        if member.sync_waiter is not None:
            self._completions.append(Completion(member.sync_waiter, response))

    def refuse_waiting(self, member: Member, code: ErrorCode, member_id: str = UNKNOWN) -> None:
        """The member loses its place, or its request was overtaken by another: whatever it waits for ends here."""
        self.complete_join(member, join_error(code, member_id, member.join_version))
        self.complete_sync(member, SyncGroupResponse(error_code=code, assignment=b""))

    # -- history ------------------------------------------------------------------------------------------------------

    def note(self, kind: EventKind, member: Member | None = None, reason: str = "", **facts: int) -> None:
        self._events.append(
            GroupEvent(
                group_id=self.group.group_id,
                at_ms=self.now_ms,
                kind=kind,
                generation=self.group.generation,
                member_id="" if member is None else member.member_id,
                client_id="" if member is None else member.client_id,
                reason=reason[:REASON_MAX],
                members=len(self.group.members),
                **facts,
            )
        )


def session_timer(group: ClassicGroup, member_id: str) -> Timer:
    """The member was heard of: it has a whole session until it must be again."""
    return Timer((SESSION, group.group_id, member_id), group.members[member_id].session_timeout_ms)


def join_error(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None if version >= NULLABLE_PROTOCOL_SINCE else "",
        leader="",
        member_id=member_id,
        members=(),
    )


def joined(group: ClassicGroup, member_id: str, *, leader: str | None = None, skip: bool = False) -> JoinGroupResponse:
    """What a member learns about the generation it is part of; the leader learns about everybody."""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if group.leader == member_id and leader is None:
        members = tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in group.members.values()
        )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=leader or group.leader or "",
        skip_assignment=skip,
        member_id=member_id,
        members=members,
    )
