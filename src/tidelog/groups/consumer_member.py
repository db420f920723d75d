"""A member of a consumer group (KIP-848): who it is, what it subscribes to, and how far it got towards its target."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.groups.assignors import NOTHING, Assignment
from tidelog.groups.records import ClassicMemberMetadata
from tidelog.ids import TopicId
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatTopicPartitions

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2  # gone for now; its place is kept until the session times out

NEVER: Final = 2**31

Slot = tuple[TopicId, int]


class MemberState(IntEnum):
    """As stored in a CurrentMemberAssignment record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # must give up some before it may have more
    UNRELEASED_PARTITIONS = 2  # waits for others to give theirs up


class ConsumerMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None  # while it still speaks JoinGroup and SyncGroup

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING  # Kafka's PartitionsPendingRevocation
    assignment_epochs: Mapping[Slot, int] = MappingProxyType({})
    """Of everything above: the member epoch since which the member has had it without a break."""

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def had_since(self, slot: Slot, epoch: int) -> bool:
        """Whether the partition was this member's in `epoch` and has been ever since."""
        return epoch >= self.assignment_epochs.get(slot, NEVER)

    def slots(self) -> Iterator[Slot]:
        """Every partition this member may still be reading: what it has and what it is giving up."""
        for held in (self.assigned, self.revoking):
            yield from slots_of(held)


def slots_of(assignment: Assignment) -> Iterator[Slot]:
    return ((topic_id, partition) for topic_id, numbers in assignment.items() for partition in numbers)


def assignment_of(slots: Iterable[Slot]) -> Assignment:
    by_topic: dict[TopicId, set[int]] = {}
    for topic_id, partition in slots:
        by_topic.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}


def from_wire(topics: Iterable[ConsumerGroupHeartbeatTopicPartitions] | None) -> frozenset[Slot] | None:
    """`None` means that the member says nothing about what it owns: nothing changed since it last did."""
    if topics is None:
        return None
    return frozenset((topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def to_wire(assignment: Mapping[TopicId, frozenset[int]]) -> tuple[ConsumerGroupHeartbeatTopicPartitions, ...]:
    return tuple(
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(assignment.items())
    )
