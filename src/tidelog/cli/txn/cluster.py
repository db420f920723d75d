"""What coordinators and partition leaders say about transactions, and the two ways to end one from outside.

confluent-kafka's admin client knows nothing of transactions: all of this is asked with our own small client.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from tidelog.cli.connecting import TIMEOUT_SECONDS
from tidelog.cli.problems import Problem
from tidelog.client.cluster import LATEST, READ_COMMITTED, Cluster, raise_for
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.observe.clients import Kafka, speaks_plainly
from tidelog.wire.messages.admin import DescribeClusterRequest
from tidelog.wire.messages.configs import DescribeProducersRequest, DescribeProducersRequestTopic
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    ListedTransactionState,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

RUNNING: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
AT_REST: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
STATES: Final = (*RUNNING, *AT_REST)
_TRANSACTIONS: Final = 1  # the kind of coordinator
_FIND_ONE_VERSION: Final = 3
_RETRY_S: Final = 0.05


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """As its coordinator knows it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    duration_ms: int | None
    """Of one that is open."""
    coordinator: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING


class OpenOn(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction as the leader of one partition knows it: records, and no marker yet."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int
    """When it last wrote there."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Transactions:
    """Questions to a whole cluster. Used by one command, for a moment."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: list[int] = []

    @classmethod
    def of(cls, kafka: Kafka, bootstrap: str) -> "Transactions":
        if not speaks_plainly(kafka):
            raise Problem(
                "transactions can be asked for over PLAINTEXT connections only",
                "name a listener without TLS and passwords with -b HOST:PORT",
            )
        return cls(Cluster(bootstrap, client_id="tidelog-cli", timeout_s=TIMEOUT_SECONDS))

    # -- looking ------------------------------------------------------------------------------------------------------

    def all(self, producer_ids: Iterable[int] = ()) -> list[Transaction]:
        """Of every coordinator, by name. What is over already is among it until its id expires."""
        request = ListTransactionsRequest(state_filters=(), producer_id_filters=tuple(producer_ids))
        found: list[Transaction] = []
        for node in self.nodes():
            listed: tuple[ListedTransactionState, ...] = self._ask(node, request).transaction_states
            names = [each.transactional_id for each in listed]
            found += self._cluster.retry(partial(self._described, node, names))
        return sorted(found, key=lambda each: each.transactional_id)

    def one(self, transactional_id: str) -> Transaction | None:
        # Its coordinator may be another one by the time it is asked, or still be reading what it is to know.
        found = self._cluster.retry(lambda: self._described(self.coordinator(transactional_id), [transactional_id]))
        return found[0] if found else None

    def _described(self, node: int, names: list[str]) -> list[Transaction]:
        if not names:
            return []
        now_ms = time.time_ns() // 1_000_000
        rows = self._ask(node, DescribeTransactionsRequest(transactional_ids=tuple(names))).transaction_states
        found = []
        for row in rows:
            if row.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it may have expired since it was listed
                raise_for(row.error_code, f"transactional id {row.transactional_id}")
                found.append(_transaction(row, node, now_ms))
        return found

    def open_on(self, partitions: Iterable[TopicPartition]) -> list[OpenOn]:
        """By partition and offset. A partition that has gone meanwhile is left out."""
        found: list[OpenOn] = []
        for node, topics in self._cluster.retry(lambda: self._cluster.by_leader(partitions)).items():
            asked = tuple(
                DescribeProducersRequestTopic(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in topics.items()
            )
            found += _open(self._ask(node, DescribeProducersRequest(topics=asked)))
        return sorted(found, key=lambda each: (each.place, each.start_offset))

    def held_back(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How many offsets after the last stable one readers of committed records are kept from."""
        wanted = dict.fromkeys(partitions, LATEST)
        ends = self._cluster.offsets(wanted)
        stable = self._cluster.offsets(wanted, READ_COMMITTED)
        return {place: ends[place].offset - stable[place].offset for place in wanted}

    def partitions(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Of these topics, or of all there are, internal ones as well: offsets in transactions are records there."""
        found = self._cluster.topics(topics)
        return sorted(TopicPartition(topic.name, number) for topic in found.values() for number in topic.partitions)

    def nodes(self) -> list[int]:
        if not self._nodes:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            brokers = self._cluster.retry(lambda: self._cluster.anyone().ask(request)).brokers
            for broker in brokers:
                self._cluster.remember(broker.broker_id, broker.host, broker.port)
            self._nodes = sorted(broker.broker_id for broker in brokers)
        return self._nodes

    def coordinator(self, transactional_id: str) -> int:
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTIONS)

        def find() -> Any:
            answer = self._cluster.anyone().call(request, _FIND_ONE_VERSION)
            raise_for(answer.error_code, f"the coordinator of {transactional_id}")
            return answer

        answer = self._cluster.retry(find)
        self._cluster.remember(answer.node_id, answer.host, answer.port)
        return int(answer.node_id)

    def _ask(self, node: int, request: Any) -> Any:
        def ask() -> Any:
            self.nodes()  # a retry forgets connections, not addresses
            answer = self._cluster.node(node).ask(request)
            raise_for(getattr(answer, "error_code", 0), f"node {node}")
            return answer

        return self._cluster.retry(ask)

    # -- ending -------------------------------------------------------------------------------------------------------

    def take_over(self, transaction: Transaction) -> None:
        """As a new owner of its id would: the open transaction is aborted everywhere, and its producer is fenced."""
        request = InitProducerIdRequest(
            transactional_id=transaction.transactional_id, transaction_timeout_ms=transaction.timeout_ms
        )
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                self._ask(transaction.coordinator, request)
                return
            except KafkaError as refused:
                # Said until the abort has reached every partition.
                if refused.code is not ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    def mark_aborted(self, one: OpenOn) -> None:
        """An abort marker into this partition alone, past the coordinator."""
        marker = WritableTxnMarker(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            transaction_result=False,
            topics=(WritableTxnMarkerTopic(name=one.topic, partition_indexes=(one.partition,)),),
            # Never less than what the partition has seen, or it takes this for the word of a deposed coordinator.
            coordinator_epoch=max(one.coordinator_epoch, 0),
        )
        (node,) = self._cluster.retry(lambda: self._cluster.by_leader([one.place]))
        answer = self._ask(node, WriteTxnMarkersRequest(markers=(marker,)))
        for row in (part for each in answer.markers for topic in each.topics for part in topic.partitions):
            raise_for(row.error_code, f"the marker for {one.topic}-{one.partition}")

    def close(self) -> None:
        self._cluster.close()


def owners(transactions: Iterable[Transaction]) -> Mapping[int, Transaction]:
    return {each.producer_id: each for each in transactions}


def _transaction(row: DescribedTransactionState, node: int, now_ms: int) -> Transaction:
    started = row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None
    running = row.transaction_state in RUNNING and started is not None
    return Transaction(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        start_ms=started,
        duration_ms=max(now_ms - started, 0) if running and started is not None else None,
        coordinator=node,
        partitions=tuple(
            sorted(TopicPartition(each.topic, number) for each in row.topics for number in each.partitions)
        ),
    )


def _open(answer: Any) -> Iterator[OpenOn]:
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for(part.error_code, f"producers of {topic.name}-{part.partition_index}")
            for each in part.active_producers:
                if each.current_txn_start_offset >= 0:
                    yield OpenOn(
                        topic=topic.name,
                        partition=part.partition_index,
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        coordinator_epoch=each.coordinator_epoch,
                        start_offset=each.current_txn_start_offset,
                        last_ms=each.last_timestamp,
                    )
