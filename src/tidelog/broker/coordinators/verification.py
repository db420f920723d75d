"""Asks a transaction's coordinator for its word before a log lets somebody write in a transaction (KIP-890).

Producers of the first protocol have added the partition themselves, and it is only looked up; for those of the second
(Produce 12 and TxnOffsetCommit 5) it is added by this.
"""

from asyncio import Future, Task
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from tidelog.broker.coordinators.transactions import TransactionCoordinator
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.coordination import Outcome, coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context
from tidelog.transactions.records import TransactionRecord
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.transaction import Identity, by_topic
from tidelog.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.schema import Message

Codes = dict[TopicPartition, ErrorCode]
Verified = Callable[[Codes], None]
Answer = AddPartitionsToTxnResponse | KafkaError

ANSWER_SECONDS: Final = 5.0

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
    def __init__(self, coordinator: TransactionCoordinator, remote: "Remote | None" = None) -> None:
        self._coordinator = coordinator
        self._remote = remote
        """None if this broker is alone, and so is every coordinator itself."""

    async def verify(self, writer: Writer, partitions: Iterable[TopicPartition]) -> Codes:
        """What the coordinator says about each, in words that a writer to a log understands."""
        answer: Future[Codes] = self._coordinator.loop.create_future()
        self.ask(writer, partitions, answer.set_result)
        return await answer

    def ask(self, writer: Writer, partitions: Iterable[TopicPartition], done: Verified) -> None:
        """`done` may be called before this returns."""
        wanted = tuple(partitions)
        version = _ANSWERS_WITH_ABORTABLE if writer.knows_abortable else _ANSWERS_WITHOUT
        elsewhere = None if self._remote is None else self._remote.leader_of(writer.transactional_id)
        if elsewhere is None and not writer.adds:
            self._vouch(writer, wanted, version, done)
            return
        request = _request(writer, wanted)
        answered = partial(_tell, writer, wanted, done)
        if self._remote is not None and elsewhere is not None:
            self._remote.ask(elsewhere, request, version, answered)
            return

        def decide(shard: TransactionShard, waiter: int, now_ms: int) -> object:
            return shard.handle(request, Context(version, waiter), now_ms)

        self._coordinator.submit(writer.transactional_id, decide, answered)  # type: ignore[arg-type]

    def at_once(self, writer: Writer, wanted: tuple[TopicPartition, ...]) -> bool:
        """The short way, if there is one. True: these may be written to now. False: it takes `ask` to know."""
        if self._remote is not None and self._remote.leader_of(writer.transactional_id) is not None:
            return False  # it has been deposed, and may not have heard of it
        host = self._coordinator.find(writer.transactional_id)
        if host is None or not host.is_settled:
            return False
        asked = Identity(writer.producer_id, writer.producer_epoch)
        if writer.adds:
            return host.shard.go_ahead(writer.transactional_id, asked, wanted)
        codes = host.shard.verify(writer.transactional_id, asked, wanted, _ANSWERS_WITHOUT)
        return not any(codes.values())

    def _vouch(self, writer: Writer, wanted: tuple[TopicPartition, ...], version: int, done: Verified) -> None:
        """The short way, for what is only looked up, and here: by every first write of the first protocol."""
        asked = Identity(writer.producer_id, writer.producer_epoch)

        def decide(shard: TransactionShard, waiter: int, now_ms: int) -> Outcome[Codes, TransactionRecord]:
            return shard.vouch(writer.transactional_id, asked, wanted, version, now_ms)

        def answered(answer: Codes | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                answer = dict.fromkeys(wanted, coordinator_code(answer))
            done({partition: _translated(code, writer) for partition, code in answer.items()})

        self._coordinator.submit(writer.transactional_id, decide, answered)


def _request(writer: Writer, wanted: tuple[TopicPartition, ...]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
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


class Remote:
    """Asks another broker that is the coordinator of a transactional id."""

    def __init__(self, node_id: int, coordinator: TransactionCoordinator, link_to: Callable[[int], PeerLink]) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._link_to = link_to
        self._asking: set[Task[None]] = set()

    def leader_of(self, transactional_id: str) -> int | None:
        """None if this broker is the coordinator itself, or there is none."""
        try:
            leader = self._coordinator.leader_of(transactional_id)
        except KafkaError:
            return None
        return None if leader == self._node_id else leader

    def ask(self, leader: int, request: Message, version: int, answered: Callable[[Answer], None]) -> None:
        task = self._coordinator.loop.create_task(self._ask(leader, request, version, answered))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, leader: int, request: Message, version: int, answered: Callable[[Answer], None]) -> None:
        try:
            answered(await self._link_to(leader).call(request, version, timeout=ANSWER_SECONDS))
        except Unreachable as error:
            answered(KafkaError(str(error), ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _tell(writer: Writer, wanted: tuple[TopicPartition, ...], done: Verified, answer: Answer) -> None:
    if isinstance(answer, KafkaError):
        done(dict.fromkeys(wanted, _translated(coordinator_code(answer), writer)))
        return
    codes = {
        TopicPartition(topic.name, each.partition_index): _translated(ErrorCode(each.partition_error_code), writer)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    # One that another broker did not speak of, it may not know yet.
    done({each: codes.get(each, ErrorCode.NOT_ENOUGH_REPLICAS) for each in wanted})


def _translated(code: ErrorCode, writer: Writer) -> ErrorCode:
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not writer.adds:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # not known to producers of the first protocol as an answer to a write
    return _FOR_THE_LOG.get(code, code)
