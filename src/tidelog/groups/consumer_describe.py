"""ConsumerGroupDescribe, versions 0 and 1."""

from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_errors import GroupIdNotFound
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import ConsumerMember
from tidelog.groups.consumer_rebalance import preferred_assignor
from tidelog.groups.consumer_topics import Topics
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(group: ConsumerGroup, topics: Topics) -> ConsumerGroupDescribedGroup:
    return ConsumerGroupDescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group),
        members=tuple(_member(group, group.members[member_id], topics) for member_id in sorted(group.members)),
    )


def not_found(group_id: str) -> ConsumerGroupDescribedGroup:
    error = GroupIdNotFound(group_id)
    return ConsumerGroupDescribedGroup(
        error_code=error.code,
        error_message=str(error),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> ConsumerGroupDescribeMember:
    return ConsumerGroupDescribeMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: Assignment, topics: Topics) -> ConsumerGroupDescribeAssignment:
    named = ((topics.name_of(topic_id), topic_id, numbers) for topic_id, numbers in assignment.items())
    return ConsumerGroupDescribeAssignment(
        topic_partitions=tuple(
            ConsumerGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(numbers)))
            for name, topic_id, numbers in sorted(one for one in named if one[0] is not None)
            if name is not None
        )
    )
