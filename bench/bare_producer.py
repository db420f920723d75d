"""A producer that only sends and receives: what it sends is made before the clock starts."""

import time
from types import TracebackType
from typing import Any, Final, Self

from tidelog.client.connection import Connection
from tidelog.wire.messages.data import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from tidelog.wire.record_batch import TRANSACTIONAL, build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import Message

PRODUCE, ADD, END, INIT, FIND = 9, 3, 3, 4, 3
"""Versions of the first transaction protocol, which librdkafka speaks."""
SECOND_PRODUCE, SECOND_END = 12, 5
"""Of the second: writing adds the partition, and each transaction ends with a new epoch."""

_READY_SECONDS: Final = 20.0
_TRANSACTION_COORDINATOR: Final = 1


class BareProducer:
    """Partition 0 only. With a transactional id each round is a transaction, in the first protocol or the second."""

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        records: int,
        record_bytes: int,
        transactional_id: str | None = None,
        *,
        second: bool = False,
    ) -> None:
        self._second = second
        self._connection = Connection(host, port)
        self._topic, self._transactional_id = topic, transactional_id
        self._records = [Record(number, 0, None, bytes(record_bytes), ()) for number in range(records)]
        self._sequence = 0
        if transactional_id is not None:
            self._ready(FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_COORDINATOR), FIND)
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=30_000, producer_id=-1, producer_epoch=-1
        )
        answer = self._ready(init, INIT)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def once(self) -> float:
        """Seconds until all records are acknowledged, or their transaction is committed."""
        produce = self._produce()
        if self._transactional_id is None:
            began = time.perf_counter()
            self._send(produce)
            return time.perf_counter() - began
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=self._topic, partitions=(0,)),),
        )
        end = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        if self._second:
            return self._once_in_second(produce, end)
        began = time.perf_counter()
        added = self._connection.call(add, ADD)
        _check(
            added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, "AddPartitionsToTxn"
        )
        self._send(produce)
        _check(self._connection.call(end, END).error_code, "EndTxn")
        return time.perf_counter() - began

    def _once_in_second(self, produce: ProduceRequest, end: EndTxnRequest) -> float:
        began = time.perf_counter()
        self._send(produce, SECOND_PRODUCE)
        ended = self._connection.call(end, SECOND_END)
        took = time.perf_counter() - began
        _check(ended.error_code, "EndTxn")
        self._producer_id, self._epoch, self._sequence = ended.producer_id, ended.producer_epoch, 0
        return took

    def _produce(self) -> ProduceRequest:
        batch = build_batch(
            self._records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            attributes=TRANSACTIONAL if self._transactional_id else 0,
        )
        self._sequence += len(self._records)
        data = PartitionProduceData(index=0, records=memoryview(batch))
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=self._topic, partition_data=(data,)),),
        )

    def _send(self, produce: ProduceRequest, version: int = PRODUCE) -> None:
        answer = self._connection.call(produce, version)
        _check(answer.responses[0].partition_responses[0].error_code, "Produce")

    def _ready(self, request: Message, version: int) -> Any:
        """A coordinator may have to be made first."""
        deadline = time.monotonic() + _READY_SECONDS
        while (answer := self._connection.call(request, version)).error_code:
            if time.monotonic() > deadline:
                _check(answer.error_code, type(request).__name__)
            time.sleep(0.05)
        return answer


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} was answered with error {code}")
