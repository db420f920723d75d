"""Transactions said request by request: one process can begin what another ends, which no producer library allows.

A task and the driver need that: the task writes, the driver, who alone knows that every task has, ends it. All
requests are of the versions in which a transaction keeps its epoch when it ends.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tidelog.client.cluster import RETRIABLE, Cluster
from tidelog.client.negotiated import NegotiatedConnection
from tidelog.errors import ErrorCode, KafkaError, MalformedMessage
from tidelog.ids import TopicPartition
from tidelog.wire.messages.admin import MetadataRequest
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.schema import Message, UnsupportedVersion

STATE: Final = TopicPartition("__consumer_offsets", 0)
"""What sink groups commit an offset of: it exists wherever there are groups, and outlives every other topic."""
GROUP, TRANSACTION = 0, 1

_NEWEST: Final[dict[type[Message], int]] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 3,
    AddOffsetsToTxnRequest: 3,
    EndTxnRequest: 4,
    TxnOffsetCommitRequest: 4,
    FindCoordinatorRequest: 3,
    OffsetFetchRequest: 7,
    DescribeTransactionsRequest: 0,
}
_PASSING: Final = RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_PAUSE_S: Final = 0.01
_PAUSE_S_MAX: Final = 0.5


class Fenced(KafkaError):
    """Somebody else owns the transactional id now, or the transaction was ended for taking too long."""


class Identity(NamedTuple):
    """A transactional id and the producer that owns it, as of one moment."""

    name: str
    producer_id: int
    epoch: int


class Transactions:
    """One connection per coordinator. Every call returns when it is done, or raises; those that a restarted or moved
    coordinator answers are repeated for `timeout_s`."""

    def __init__(self, cluster: Cluster, *, transaction_timeout_ms: int, timeout_s: float = 60.0) -> None:
        self._cluster = cluster
        self._transaction_timeout_ms, self._timeout_s = transaction_timeout_ms, timeout_s
        self._nodes: dict[tuple[int, str], int] = {}
        self._connections: dict[int, NegotiatedConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            with suppress(OSError):
                connection.close()
        self._connections.clear()
        self._nodes.clear()

    # --- a producer's steps -------------------------------------------------------------------------------------------

    def init(self, name: str) -> Identity:
        """Takes the name over: who owned it is fenced, and a transaction it had open is aborted."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=self._transaction_timeout_ms)
        answer = self._ask(TRANSACTION, name, request, lambda reply: [reply.error_code])
        return Identity(name, answer.producer_id, answer.producer_epoch)

    def add_partitions(self, who: Identity, partitions: Iterable[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who.name,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers)) for name, numbers in topics.items()
            ),
        )
        self._ask(
            TRANSACTION,
            who.name,
            request,
            lambda reply: [
                row.partition_error_code
                for topic in reply.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ],
        )

    def commit_offset(self, who: Identity, group: str, offset: int, metadata: str) -> None:
        """As part of the transaction: the group's offset of STATE, which carries what `metadata` says."""
        add = AddOffsetsToTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=group
        )
        self._ask(TRANSACTION, who.name, add, lambda reply: [reply.error_code])
        row = TxnOffsetCommitRequestPartition(
            partition_index=STATE.partition, committed_offset=offset, committed_metadata=metadata
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=who.name,
            group_id=group,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=STATE.topic, partitions=(row,)),),
        )
        self._ask(
            GROUP, group, commit, lambda reply: [row.error_code for topic in reply.topics for row in topic.partitions]
        )

    def end(self, who: Identity, *, commit: bool) -> None:
        """Repeating it for a transaction that has already ended so is no error."""
        request = EndTxnRequest(
            transactional_id=who.name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=commit
        )
        self._ask(TRANSACTION, who.name, request, lambda reply: [reply.error_code])

    # --- questions ----------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> tuple[int, str] | None:
        """The group's offset of STATE and what it carries. A transaction that has it half committed is waited for."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=(OffsetFetchRequestTopic(name=STATE.topic, partition_indexes=(STATE.partition,)),),
            require_stable=True,
        )
        answer = self._ask(
            GROUP,
            group,
            request,
            lambda reply: [
                reply.error_code, *(row.error_code for topic in reply.topics for row in topic.partitions)
            ],
        )  # fmt: skip
        for topic in answer.topics:
            for row in topic.partitions:
                if row.committed_offset >= 0:
                    return row.committed_offset, row.metadata or ""
        return None

    def is_open(self, who: Identity) -> bool:
        """Whether the transaction can still be ended by its owner. Taken for true where the broker cannot tell."""
        request = DescribeTransactionsRequest(transactional_ids=(who.name,))
        try:
            answer = self._ask(
                TRANSACTION, who.name, request, lambda reply: [row.error_code for row in reply.transaction_states]
            )
        except UnsupportedVersion:
            return True
        except KafkaError as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return False
            raise
        return all(
            row.transaction_state == "Ongoing" and (row.producer_id, row.producer_epoch) == who[1:]
            for row in answer.transaction_states
        )

    def open_names(self, prefix: str) -> list[str]:
        """Transactional ids that begin so and have a transaction open, wherever they are coordinated."""
        request = ListTransactionsRequest(state_filters=("Ongoing",), producer_id_filters=())
        names: list[str] = []
        for node in self._everyone():
            with suppress(UnsupportedVersion):
                answer = self._connection(node).ask(request)
                names += [row.transactional_id for row in answer.transaction_states]
        return sorted(name for name in names if name.startswith(prefix))

    # --- how ----------------------------------------------------------------------------------------------------------

    def _everyone(self) -> list[int]:
        answer = self._cluster.retry(lambda: self._cluster.anyone().ask(MetadataRequest(topics=())))
        for broker in answer.brokers:
            self._cluster.remember(broker.node_id, broker.host, broker.port)
        return [broker.node_id for broker in answer.brokers]

    def _ask(self, kind: int, key: str, request: Message, codes: Callable[[Any], Iterable[int]]) -> Any:
        deadline = time.monotonic() + self._timeout_s
        pause = _PAUSE_S
        while True:
            try:
                answer = self._call(self._coordinator(kind, key), request)
                _check(codes(answer), type(request).__name__.removesuffix("Request"), key)
                return answer
            except (OSError, MalformedMessage, KafkaError) as error:
                # The transaction before is still being ended: it is the right coordinator, only a moment too early.
                early = isinstance(error, KafkaError) and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
                if isinstance(error, KafkaError) and not early and error.code not in _PASSING:
                    raise
                if time.monotonic() + pause > deadline:
                    raise
                if not early:
                    self.close()
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S_MAX)

    def _coordinator(self, kind: int, key: str) -> NegotiatedConnection:
        node = self._nodes.get((kind, key))
        if node is None:
            answer = self._cluster.retry(lambda: self._find(kind, key))
            self._cluster.remember(answer.node_id, answer.host, answer.port)
            node = self._nodes[kind, key] = answer.node_id
        return self._connection(node)

    def _find(self, kind: int, key: str) -> Any:
        connection = self._cluster.anyone()
        answer = self._call(connection, FindCoordinatorRequest(key=key, key_type=kind))
        _check([answer.error_code], "FindCoordinator", key)
        return answer

    def _connection(self, node: int) -> NegotiatedConnection:
        if node not in self._connections:
            self._connections[node] = self._cluster.connect(node)
        return self._connections[node]

    def _call(self, connection: NegotiatedConnection, request: Message) -> Any:
        newest = _NEWEST[type(request)]
        return connection.call(request, min(newest, connection.version_of(type(request))))


def _check(codes: Iterable[int], what: str, key: str) -> None:
    for number in codes:
        if number:
            code = ErrorCode(number)
            kind = Fenced if code in _FENCED else KafkaError
            raise kind(f"{what} of {key}: {code.name}", code)
