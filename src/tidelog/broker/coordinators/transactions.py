"""The transaction coordinator put together: settings for its shards, the topic they live in, and their markers."""

from asyncio import AbstractEventLoop
from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import uuid4

from tidelog.broker.coordinators.coordinator import Coordinator, InternalTopic
from tidelog.broker.coordinators.groups import GroupRoom
from tidelog.broker.coordinators.markers import Failures
from tidelog.broker.coordinators.producer_ids import ProducerIds
from tidelog.broker.coordinators.shard_host import ShardHost, TransactionEnd
from tidelog.broker.flusher import Flusher
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.marker_sender import WritesMarkers
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.groups.regex import TopicPattern
from tidelog.ids import TopicPartition
from tidelog.transactions.ahead import SETTLE_MS, nowhere
from tidelog.transactions.context import Markers, TransactionSettings
from tidelog.transactions.records import TransactionRecord, decode_record, encode_record
from tidelog.transactions.shard import TransactionShard
from tidelog.wire.records import encode_pairs

TRANSACTIONS_TOPIC: Final = "__transaction_state"
RETRY_SECONDS: Final = 0.1
"""Until markers are tried again that could not be written. Longer each time, up to the next."""
RETRY_SECONDS_MAX: Final = 1.0

log = get_logger("transactions")

TransactionCoordinator = Coordinator[TransactionShard, TransactionRecord]
TransactionHost = ShardHost[TransactionShard, TransactionRecord]


class TransactionRecords:
    """Kafka's record format, as the coordinator's host wants it."""

    def encode(self, records: Sequence[TransactionRecord]) -> bytearray:
        return encode_pairs([encode_record(record) for record in records])

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)


