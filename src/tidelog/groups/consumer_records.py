"""Consumer group values to records and back. Nothing is decided here."""

from collections.abc import Iterable

from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import ConsumerMember, MemberState, Slot
from tidelog.groups.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupRecord,
    TargetTopicPartitions,
)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def group_removed(group_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def member_metadata(group_id: str, member: ConsumerMember) -> GroupRecord:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def member_removed(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def target_epoch(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_epoch_removed(group_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target(group_id: str, member_id: str, assignment: Assignment) -> GroupRecord:
    topics = tuple(
        TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(assignment.items())
    )
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_removed(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def current(group_id: str, member: ConsumerMember) -> GroupRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        assigned_partitions=_current_topics(member, member.assigned),
        partitions_pending_revocation=_current_topics(member, member.revoking),
    )
    return GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def current_removed(group_id: str, member_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regex(group_id: str, pattern: str, topics: Iterable[str], version: int, now_ms: int) -> GroupRecord:
    value = ConsumerGroupRegularExpressionValue(topics=tuple(sorted(topics)), version=version, timestamp=now_ms)
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value)


def regex_removed(group_id: str, pattern: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def _current_topics(member: ConsumerMember, assignment: Assignment) -> tuple[CurrentTopicPartitions, ...]:
    epochs, now = member.assignment_epochs, max(member.member_epoch, 0)
    return tuple(
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(numbers)),
            assignment_epochs=tuple(epochs.get((topic_id, number), now) for number in sorted(numbers)),
        )
        for topic_id, numbers in sorted(assignment.items())
    )


def read_assignment(topics: Iterable[CurrentTopicPartitions | TargetTopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def read_assignment_epochs(value: ConsumerGroupCurrentMemberAssignmentValue) -> dict[Slot, int]:
    """Where a record says nothing, as older versions wrote it: since its own epoch, which is the least it can mean."""
    found: dict[Slot, int] = {}
    for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = (value.member_epoch,) * len(topic.partitions)
        found.update(((topic.topic_id, number), epoch) for number, epoch in zip(topic.partitions, epochs, strict=True))
    return found


def read_state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        # A state from a later version: a member that is not settled is looked at again on its next heartbeat.
        return MemberState.UNRELEASED_PARTITIONS


def read_classic(metadata: ClassicMemberMetadata | None) -> ClassicMemberMetadata | None:
    """A copy that does not keep the batch it was read from in memory."""
    if metadata is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=metadata.session_timeout_ms,
        supported_protocols=tuple(
            ClassicProtocol(name=one.name, metadata=bytes(one.metadata)) for one in metadata.supported_protocols
        ),
    )
