"""Writes the ends of transactions into the logs they wrote to, and tells when they are safe there."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.shard_host import TransactionEnd
from tidelog.broker.flusher import Flusher
from tidelog.broker.partitions import Partitions
from tidelog.broker.waiting import ParkedProduce, Waiting
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

SAFE_SECONDS: Final = 30.0
"""After which a marker that is still not safe is reported as failed."""

Failures = dict[TopicPartition, KafkaError]


class MarkerWriter:
    def __init__(
        self,
        partitions: Partitions,
        groups: Coordinator[Any, Any],
        waiting: Waiting,
        flusher: Flusher,
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        """Its shards keep offsets that were committed in transactions, so their markers go through them."""
        self._waiting = waiting
        self._flusher = flusher
        self._clock = clock

    def write(
        self,
        end: TransactionEnd,
        partitions: Iterable[TopicPartition],
        done: Callable[[Failures], None],
    ) -> bool:
        """`done` is told what failed, when all else is safe. True if they are all in their logs by now."""
        failures: Failures = {}
        waits: list[tuple[Replica, int]] = []
        offsets: list[TopicPartition] = []
        for partition in partitions:
            try:
                if partition.topic == self._groups.topic.name:
                    offsets.append(partition)
                else:
                    waits.extend(self._append(end, partition))
            except KafkaError as error:
                failures[partition] = error
        missing = len(offsets) + 1

        def arrived() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done(failures)

        def safe(parked: ParkedProduce) -> None:
            for replica, needed in waits:
                if replica in parked.failed or replica.high_watermark < needed:
                    text = f"the marker in {replica.partition} is not safe"
                    failures[replica.partition] = KafkaError(text, ErrorCode.REQUEST_TIMED_OUT)
            arrived()

        placed = not failures
        for partition in offsets:
            placed &= self._end_offsets(end, partition, failures, arrived)
        if waits:
            self._waiting.park_produce(waits, SAFE_SECONDS, safe)
        else:
            arrived()
        return placed

    def _append(self, end: TransactionEnd, partition: TopicPartition) -> list[tuple[Replica, int]]:
        """What to wait for."""
        replica = self._partitions.get(*partition)
        appended = replica.append_marker(
            end.producer_id,
            end.producer_epoch,
            committed=end.committed,
            coordinator_epoch=end.coordinator_epoch,
            now_ms=self._clock.now_ms(),
            transaction_version=end.transaction_version,
        )
        if replica.high_watermark > appended.last_offset:
            return []
        self._flusher.mark(replica)
        return [(replica, appended.last_offset + 1)]

    def _end_offsets(
        self,
        end: TransactionEnd,
        partition: TopicPartition,
        failures: Failures,
        arrived: Callable[[], None],
    ) -> bool:
        def done(answer: KafkaError | None) -> None:
            if answer is not None:
                failures[partition] = answer
            arrived()

        try:
            self._partitions.get(*partition)
            host = self._groups.host_at(partition.partition)
        except KafkaError as error:
            done(error)
            return False
        return host.end_transaction(end, done)
