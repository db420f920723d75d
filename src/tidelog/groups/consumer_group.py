"""The state of one consumer group (KIP-848), and the only code that changes it: `replay`.

Three epochs say how far a group is. `epoch` moves when members, subscriptions or topics change; `target_epoch` follows
when a target for them was computed; each member's own epoch follows when it has given up what its target lacks.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidelog.errors import ErrorCode
from tidelog.groups import consumer_records
from tidelog.groups.assignors import NOTHING, Assignment
from tidelog.groups.consumer_errors import FencedInstanceId, UnknownInstanceId, UnknownMemberId
from tidelog.groups.consumer_member import ConsumerMember, MemberState, Slot, slots_of
from tidelog.groups.consumer_records import read_assignment, read_assignment_epochs, read_classic, read_state
from tidelog.groups.embedded import CONSUMER
from tidelog.groups.group import GroupType, Slots
from tidelog.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from tidelog.wire.schema import Message

MEMBER_EPOCH_COMMIT_VERSION: Final = 9  # the first OffsetCommit made for members with epochs


class GroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target is older than the group
    RECONCILING = "Reconciling"  # a member is on its way to the target
    STABLE = "Stable"


class ConsumerGroup:
    """Everything but `replay`, `_put` and `_drop` only reads."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        """Of the subscribed topics and their partition counts at `epoch`."""
        self.target_epoch = 0
        self.targets: dict[str, Assignment] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.holders: dict[Slot, str] = {}
        """Who may be reading a partition: it has it, or was asked to give it up and did not say yet that it has."""

    def copy(self) -> "ConsumerGroup":
        """Shares no container with this one; members and assignments are values."""
        twin = ConsumerGroup(self.group_id)
        twin.epoch, twin.metadata_hash, twin.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        twin.targets, twin.members = self.targets.copy(), self.members.copy()
        twin.static_members, twin.regexes = self.static_members.copy(), self.regexes.copy()
        twin.holders = self.holders.copy()
        return twin

    # -- the Group protocol -------------------------------------------------------------------------------------------

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str | None:
        return CONSUMER

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, slots: Slots, *, transactional: bool, version: int
    ) -> ErrorCode:
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # a consumer that assigns partitions itself, or an administrator
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not transactional and version < MEMBER_EPOCH_COMMIT_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION  # older versions know no STALE_MEMBER_EPOCH
        if member.classic is None and 0 <= epoch < member.member_epoch:
            # The answer that carried its new epoch is still on its way. What it had then and has now is its own.
            own = all(member.had_since(slot, epoch) for slot in slots())
            return ErrorCode.NONE if own else ErrorCode.STALE_MEMBER_EPOCH
        return _check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if not member_id and epoch < 0:
            return ErrorCode.NONE  # an administrator, or a version that names no member
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, epoch)

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics()

    def expires_since(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """In an order in which every prefix is still a group."""
        records: list[GroupRecord] = []
        for member_id in sorted(self.members):
            records.append(consumer_records.current_removed(self.group_id, member_id))
            records.append(consumer_records.target_removed(self.group_id, member_id))
            records.append(consumer_records.member_removed(self.group_id, member_id))
        records.extend(consumer_records.regex_removed(self.group_id, pattern) for pattern in sorted(self.regexes))
        records.append(consumer_records.target_epoch_removed(self.group_id))
        records.append(consumer_records.group_removed(self.group_id))
        return tuple(records)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(self.group_id, member_id)
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def identified(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that a request names by both, which must agree."""
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise UnknownInstanceId(self.group_id, instance_id)
        if member.member_id != member_id:
            raise FencedInstanceId(instance_id, member.member_id)
        return member

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | self.regexes.get(member.subscribed_topic_regex, frozenset())

    def subscribed_topics(self) -> frozenset[str]:
        """The topics at least one member subscribes to, by name or by pattern."""
        return frozenset().union(*{self.topics_of(member) for member in self.members.values()})

    def classic_members(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    # -- the one writer -----------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        _REPLAYERS[type(record.key)](self, record.key, record.value)

    def _metadata(self, _: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _member_metadata(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self._drop(key.member_id)
            return
        old = self.members.get(key.member_id) or ConsumerMember(member_id=key.member_id)
        self._put(
            msgspec.structs.replace(
                old,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                subscribed_topic_names=frozenset(value.subscribed_topic_names),
                subscribed_topic_regex=value.subscribed_topic_regex,
                server_assignor=value.server_assignor,
                classic=read_classic(value.classic_member_metadata),
            )
        )

    def _target_metadata(
        self,
        _: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.target_epoch = 0 if value is None else value.assignment_epoch

    def _target_member(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = read_assignment(value.topic_partitions)

    def _current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        old = self.members.get(key.member_id)
        if value is None:
            if old is not None:
                nothing = ConsumerMember(member_id=key.member_id)
                self._put(_with_progress(old, nothing))
            return
        progress = ConsumerMember(
            member_id=key.member_id,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=read_state(value.state),
            assigned=read_assignment(value.assigned_partitions),
            revoking=read_assignment(value.partitions_pending_revocation),
            assignment_epochs=read_assignment_epochs(value),
        )
        self._put(progress if old is None else _with_progress(old, progress))

    def _regex(self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = frozenset(value.topics)

    def _partition_metadata(self, _: ConsumerGroupPartitionMetadataKey, __: Message | None) -> None:
        """Written by older versions of Kafka only; the metadata hash replaced it."""

    def _put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for slot in member.slots():
            self.holders[slot] = member.member_id

    def _drop(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for slot in member.slots():
            if self.holders.get(slot) == member.member_id:
                del self.holders[slot]


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _with_progress(member: ConsumerMember, progress: ConsumerMember) -> ConsumerMember:
    return msgspec.structs.replace(
        member,
        member_epoch=progress.member_epoch,
        previous_member_epoch=progress.previous_member_epoch,
        state=progress.state,
        assigned=progress.assigned,
        revoking=progress.revoking,
        assignment_epochs=progress.assignment_epochs,
    )


_REPLAYERS: Final[Mapping[type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = MappingProxyType(
    {
        ConsumerGroupMetadataKey: ConsumerGroup._metadata,
        ConsumerGroupPartitionMetadataKey: ConsumerGroup._partition_metadata,
        ConsumerGroupMemberMetadataKey: ConsumerGroup._member_metadata,
        ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._target_metadata,
        ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._target_member,
        ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._current,
        ConsumerGroupRegularExpressionKey: ConsumerGroup._regex,
    }
)
CONSUMER_RECORD_KEYS: Final = frozenset(_REPLAYERS)


def waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something of the member's target is still held by somebody else."""
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    held = set(slots_of(member.assigned))
    return any(
        slot not in held and group.holders.get(slot) not in (None, member.member_id)
        for slot in slots_of(group.target(member.member_id))
    )
