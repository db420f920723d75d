"""What a coordinator knows about one group, as plain facts: who owns what, what happened, where it stood lately."""

from collections.abc import Callable

import msgspec

from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.embedded import assigned_partitions
from tidelog.groups.group import Group
from tidelog.groups.history import GroupEvent
from tidelog.groups.lag_samples import LagSample
from tidelog.groups.shard import GroupShard
from tidelog.ids import TopicId, TopicPartition


class MemberInsight(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class PartitionInsight(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    committed: int
    committed_at_ms: int
    samples: tuple[LagSample, ...]


class GroupInsight(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    type: str
    state: str
    generation: int
    """Of a classic group; a consumer group's epoch."""
    now_ms: int
    members: tuple[MemberInsight, ...]
    partitions: tuple[PartitionInsight, ...]
    events: tuple[GroupEvent, ...]


SamplesOf = Callable[[str, TopicPartition], tuple[LagSample, ...]]
NameOf = Callable[[TopicId], str | None]


def insight(shard: GroupShard, group_id: str, samples: SamplesOf, name_of: NameOf, now_ms: int) -> GroupInsight | None:
    """None if there is no such group."""
    group = shard.find(group_id)
    if group is None:
        return None
    return GroupInsight(
        group_id=group_id,
        type=group.type.value,
        state=group.state_name,
        generation=_generation(group),
        now_ms=now_ms,
        members=_members(group, name_of),
        partitions=tuple(
            PartitionInsight(
                topic=partition.topic,
                partition=partition.partition,
                committed=committed.offset,
                committed_at_ms=committed.commit_timestamp_ms,
                samples=samples(group_id, partition),
            )
            for partition, committed in sorted(shard.offsets.of(group_id).items())
        ),
        events=shard.history.of(group_id),
    )


def _generation(group: Group) -> int:
    if isinstance(group, ClassicGroup):
        return group.generation
    return group.epoch if isinstance(group, ConsumerGroup) else -1


def _members(group: Group, name_of: NameOf) -> tuple[MemberInsight, ...]:
    if isinstance(group, ClassicGroup):
        return tuple(
            MemberInsight(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.instance_id,
                partitions=tuple(sorted(assigned_partitions(member.assignment) or ())),
            )
            for member in group.members.values()
        )
    if not isinstance(group, ConsumerGroup):
        return ()
    return tuple(
        MemberInsight(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            partitions=tuple(
                sorted(
                    TopicPartition(name_of(topic_id) or str(topic_id), partition)
                    for topic_id, partitions in member.assigned.items()
                    for partition in partitions
                )
            ),
        )
        for member in group.members.values()
    )
