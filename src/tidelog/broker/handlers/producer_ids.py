"""InitProducerId 0-5: every idempotent producer begins here and gets an id that no other ever had.

Not done: a transactional id is refused until transactions exist.
"""

from tidelog.broker.metadata import Metadata
from tidelog.broker.requests import Context, Endpoint, Reply
from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse


class ProducerIdsHandler:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._block = range(0)

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(22, 0, 5, self.init_producer_id)]

    def init_producer_id(self, context: Context, request: InitProducerIdRequest) -> Reply:
        if request.transactional_id is not None:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        if self._block:
            return self._next()
        return self._next_from_new_block()

    async def _next_from_new_block(self) -> InitProducerIdResponse:
        reserved = range(0)

        def decide(image: MetadataImage) -> list[AnyRecord]:
            nonlocal reserved
            # Somebody who waited with us may have fetched the block meanwhile.
            if self._block:
                return []
            reserved, records = controller.allocate_producer_ids(image)
            return records

        while not self._block:
            try:
                await self._metadata.change(decide)
            except KafkaError as error:
                return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
            # Only now, when no restart can hand these out again.
            self._block = self._block or reserved
        return self._next()

    def _next(self) -> InitProducerIdResponse:
        producer_id, self._block = self._block[0], self._block[1:]
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
