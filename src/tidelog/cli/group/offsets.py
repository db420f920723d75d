"""Changing a group's committed offsets from outside, and making its members let go for it.

confluent-kafka commits for us. It can neither remove members nor delete offsets: those are asked with our own client.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.cli.connecting import TIMEOUT_SECONDS, Cluster
from tidelog.cli.problems import Problem
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.observe.clients import speaks_plainly
from tidelog.observe.group import GroupView, committed_offsets, describe_group
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatRequest, LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offsets import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tidelog.wire.schema import Message

LEAVE_EPOCH: Final = -1
REASON: Final = "offsets are being reset by tidelog group reset --force"
_LEAVE_VERSION: Final = 5  # the first with a reason
_HEARTBEAT_VERSION: Final = 0  # all there is to say is in it
_ATTEMPTS: Final = 5
_GONE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


class StillLive(Exception):
    """The coordinator takes no commit from outside: somebody is in the group."""


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
    from confluent_kafka import TopicPartition as Theirs

    wanted = [Theirs(*partition, offset) for partition, offset in offsets.items()]
    futures = cluster.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    try:
        answer = futures[group].result(TIMEOUT_SECONDS)
    except KafkaException as refused:
        _raise_refused(refused.args[0], group)
        raise
    for each in answer.topic_partitions:
        if each.error is not None:
            _raise_refused(each.error, group)
            raise Problem(f"{each.topic}-{each.partition} was not reset: {each.error.str()}")


def _raise_refused(error: Any, group: str) -> None:
    if error.name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "NON_EMPTY_GROUP", "STALE_MEMBER_EPOCH"):
        raise StillLive(group)


def commit_by_force(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> int:
    """Remove all members, commit before they are back. They rejoin by themselves and begin at the new offsets.

    Returns how many were removed. What they had processed but not committed is fenced off with their membership.
    """
    removed = 0
    for _ in range(_ATTEMPTS):
        view = describe_group(cluster, group)
        if view.is_live:
            removed += remove_members(cluster, view)
        try:
            commit_offsets(cluster, group, offsets)
        except StillLive:
            time.sleep(0.05)  # one was in the middle of joining: it is a member by the next look
        else:
            return removed
    raise Problem(f"members of {group} rejoin faster than they can be removed", "stop them, then reset the group")


def remove_members(cluster: Cluster, view: GroupView) -> int:
    if not speaks_plainly(cluster):
        raise Problem(
            f"members of {view.group_id} can be removed over PLAINTEXT connections only",
            "stop them, then reset the group",
        )
    with Connection(view.coordinator.host, view.coordinator.port, TIMEOUT_SECONDS) as connection:
        if view.type == "consumer":
            return sum(_heartbeat_goodbye(connection, view, member_id) for member_id in _ids(view))
        leavers = tuple(
            MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id, reason=REASON)
            for one in view.members
        )
        request: Message = LeaveGroupRequest(group_id=view.group_id, members=leavers)
        answer = connection.call(request, _LEAVE_VERSION)
    _check(view.group_id, answer.error_code)
    return sum(each.error_code == ErrorCode.NONE for each in answer.members)


def _ids(view: GroupView) -> list[tuple[str, str | None]]:
    return [(one.member_id, one.instance_id) for one in view.members]


def _heartbeat_goodbye(connection: Connection, view: GroupView, member: tuple[str, str | None]) -> bool:
    """What a member of a consumer group says when it leaves for good."""
    member_id, instance_id = member
    goodbye = ConsumerGroupHeartbeatRequest(
        group_id=view.group_id, member_id=member_id, member_epoch=LEAVE_EPOCH, instance_id=instance_id
    )
    answer = connection.call(goodbye, _HEARTBEAT_VERSION)
    _check(view.group_id, answer.error_code)
    return bool(answer.error_code == ErrorCode.NONE)


def _check(group: str, code: int) -> None:
    if code not in _GONE:
        raise Problem(f"the coordinator would not remove members of {group}: {ErrorCode(code).name}")


def delete_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> list[TopicPartition]:
    """Of all partitions of these topics the group has committed to. Kafka refuses topics somebody is subscribed to."""
    if not speaks_plainly(cluster):
        raise Problem("offsets can be deleted over PLAINTEXT connections only")
    committed = committed_offsets(cluster, group)
    wanted = {topic: sorted(each.partition for each in committed if each.topic == topic) for topic in topics}
    missing = [topic for topic, partitions in wanted.items() if not partitions]
    if missing:
        raise Problem(f"{group} has committed nothing to {', '.join(missing)}", f"`tidelog group describe {group}`")
    request = OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=each) for each in partitions)
            )
            for topic, partitions in wanted.items()
        ),
    )
    coordinator = describe_group(cluster, group).coordinator
    with Connection(coordinator.host, coordinator.port, TIMEOUT_SECONDS) as connection:
        answer = connection.call(request)
    codes = {answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)}
    if codes & {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NON_EMPTY_GROUP}:
        hint = f"`tidelog group members {group}` shows them; stop them first"
        raise Problem(f"members of {group} are subscribed to {', '.join(wanted)}", hint)
    if codes != {ErrorCode.NONE}:
        raise Problem(f"the offsets were not deleted: {', '.join(ErrorCode(each).name for each in codes if each)}")
    return [TopicPartition(topic, each) for topic, partitions in wanted.items() for each in partitions]
