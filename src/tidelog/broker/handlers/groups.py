"""Consumer groups: membership and administration.

JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2, and
the consumer protocol's ConsumerGroupHeartbeat and ConsumerGroupDescribe 0-1. Everything is decided by a
`groups.GroupShard`; this only carries.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.shard_requests import Ask, ShardRequests
from tidelog.broker.requests import Context, Endpoint, Reply
from tidelog.coordination import coordinator_code
from tidelog.errors import KafkaError
from tidelog.groups import group as group_room
from tidelog.groups.commit_records import encode_records
from tidelog.groups.records import GroupRecord, decode_record
from tidelog.groups.refusals import refuse
from tidelog.groups.shard import GroupShard
from tidelog.wire.messages import groups as messages
from tidelog.wire.messages.offsets import OffsetDeleteRequest
from tidelog.wire.schema import Message

GroupCoordinator = Coordinator[GroupShard, GroupRecord]


LONG_REQUESTS: Final = (messages.DeleteGroupsRequest, OffsetDeleteRequest)
"""What they remove may take more than one batch."""


class GroupRecords:
    """Kafka's record format, as the coordinator's host wants it."""

    encode = staticmethod(encode_records)
    decode = staticmethod(decode_record)


class GroupRequests(ShardRequests[GroupShard, GroupRecord]):
    def decide(self, shard: GroupShard, request: Message, context: Context, waiter: int, now_ms: int) -> Any:
        host = context.connection.peer.rpartition(":")[0]
        who = group_room.Context(context.client_id or "", f"/{host}", context.version, waiter)
        return shard.handle(request, who, now_ms)

    def submit(self, context: Context, ask: Ask, done: Callable[[Message], None]) -> None:
        if isinstance(ask.request, LONG_REQUESTS) and isinstance(ask.where, str):
            with suppress(KafkaError):  # there is no such shard here: the request itself is told so
                self.coordinator.host_for(ask.where).apply(lambda shard, _: shard.prelude(ask.request))
        super().submit(context, ask, done)

    def refuse(self, request: Message, error: KafkaError, version: int) -> Message:
        return refuse(request, coordinator_code(error), version, str(error))


class GroupsHandler:
    def __init__(self, requests: GroupRequests) -> None:
        self._requests = requests

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(11, 0, 9, self.membership),
            Endpoint(12, 0, 4, self.membership),
            Endpoint(13, 0, 5, self.membership),
            Endpoint(14, 0, 5, self.membership),
            Endpoint(15, 0, 6, self.describe_groups),
            Endpoint(16, 0, 5, self.list_groups),
            Endpoint(42, 0, 2, self.delete_groups),
            Endpoint(68, 0, 1, self.membership),
            Endpoint(69, 0, 1, self.describe_consumer_groups),
        ]

    def membership(
        self,
        context: Context,
        request: messages.JoinGroupRequest
        | messages.SyncGroupRequest
        | messages.HeartbeatRequest
        | messages.LeaveGroupRequest
        | messages.ConsumerGroupHeartbeatRequest,
    ) -> None:
        self._requests.ask_one(context, request.group_id, request)

    # -- administration ---------------------------------------------------------------------------------------------

    def describe_groups(self, context: Context, request: messages.DescribeGroupsRequest) -> Reply:
        # Each group once, however often it is named: a small question must not have a huge answer.
        groups = dict.fromkeys(request.groups)
        asks = [Ask(group, msgspec.structs.replace(request, groups=(group,))) for group in groups]
        return self._requests.ask(
            context,
            asks,
            lambda answers: messages.DescribeGroupsResponse(groups=_joined(answer.groups for answer in answers)),
        )

    def describe_consumer_groups(self, context: Context, request: messages.ConsumerGroupDescribeRequest) -> Reply:
        groups = dict.fromkeys(request.group_ids)
        asks = [Ask(group, msgspec.structs.replace(request, group_ids=(group,))) for group in groups]
        return self._requests.ask(
            context,
            asks,
            lambda answers: messages.ConsumerGroupDescribeResponse(groups=_joined(answer.groups for answer in answers)),
        )

    def delete_groups(self, context: Context, request: messages.DeleteGroupsRequest) -> Reply:
        asks = [Ask(group, msgspec.structs.replace(request, groups_names=(group,))) for group in request.groups_names]
        return self._requests.ask(
            context,
            asks,
            lambda answers: messages.DeleteGroupsResponse(results=_joined(answer.results for answer in answers)),
        )

    def list_groups(self, context: Context, request: messages.ListGroupsRequest) -> Reply:
        """From every shard. One that cannot answer yet makes the whole list incomplete, so it is refused then."""
        asks = [Ask(host, request) for host in self._requests.coordinator.hosts]
        return self._requests.ask(
            context,
            asks,
            lambda answers: messages.ListGroupsResponse(
                error_code=max((answer.error_code for answer in answers), default=0),
                groups=_joined(answer.groups for answer in answers),
            ),
        )


def _joined(parts: Any) -> tuple[Any, ...]:
    return tuple(each for part in parts for each in part)
