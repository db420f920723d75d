"""FindCoordinator 0-6: which broker decides for a group or a transactional id.

Not done: share groups have no coordinator yet.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.advertised import Advertised
from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.metadata import Metadata
from tidelog.broker.peers.members import members
from tidelog.broker.requests import Context, Endpoint
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.groups import Coordinator as Found
from tidelog.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4  # the first version that asks for several keys
KEYS_AT_ONCE: Final = 500


class CoordinatorsHandler:
    def __init__(
        self,
        coordinators: Mapping[int, Coordinator[Any, Any]],
        metadata: Metadata,
        advertised: Advertised,
        node_id: int,
    ) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._advertised = advertised
        self._node_id = node_id

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(10, 0, 6, self.find_coordinator)]

    async def find_coordinator(self, context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        keys = request.coordinator_keys or (request.key,)
        found = []
        for position, key in enumerate(keys, start=1):
            found.append(await self._find(context, request.key_type, key))
            if position % KEYS_AT_ONCE == 0:
                await asyncio.sleep(0)  # for whoever waits meanwhile: there may be a hundred thousand
        if context.version < BATCHED_SINCE:
            one = found[0]
            return FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        return FindCoordinatorResponse(coordinators=tuple(found))

    async def _find(self, context: Context, key_type: int, key: str) -> Found:
        coordinator = self._coordinators.get(key_type)
        text = "this broker coordinates groups and transactions only"
        code = ErrorCode.INVALID_REQUEST
        if coordinator is not None:
            try:
                await coordinator.ensure_topic()
                node_id = coordinator.leader_of(key)
                if node_id == self._node_id:
                    await coordinator.ready(key)
                host, port = self._advertised.to(context.connection)
                image = self._metadata.image
                for member in members(image, self._node_id, host, port):
                    if member.node_id == node_id:
                        return Found(key=key, node_id=node_id, host=member.host, port=member.port)
                text = f"broker {node_id} is not there"
            except KafkaError as error:
                text = str(error)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Found(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
