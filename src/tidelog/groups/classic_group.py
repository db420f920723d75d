"""A group of the classic protocol as a value: its state, its generation, its members.

    Empty --join--> PreparingRebalance --all joined--> CompletingRebalance --leader's assignment--> Stable
                       ^      |                               |                                       |
                       |      +--all left--> Empty            |                                       |
                       +-------a member joins, leaves, dies or changes its mind-----------------------+

What the log holds of it is one GroupMetadata record, written when a leader's assignment arrives and when the last
member is gone; a group in the middle of a rebalance that loses its coordinator is found as it was before, and its
members join again.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.errors import ErrorCode, InvariantViolated
from tidelog.groups.embedded import CONSUMER, assigned_partitions, subscribed_topics
from tidelog.groups.group import GroupType, Slots
from tidelog.groups.records import GroupMetadataKey, GroupMetadataValue, GroupRecord, MemberMetadata
from tidelog.ids import TopicPartition

NO_GENERATION: Final = -1


class State(Enum):
    """Kafka's words, as clients and tools see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"  # what a group that does not exist is called


class Change(Enum):
    REBALANCE = "members have to join again"
    ALL_JOINED = "everybody who counts has joined"
    ALL_LEFT = "nobody is left to join"
    ASSIGNED = "the leader said who gets what"


NEXT: Final[Mapping[tuple[State, Change], State]] = MappingProxyType(
    {
        (State.EMPTY, Change.REBALANCE): State.PREPARING_REBALANCE,
        (State.STABLE, Change.REBALANCE): State.PREPARING_REBALANCE,
        (State.COMPLETING_REBALANCE, Change.REBALANCE): State.PREPARING_REBALANCE,
        (State.PREPARING_REBALANCE, Change.ALL_JOINED): State.COMPLETING_REBALANCE,
        (State.PREPARING_REBALANCE, Change.ALL_LEFT): State.EMPTY,
        (State.COMPLETING_REBALANCE, Change.ASSIGNED): State.STABLE,
    }
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the one it likes best first. Only the group's choice is in the log."""
    assignment: bytes = b""

    # In memory only:
    join_waiter: int | None = None
    join_version: int = 0
    sync_waiter: int | None = None
    is_new: bool = False
    """Has never been answered, so it cannot heartbeat yet."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_waiting(self) -> bool:
        """For the others: it may not be evicted for silence, since it cannot speak."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)


class InitialDelay(msgspec.Struct, frozen=True):
    """A group that was empty gives others time to arrive, longer if somebody does, but not for ever."""

    delay_ms: int
    remaining_ms: int
    extended: bool = False


class ClassicGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    state: State = State.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = {}
    static: dict[str, str] = {}
    """Member ids by group.instance.id."""
    subscribed: frozenset[str] | None = None
    """Topics of all members; None if that is unknown."""
    is_stored: bool = False
    """There is a record of it in the log."""

    # In memory only:
    pending_members: frozenset[str] = frozenset()
    """Were given an id and told to join with it."""
    pending_sync: frozenset[str] = frozenset()
    initial: InitialDelay | None = None
    stopped_since_ms: int = -1
    owners: Mapping[TopicPartition, str] | None = None
    """Who owned what before the rebalance that is going on."""

    # -- the Group protocol -------------------------------------------------------------------------------------------

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, slots: Slots, *, transactional: bool, version: int
    ) -> ErrorCode:
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # a consumer that assigns partitions itself, or an administrator
        if epoch >= 0 or member_id or instance_id is not None:
            if code := self.check_member(member_id, instance_id):
                return code
            if epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID  # would overwrite what live members commit
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        """Of a live group only offsets of topics nobody reads may go, and only consumers say what they read."""
        return ErrorCode.NONE if self.is_empty or self.uses_consumer_protocol else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def expires_since(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_since_ms < 0 else self.state_since_ms
        if self.state is State.STABLE and self.uses_consumer_protocol and self.subscribed is not None:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> tuple[GroupRecord, ...]:
        return (GroupRecord(GroupMetadataKey(group=self.group_id), None),) if self.is_stored else ()

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.join_waiter is not None for member in self.members.values())

    @property
    def is_forgettable(self) -> bool:
        """Nothing of it is left, neither in the log nor in anybody's hands."""
        return self.is_empty and not (self.is_stored or self.members or self.pending_members)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def candidates(self) -> frozenset[str]:
        """Protocols that every member knows."""
        sets = [{name for name, _ in member.protocols} for member in self.members.values()]
        return frozenset(set.intersection(*sets)) if sets else frozenset()

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and not self.candidates().isdisjoint(name for name, _ in protocols)

    def elect_protocol(self) -> str:
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def current_owners(self) -> Mapping[TopicPartition, str] | None:
        """By partition, under a name that survives a restart of a static member. None for what is not a consumer's."""
        if not self.uses_consumer_protocol:
            return None
        owners: dict[TopicPartition, str] = {}
        for member in self.members.values():
            for partition in assigned_partitions(member.assignment) or ():
                owners[partition] = member.instance_id or member.member_id
        return owners

    # -- changes: each returns a new value ----------------------------------------------------------------------------

    def after(self, change: Change, now_ms: int) -> "ClassicGroup":
        target = NEXT.get((self.state, change))
        if target is None:
            raise InvariantViolated(f"group {self.group_id} is {self.state.value} when {change.value}")
        return self.with_(state=target, state_since_ms=now_ms)

    def with_(self, **changes: object) -> "ClassicGroup":
        return msgspec.structs.replace(self, **changes)

    def with_member(self, member: Member) -> "ClassicGroup":
        """Adds or replaces a member."""
        static = self.static
        if member.instance_id is not None and static.get(member.instance_id) != member.member_id:
            static = {**static, member.instance_id: member.member_id}
        return self.with_(
            members={**self.members, member.member_id: member},
            static=static,
            leader=self.leader or member.member_id,
            pending_members=self.pending_members - {member.member_id},
        )

    def without(self, member_id: str) -> "ClassicGroup":
        member = self.members.get(member_id)
        members = {other: self.members[other] for other in self.members if other != member_id}
        static = self.static
        if member is not None and member.instance_id is not None and static.get(member.instance_id) == member_id:
            static = {name: other for name, other in static.items() if other != member_id}
        leader = self.leader if self.leader != member_id else next(iter(members), None)
        return self.with_(
            members=members,
            static=static,
            leader=leader,
            pending_members=self.pending_members - {member_id},
            pending_sync=self.pending_sync - {member_id},
        )

    def with_subscriptions(self) -> "ClassicGroup":
        """Looks up which topics the members read, as their metadata for the chosen protocol says."""
        if not self.uses_consumer_protocol or (self.members and self.protocol is None):
            return self.with_(subscribed=None)
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata(self.protocol))
            if of_member is None:
                return self.with_(subscribed=None)
            topics |= of_member
        return self.with_(subscribed=frozenset(topics))

    # -- the log ------------------------------------------------------------------------------------------------------

    def record(self) -> GroupRecord:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        members = {
            each.member_id: Member(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
                session_timeout_ms=each.session_timeout,
                protocols=((value.protocol or "", bytes(each.subscription)),),
                assignment=bytes(each.assignment),
            )
            for each in value.members
        }
        return cls(
            group_id=group_id,
            state=State.STABLE if members else State.EMPTY,
            state_since_ms=value.current_state_timestamp,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol=value.protocol,
            leader=value.leader,
            members=members,
            static={m.instance_id: m.member_id for m in members.values() if m.instance_id is not None},
            is_stored=True,
        ).with_subscriptions()