class TransactionRoom:
    """Makes the coordinator and carries out what its shards decide."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        metadata: Metadata,
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
        *,
        groups: GroupRoom,
        producer_ids: ProducerIds,
        markers: WritesMarkers,
        alone: bool = False,
    ) -> None:
        """`alone`: there are no other brokers that could become the coordinator, or lead what it writes to."""
        self._config = config
        self._partitions = partitions
        self._alone = alone
        self._metadata = metadata
        self._loop = loop
        self._groups = groups
        self._producer_ids = producer_ids
        self._markers = markers
        self.coordinator: TransactionCoordinator = Coordinator(
            InternalTopic(
                TRANSACTIONS_TOPIC,
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                },
            ),
            self._make_shard,
            TransactionRecords(),
            partitions=partitions,
            metadata=metadata,
            flusher=flusher,
            clock=clock,
            loop=loop,
            new_topic_id=uuid4,
            on_effect=self._carry_out,
        )

    def _make_shard(self, replica: Replica) -> TransactionShard:
        config = self._config
        return TransactionShard(
            TransactionSettings(
                transaction_max_timeout_ms=config.transaction_max_timeout_ms,
                transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            ),
            self._producer_ids.take,
            self._groups.coordinator.partition_for,
            coordinator_epoch=replica.leader_epoch,
            select=lambda pattern, names: TopicPattern(pattern).select(names),
            ends_of=self._ends_of if self._alone else nowhere,
        )

    def _ends_of(
        self, partitions: Collection[TopicPartition], *, ended_by: int | None = None
    ) -> dict[TopicPartition, int]:
        try:
            logs = {each: self._partitions.get(*each).log for each in partitions}
        except KafkaError:  # one of them was deleted
            return {}
        if ended_by is not None:
            for each in logs.values():
                each.producers.verifications.end(ended_by)
        return {partition: each.end_offset for partition, each in logs.items()}

    async def expire_ids(self) -> None:
        for host in self.coordinator.hosts:
            host.apply(lambda shard, now_ms: shard.expiry(now_ms))

    # -- what was decided -------------------------------------------------------------------------------------------

    def _carry_out(self, host: TransactionHost, markers: Markers) -> None:
        self._write(host, markers, markers.partitions, RETRY_SECONDS, frozenset())

    def _write(
        self,
        host: TransactionHost,
        markers: Markers,
        partitions: tuple[TopicPartition, ...],
        patience_s: float,
        ahead: frozenset[TopicPartition],
    ) -> None:
        """`ahead`: where the producer's next transaction was found to have begun."""
        if _is_gone(host):
            return
        begun = {each: safe for each in partitions if (safe := self._begun_next(markers, each)) is not None}
        if begun:
            ahead = ahead.union(begun)
            partitions = tuple(each for each in partitions if each not in begun)
        end = TransactionEnd(
            markers.producer_id,
            markers.producer_epoch,
            markers.committed,
            markers.coordinator_epoch,
            markers.transaction_version,
        )

        def written(failures: Failures) -> None:
            for each, safe in begun.items():
                if not safe:
                    failures[each] = KafkaError(f"the marker in {each} is not safe", ErrorCode.REQUEST_TIMED_OUT)
            self._written(host, markers, patience_s, ahead, failures)

        if self._markers.write(end, partitions, written) and markers.ends:
            host.shard.markers_placed(markers)

    def _begun_next(self, markers: Markers, partition: TopicPartition) -> bool | None:
        """Not None if what is open there began behind what these markers end. Then the marker is there, before it: the
        producer went ahead, and this broker went down before that was written down, or its disk has been stuck for
        long. The answer is whether the marker is safe."""
        end = markers.ends.get(partition)
        if end is None:
            return None
        try:
            replica = self._partitions.get(*partition)
        except KafkaError:
            return None
        first = replica.log.producers.transactions.open.get(markers.producer_id, -1)
        return replica.high_watermark >= first if first >= end else None

    def _written(
        self,
        host: TransactionHost,
        markers: Markers,
        patience_s: float,
        ahead: frozenset[TopicPartition],
        failures: Failures,
    ) -> None:
        if _is_gone(host):
            return
        left = tuple(partition for partition, error in failures.items() if not self._is_over(partition, error))
        if not left:
            # Behind the answers to those who waited for the same syncs.
            self._loop.call_soon(self._are_safe, host, markers, ahead)
            return
        log.warning(
            "markers are tried again",
            transactional_id=markers.transactional_id,
            partitions=[str(each) for each in left],
            error=str(failures[left[0]]),
        )
        longer_s = min(2 * patience_s, RETRY_SECONDS_MAX)
        self._loop.call_later(patience_s, self._write, host, markers, left, longer_s, ahead)

    def _is_over(self, partition: TopicPartition, error: KafkaError) -> bool:
        """Nothing is left to end there: a newer epoch ended the transaction already, or the partition was deleted. One
        that is only not here yet, because this broker is starting, is waited for: its readers wait for the marker."""
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic = self._metadata.image.topics.get(partition.topic)
            return topic is None or partition.partition >= len(topic.partitions)
        return error.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def _are_safe(self, host: TransactionHost, markers: Markers, ahead: frozenset[TopicPartition]) -> None:
        if not ahead and host.shard.markers_safe(markers):
            self._loop.call_later(SETTLE_MS / 1000, self._settle, host, markers)
        else:
            self._report(host, markers, ahead)

    def _settle(self, host: TransactionHost, markers: Markers) -> None:
        if host.shard.is_to_be_settled(markers):  # else it was written down meanwhile, with what followed
            self._report(host, markers, frozenset())

    def _report(self, host: TransactionHost, markers: Markers, ahead: frozenset[TopicPartition]) -> None:
        if _is_gone(host):
            return

        def decide(shard: TransactionShard, waiter: int, now_ms: int) -> Any:
            return shard.markers_written(markers, now_ms, ahead)

        def done(answer: bool | KafkaError) -> None:
            if isinstance(answer, KafkaError) and not _is_gone(host):
                # The log refused the record. The markers are in place, so only this is to be done again.
                self._loop.call_later(RETRY_SECONDS, self._report, host, markers, ahead)

        # Until this is safe the markers would be written again, which does no harm. The next transaction of the same
        # producer writes right behind it, and both are one sync.
        host.submit(decide, done, patiently=True)


def _is_gone(host: TransactionHost) -> bool:
    """With its disk, or to another leader; whoever loads the shard next is handed its markers again."""
    return host.failure is not None or host.replica.log.failure is not None
