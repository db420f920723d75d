"""Sends record batches to the leaders of their partitions: several requests on the way, each batch once, in its order.

Batches carry a producer id, an epoch and sequence numbers, so a broker recognises one that was sent before. When an
answer is an error that may pass, or does not come, everything on the way is collected, the leaders are asked for anew,
and what is not acknowledged goes again, oldest first and one request at a time until the gap is closed.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from tidelog.client.cluster import RETRIABLE, Cluster
from tidelog.client.negotiated import NegotiatedConnection
from tidelog.errors import ErrorCode, KafkaError, MalformedMessage, UnknownTopicOrPartition
from tidelog.ids import TopicPartition
from tidelog.spark.sink.batches import Batch
from tidelog.wire.messages.admin import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.data import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

VERSION: Final = 11
"""The newest Produce whose transactions are begun by AddPartitionsToTxn: later ones end in another epoch."""
REQUEST_BYTES: Final = 4 << 20
IN_FLIGHT: Final = 5
"""Batches of one producer that a broker remembers per partition; more on the way could not be told from repetitions."""
HELD_BYTES: Final = 16 << 20
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_PASSING: Final = RETRIABLE | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # metadata that is a moment behind
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class NotDelivered(KafkaError):
    """Some batches were not acknowledged in time, or not accepted."""


class _Sent(NamedTuple):
    connection: NegotiatedConnection
    batches: list[Batch]


class Producer:
    """`before` is told which partitions a request will be the first to write to, before it goes out."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        before: Callable[[Iterable[TopicPartition]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._acks, self._transactional_id = acks, transactional_id
        self._request_timeout_ms, self._delivery_timeout_s = request_timeout_ms, delivery_timeout_ms / 1000
        self._before = before
        self._counts: dict[str, int] = {}
        self._begun: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, deque[Batch]] = {}
        self._waiting_bytes = 0
        self._connections: dict[int, NegotiatedConnection] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._sent: deque[_Sent] = deque()
        self._on_the_way: Counter[TopicPartition] = Counter()
        self._known: set[TopicPartition] = set()

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, the same for the whole life of this producer: equal keys stay together. A
        broker that creates topics at the first mention may do so."""
        if topic not in self._counts:
            self._counts[topic] = self._count(topic)
        return self._counts[topic]

    def _count(self, topic: str) -> int:
        found = self._cluster.topics([topic])
        if topic not in found:
            self._cluster.retry(lambda: self._create(topic))
            found = self._cluster.topics([topic])
        if topic not in found:
            raise UnknownTopicOrPartition(f"topic {topic} does not exist, and the broker does not create topics")
        return len(found[topic].partitions)

    def _create(self, topic: str) -> None:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=True)
        for row in self._cluster.anyone().ask(request).topics:
            if row.error_code and row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(f"topic {row.name}: {ErrorCode(row.error_code).name}", ErrorCode(row.error_code))

    def send(self, batch: Batch) -> None:
        """Takes a batch; returns before it is acknowledged, unless much is held already."""
        self._waiting.setdefault(batch.partition, deque()).append(batch)
        self._waiting_bytes += len(batch.data)
        if self._waiting_bytes >= HELD_BYTES:
            self._deliver(HELD_BYTES // 2)

    def flush(self) -> None:
        """Returns when every batch is acknowledged."""
        self._deliver(0)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._sent.clear()

    # --- delivering ---------------------------------------------------------------------------------------------------

    def _deliver(self, held_max: int) -> None:
        """Sends until no more than `held_max` bytes wait; for 0, until every answer is there."""
        deadline: float | None = None
        pause = _PAUSE_S
        while True:
            try:
                self._exchange(held_max if deadline is None else 0, IN_FLIGHT if deadline is None else 1)
                if deadline is None or held_max == 0:
                    return
                deadline, pause = None, _PAUSE_S
            except (OSError, MalformedMessage, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _PASSING:
                    raise
                if deadline is None:
                    deadline = time.monotonic() + self._delivery_timeout_s
                if time.monotonic() + pause > deadline:
                    raise NotDelivered(f"not delivered in {self._delivery_timeout_s:.0f} s: {error}") from error
                self._collect()
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_S_MAX)

    def _exchange(self, held_max: int, in_flight_max: int) -> None:
        while self._waiting_bytes > held_max:
            ready = self._requests()
            if not ready:
                self._receive()
            for node, batches in ready:
                while len(self._sent) >= in_flight_max:
                    self._receive()
                self._send(node, batches)
        while self._sent and (held_max == 0 or len(self._sent) >= in_flight_max):
            self._receive()

    def _requests(self) -> list[tuple[int, list[Batch]]]:
        """The oldest batch of every partition, by leader; those of one leader in requests of a good size.

        Not of a partition whose very first batch is on the way: a broker that has not heard of a producer takes any
        sequence number, so a second batch could be let in before a first that was refused.
        """
        self._find_leaders()
        made: list[tuple[int, list[Batch]]] = []
        open_requests: dict[int, tuple[list[Batch], int]] = {}
        for partition, batches in self._waiting.items():
            if not batches or (self._on_the_way[partition] and partition not in self._known):
                continue
            node = self._leaders[partition]
            group, size = open_requests.get(node, ([], 0))
            if not group or size + len(batches[0].data) > REQUEST_BYTES:
                group, size = [], 0
                made.append((node, group))
            group.append(batches[0])
            open_requests[node] = group, size + len(batches[0].data)
        return made

    def _find_leaders(self) -> None:
        unknown = [at for at, batches in self._waiting.items() if batches and at not in self._leaders]
        if unknown:
            self._cluster.topics({topic for topic, _ in unknown})
            for node, topics in self._cluster.by_leader(unknown).items():
                for topic, numbers in topics.items():
                    self._leaders.update({TopicPartition(topic, number): node for number in numbers})

    def _send(self, node: int, batches: list[Batch]) -> None:
        fresh = [batch.partition for batch in batches if batch.partition not in self._begun]
        if fresh and self._before is not None:
            self._before(fresh)
        self._begun.update(fresh)
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            row = PartitionProduceData(index=batch.partition.partition, records=memoryview(batch.data))
            topics.setdefault(batch.partition.topic, []).append(row)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=topic, partition_data=tuple(rows)) for topic, rows in topics.items()
            ),
        )
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._cluster.connect(node)
        # Noted first: when sending fails halfway, these batches are among what must go again.
        for batch in batches:
            self._waiting[batch.partition].popleft()
            self._waiting_bytes -= len(batch.data)
            self._on_the_way[batch.partition] += bool(self._acks)
        if self._acks:
            self._sent.append(_Sent(connection, batches))
        connection.send(request, min(VERSION, connection.version_of(ProduceRequest)))

    def _receive(self) -> None:
        sent = self._sent[0]
        answer: ProduceResponse = sent.connection.receive()
        self._sent.popleft()
        failed = self._failed(sent, answer)
        if failed is not None:
            raise failed

    def _failed(self, sent: _Sent, answer: ProduceResponse) -> KafkaError | None:
        """Puts back what was not accepted; the first error among them, one that does not pass before all others."""
        by_partition = {batch.partition: batch for batch in sent.batches}
        failures: list[KafkaError] = []
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = by_partition[TopicPartition(topic.name, row.index)]
                self._on_the_way[batch.partition] -= 1
                if row.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._known.add(batch.partition)
                    continue
                code = ErrorCode(row.error_code)
                self._put_back([batch])
                says = f"{batch.partition}: {code.name}" + (f" ({row.error_message})" if row.error_message else "")
                failures.append(KafkaError(says, code))
        return min(failures, key=lambda failure: failure.code in _PASSING, default=None)

    def _collect(self) -> None:
        """After a failure: what is still on the way is waited for or given up, then nothing is on the way and nothing
        is known of the cluster."""
        for sent in self._sent:
            try:
                answer = sent.connection.receive()
            except (OSError, MalformedMessage, RuntimeError):
                # Whatever was behind this answer on the connection does not come either.
                sent.connection.close()
                self._put_back(sent.batches)
                continue
            # A batch behind a refused one is refused for its sequence number alone, so no error here is the last word.
            self._failed(sent, answer)
        self._sent.clear()
        self._on_the_way.clear()
        for connection in self._connections.values():
            with suppress(OSError):
                connection.close()
        self._connections.clear()
        self._leaders.clear()

    def _put_back(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            waiting = self._waiting.setdefault(batch.partition, deque())
            waiting.append(batch)
            self._waiting_bytes += len(batch.data)
            self._waiting[batch.partition] = deque(sorted(waiting, key=lambda each: _age(each, waiting)))


def _age(batch: Batch, among: Iterable[Batch]) -> int:
    """Sequence numbers begin again at 0 behind 2**31 - 1: a low one beside a high one is the younger."""
    highest = max(each.sequence for each in among)
    return batch.sequence + (1 << 31 if highest - batch.sequence > 1 << 30 else 0)
