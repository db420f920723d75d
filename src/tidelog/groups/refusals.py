"""A request refused as a whole: the answer in that request's own form, with the error where its version has room.

For the shard, and for the broker when there is no shard to ask: not the coordinator, still loading, not authorised.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidelog.errors import ErrorCode
from tidelog.groups.classic_members import MANY_LEAVE_SINCE
from tidelog.groups.classic_step import join_error
from tidelog.groups.offsets import NO_OFFSET
from tidelog.wire.messages import groups, offsets, transactions
from tidelog.wire.schema import Message


def refuse(request: Message, code: ErrorCode, version: int, message: str | None = None) -> Message:
    """`message` is for people; only the consumer protocol's answers have room for it."""
    response = _REFUSALS[type(request)](request, code, version)
    if message is not None and isinstance(response, groups.ConsumerGroupHeartbeatResponse):
        return msgspec.structs.replace(response, error_message=message)
    return response


def _join(request: groups.JoinGroupRequest, code: ErrorCode, version: int) -> Message:
    return join_error(code, request.member_id, version)


def _sync(request: groups.SyncGroupRequest, code: ErrorCode, version: int) -> Message:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS  # the rebalance it is part of is lost: it must join again
    return groups.SyncGroupResponse(error_code=code, assignment=b"")


def _heartbeat(request: groups.HeartbeatRequest, code: ErrorCode, version: int) -> Message:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE  # nothing is wrong with the member: it should stay and go on working
    return groups.HeartbeatResponse(error_code=code)


def _leave(request: groups.LeaveGroupRequest, code: ErrorCode, version: int) -> Message:
    if code is ErrorCode.UNKNOWN_MEMBER_ID and version >= MANY_LEAVE_SINCE:
        return groups.LeaveGroupResponse(
            members=tuple(
                groups.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
                for member in request.members
            )
        )
    return groups.LeaveGroupResponse(error_code=code)


def _consumer_heartbeat(request: groups.ConsumerGroupHeartbeatRequest, code: ErrorCode, version: int) -> Message:
    return groups.ConsumerGroupHeartbeatResponse(
        error_code=code, member_id=request.member_id, member_epoch=0, heartbeat_interval_ms=0
    )


def _consumer_describe(request: groups.ConsumerGroupDescribeRequest, code: ErrorCode, version: int) -> Message:
    return groups.ConsumerGroupDescribeResponse(
        groups=tuple(
            groups.ConsumerGroupDescribedGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group_id in request.group_ids
        )
    )


def _describe(request: groups.DescribeGroupsRequest, code: ErrorCode, version: int) -> Message:
    return groups.DescribeGroupsResponse(
        groups=tuple(
            groups.DescribedGroup(
                error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
            )
            for group_id in request.groups
        )
    )


def _list(request: groups.ListGroupsRequest, code: ErrorCode, version: int) -> Message:
    return groups.ListGroupsResponse(error_code=code, groups=())


def _delete(request: groups.DeleteGroupsRequest, code: ErrorCode, version: int) -> Message:
    return groups.DeleteGroupsResponse(
        results=tuple(
            groups.DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names
        )
    )


def _commit(request: offsets.OffsetCommitRequest, code: ErrorCode, version: int) -> Message:
    return offsets.OffsetCommitResponse(
        topics=tuple(
            offsets.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    offsets.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _commit_transactional(request: transactions.TxnOffsetCommitRequest, code: ErrorCode, version: int) -> Message:
    return transactions.TxnOffsetCommitResponse(
        topics=tuple(
            transactions.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    transactions.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ERROR_OF_ALL_SINCE: Final = 2
GROUPS_SINCE: Final = 8


def _fetch(request: offsets.OffsetFetchRequest, code: ErrorCode, version: int) -> Message:
    if version >= GROUPS_SINCE:
        return offsets.OffsetFetchResponse(
            groups=tuple(
                offsets.OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
                for group in request.groups
            )
        )
    if version >= ERROR_OF_ALL_SINCE:
        return offsets.OffsetFetchResponse(error_code=code)
    return offsets.OffsetFetchResponse(
        topics=tuple(
            offsets.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    offsets.OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=code
                    )
                    for number in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
    )


def _delete_offsets(request: offsets.OffsetDeleteRequest, code: ErrorCode, version: int) -> Message:
    return offsets.OffsetDeleteResponse(error_code=code, topics=())


_REFUSALS: Final[Mapping[type[Message], Callable[[Any, ErrorCode, int], Message]]] = MappingProxyType(
    {
        groups.JoinGroupRequest: _join,
        groups.SyncGroupRequest: _sync,
        groups.HeartbeatRequest: _heartbeat,
        groups.LeaveGroupRequest: _leave,
        groups.ConsumerGroupHeartbeatRequest: _consumer_heartbeat,
        groups.ConsumerGroupDescribeRequest: _consumer_describe,
        groups.DescribeGroupsRequest: _describe,
        groups.ListGroupsRequest: _list,
        groups.DeleteGroupsRequest: _delete,
        offsets.OffsetCommitRequest: _commit,
        offsets.OffsetFetchRequest: _fetch,
        offsets.OffsetDeleteRequest: _delete_offsets,
        transactions.TxnOffsetCommitRequest: _commit_transactional,
    }
)
