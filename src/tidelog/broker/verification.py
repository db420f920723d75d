"""Asks a transaction's coordinator for its word before a log lets somebody write in a transaction (KIP-890).

Producers of the first protocol have added the partition themselves, and it is only looked up; for those of the second
(Produce 12 and TxnOffsetCommit 5) it is added by this.
"""

from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tidelog.broker.transactions import TransactionCoordinator
from tidelog.coordination import coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.transaction import by_topic
from tidelog.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Codes = dict[TopicPartition, ErrorCode]
Verified = Callable[[Codes], None]

_ANSWERS_WITH_ABORTABLE: Final = 5  # the AddPartitionsToTxn whose sender knows TRANSACTION_ABORTABLE
_ANSWERS_WITHOUT: Final = 4

_FOR_THE_LOG: Final[Mapping[ErrorCode, ErrorCode]] = MappingProxyType(
    {
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        # A producer that is told one of these gives up; this it tries again.
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class Writer:
    """Who writes, as its request says."""

    __slots__ = ("adds", "knows_abortable", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, adds: bool, knows_abortable: bool
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.adds = adds
        """It speaks the second protocol: writing is what adds a partition."""
        self.knows_abortable = knows_abortable


class TransactionVerifier:
    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def verify(self, writer: Writer, partitions: Iterable[TopicPartition]) -> Codes:
        """What the coordinator says about each, in words that a writer to a log understands."""
        answer: Future[Codes] = self._coordinator.loop.create_future()
        self.ask(writer, partitions, answer.set_result)
        return await answer

    def ask(self, writer: Writer, partitions: Iterable[TopicPartition], done: Verified) -> None:
        wanted = tuple(partitions)
        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=writer.transactional_id,
                    producer_id=writer.producer_id,
                    producer_epoch=writer.producer_epoch,
                    verify_only=not writer.adds,
                    topics=tuple(
                        AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(wanted)
                    ),
                ),
            )
        )
        version = _ANSWERS_WITH_ABORTABLE if writer.knows_abortable else _ANSWERS_WITHOUT

        def decide(shard: TransactionShard, waiter: int, now_ms: int) -> object:
            return shard.handle(request, Context(version, waiter), now_ms)

        def answered(answer: AddPartitionsToTxnResponse | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                done(dict.fromkeys(wanted, _translated(coordinator_code(answer), writer)))
                return
            done(
                {
                    TopicPartition(topic.name, each.partition_index): _translated(
                        ErrorCode(each.partition_error_code), writer
                    )
                    for result in answer.results_by_transaction
                    for topic in result.topic_results
                    for each in topic.results_by_partition
                }
            )

        self._coordinator.submit(writer.transactional_id, decide, answered)  # type: ignore[arg-type]


def _translated(code: ErrorCode, writer: Writer) -> ErrorCode:
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not writer.adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # not known to producers of the first protocol as an answer to a write
    return _FOR_THE_LOG.get(code, code)
