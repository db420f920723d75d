"""InitProducerId 0-5: every idempotent producer begins here and gets an id that no other ever had; a transactional one
gets the id of its transactional id, and an epoch that fences whoever had it before."""

from tidelog.broker.coordinators.producer_ids import ProducerIds
from tidelog.broker.handlers.transactions import TransactionRequests
from tidelog.broker.requests import Context, Endpoint, Reply
from tidelog.errors import KafkaError
from tidelog.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.schema import Message


class ProducerIdsHandler:
    def __init__(self, producer_ids: ProducerIds, transactions: TransactionRequests) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(22, 0, 5, self.init_producer_id)]

    def init_producer_id(self, context: Context, request: InitProducerIdRequest) -> Reply:
        if request.transactional_id is not None:
            return self._transactions.when_ready(context, request.transactional_id, request)
        if self._producer_ids.at_hand:
            return self._next()
        return self._reserve_and_answer()

    async def _reserve_and_answer(self) -> Message:
        try:
            await self._producer_ids.reserve()
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
        return self._next()

    def _next(self) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=self._producer_ids.take(), producer_epoch=0)
