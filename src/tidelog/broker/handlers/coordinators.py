"""FindCoordinator 0-6: which broker decides for a group or a transactional id.

Not done: share groups have no coordinator yet.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.advertised import Advertised
from tidelog.broker.coordinator import Coordinator
from tidelog.broker.requests import Context, Endpoint
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.groups import Coordinator as Found
from tidelog.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4  # the first version that asks for several keys


class CoordinatorsHandler:
    def __init__(self, coordinators: Mapping[int, Coordinator[Any, Any]], advertised: Advertised, node_id: int) -> None:
        self._coordinators = coordinators
        self._advertised = advertised
        self._node_id = node_id

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(10, 0, 6, self.find_coordinator)]

    async def find_coordinator(self, context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        error = await self._prepare(request)
        host, port = self._advertised.to(context.connection)
        code = error.code if error else ErrorCode.NONE
        text = str(error) if error else None
        node_id, host, port = (-1, "", -1) if error else (self._node_id, host, port)
        if context.version < BATCHED_SINCE:
            return FindCoordinatorResponse(error_code=code, error_message=text, node_id=node_id, host=host, port=port)
        return FindCoordinatorResponse(
            coordinators=tuple(
                Found(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=text)
                for key in request.coordinator_keys
            )
        )

    async def _prepare(self, request: FindCoordinatorRequest) -> KafkaError | None:
        coordinator = self._coordinators.get(request.key_type)
        if coordinator is None:
            return KafkaError("this broker coordinates groups and transactions only", ErrorCode.INVALID_REQUEST)
        try:
            await coordinator.ensure_topic()
            await coordinator.ready(request.coordinator_keys or (request.key,))
        except KafkaError as error:
            return KafkaError(str(error), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return None
