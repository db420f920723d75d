"""Consumer groups: finding the coordinator, membership, administration.

FindCoordinator 0-6 (groups; transactions and share groups have no coordinator yet), JoinGroup 0-9, SyncGroup 0-5,
Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2, and the consumer protocol's
ConsumerGroupHeartbeat and ConsumerGroupDescribe 0-1. Everything is decided by a `groups.GroupShard`; this only
carries.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.broker.advertised import Advertised
from tidelog.broker.coordinator import Coordinator, ShardHost
from tidelog.broker.requests import Context, Endpoint, Later, frame_of
from tidelog.coordination import coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.groups import group as group_room
from tidelog.groups.records import GroupRecord, decode_record, encode_record
from tidelog.groups.refusals import refuse
from tidelog.groups.shard import GroupShard
from tidelog.wire.messages import groups as messages
from tidelog.wire.schema import Message

GroupCoordinator = Coordinator[GroupShard, GroupRecord]
GROUP: Final = 0  # FindCoordinator's key type
BATCHED_SINCE: Final = 4  # the first FindCoordinator that asks for several keys


class GroupRecords:
    """Kafka's record format, as the coordinator's host wants it."""

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)


class Ask(NamedTuple):
    """A part of a request that is one shard's to answer."""

    where: str | ShardHost[GroupShard, GroupRecord]  # a group, or a shard
    request: Message


class GroupRequests:
    """Carries requests to shards and their answers back, in the order of the connection's requests."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator

    def ask(self, context: Context, asks: Sequence[Ask], combine: Callable[[list[Any]], Message]) -> None:
        """Answers when every shard has: `combine` gets their responses in the order of `asks`."""
        later = Later(context.connection)
        answers: list[Any] = [None] * len(asks)
        missing = len(asks)
        if not asks:
            later.fulfil([frame_of(context, combine([]))])
            return

        def arrived(position: int, request: Message, answer: Any) -> None:
            nonlocal missing
            if isinstance(answer, KafkaError):
                answer = refuse(request, coordinator_code(answer), context.version, str(answer))
            answers[position] = answer
            missing -= 1
            if missing == 0:
                later.fulfil([frame_of(context, combine(answers))])

        for position, ask in enumerate(asks):
            self._submit(context, ask, lambda answer, at=position, of=ask.request: arrived(at, of, answer))  # type: ignore[misc]

    def ask_one(self, context: Context, group_id: str, request: Message) -> None:
        self.ask(context, [Ask(group_id, request)], lambda answers: answers[0])

    def _submit(self, context: Context, ask: Ask, done: Callable[[Any], None]) -> None:
        host = context.connection.peer.rpartition(":")[0]
        who = group_room.Context(context.client_id or "", f"/{host}", context.version)

        def decide(shard: GroupShard, waiter: int, now_ms: int) -> Any:
            return shard.handle(ask.request, who._replace(waiter=waiter), now_ms)

        if isinstance(ask.where, str):
            self.coordinator.submit(ask.where, decide, done)
        else:
            ask.where.submit(decide, done)


class GroupsHandler:
    def __init__(self, requests: GroupRequests, advertised: Advertised, node_id: int) -> None:
        self._requests = requests
        self._advertised = advertised
        self._node_id = node_id

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(10, 0, 6, self.find_coordinator),
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

    # -- finding the coordinator ------------------------------------------------------------------------------------

    async def find_coordinator(
        self, context: Context, request: messages.FindCoordinatorRequest
    ) -> messages.FindCoordinatorResponse:
        error = await self._prepare(request)
        host, port = self._advertised.to(context.connection)
        code = error.code if error else ErrorCode.NONE
        text = str(error) if error else None
        node_id, host, port = (-1, "", -1) if error else (self._node_id, host, port)
        if context.version < BATCHED_SINCE:
            return messages.FindCoordinatorResponse(
                error_code=code, error_message=text, node_id=node_id, host=host, port=port
            )
        return messages.FindCoordinatorResponse(
            coordinators=tuple(
                messages.Coordinator(
                    key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=text
                )
                for key in request.coordinator_keys
            )
        )

    async def _prepare(self, request: messages.FindCoordinatorRequest) -> KafkaError | None:
        if request.key_type != GROUP:
            return KafkaError("this broker coordinates consumer groups only", ErrorCode.INVALID_REQUEST)
        try:
            await self._requests.coordinator.ensure_topic()
            await self._requests.coordinator.ready(request.coordinator_keys or (request.key,))
        except KafkaError as error:
            return KafkaError(str(error), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return None

    # -- administration ---------------------------------------------------------------------------------------------

    def describe_groups(self, context: Context, request: messages.DescribeGroupsRequest) -> None:
        asks = [Ask(group, msgspec.structs.replace(request, groups=(group,))) for group in request.groups]
        self._requests.ask(
            context,
            asks,
            lambda answers: messages.DescribeGroupsResponse(groups=_joined(answer.groups for answer in answers)),
        )

    def describe_consumer_groups(self, context: Context, request: messages.ConsumerGroupDescribeRequest) -> None:
        asks = [Ask(group, msgspec.structs.replace(request, group_ids=(group,))) for group in request.group_ids]
        self._requests.ask(
            context,
            asks,
            lambda answers: messages.ConsumerGroupDescribeResponse(groups=_joined(answer.groups for answer in answers)),
        )

    def delete_groups(self, context: Context, request: messages.DeleteGroupsRequest) -> None:
        asks = [Ask(group, msgspec.structs.replace(request, groups_names=(group,))) for group in request.groups_names]
        self._requests.ask(
            context,
            asks,
            lambda answers: messages.DeleteGroupsResponse(results=_joined(answer.results for answer in answers)),
        )

    def list_groups(self, context: Context, request: messages.ListGroupsRequest) -> None:
        """From every shard. One that cannot answer yet makes the whole list incomplete, so it is refused then."""
        asks = [Ask(host, request) for host in self._requests.coordinator.hosts]
        self._requests.ask(
            context,
            asks,
            lambda answers: messages.ListGroupsResponse(
                error_code=max((answer.error_code for answer in answers), default=0),
                groups=_joined(answer.groups for answer in answers),
            ),
        )


def _joined(parts: Any) -> tuple[Any, ...]:
    return tuple(each for part in parts for each in part)
