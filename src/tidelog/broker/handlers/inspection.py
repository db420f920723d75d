"""Looking inside this broker: DescribeLogDirs 1-5 (sizes and disk space), DescribeProducers 0 (idempotent
producers).
"""

from collections.abc import Callable, Iterable

from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.configs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ProducerState,
)


class InspectionHandler:
    def __init__(self, partitions: Partitions, disk_space: Callable[[str], tuple[int, int]]) -> None:
        self._partitions = partitions
        self._disk_space = disk_space
        """(total, usable) bytes of the volume under a path."""

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(35, 1, 5, self.describe_log_dirs), Endpoint(61, 0, 0, self.describe_producers)]

    def describe_log_dirs(self, context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        directory = self._partitions.directory
        total, usable = self._disk_space(directory.path)
        by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
        for replica in self._asked(request):
            topic, partition = replica.partition
            size = replica.log.size_bytes
            by_topic.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=partition, partition_size=size, offset_lag=0, is_future_key=False
                )
            )
        return DescribeLogDirsResponse(
            results=(
                DescribeLogDirsResult(
                    error_code=ErrorCode.KAFKA_STORAGE_ERROR if directory.failure is not None else ErrorCode.NONE,
                    log_dir=directory.path,
                    topics=tuple(
                        DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
                        for name, partitions in by_topic.items()
                    ),
                    total_bytes=total,
                    usable_bytes=usable,
                ),
            )
        )

    def _asked(self, request: DescribeLogDirsRequest) -> Iterable[Replica]:
        if request.topics is None:
            yield from self._partitions
            return
        for topic in request.topics:
            for partition in topic.partitions:
                try:
                    yield self._partitions.get(topic.topic, partition)
                except KafkaError:
                    continue  # as Kafka does: a log that is not here is simply not listed

    def describe_producers(self, context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=tuple(
                DescribeProducersTopic(
                    name=topic.name,
                    partitions=tuple(self._producers_of(topic.name, index) for index in topic.partition_indexes),
                )
                for topic in request.topics
            )
        )

    def _producers_of(self, topic: str, index: int) -> DescribeProducersPartition:
        try:
            replica = self._partitions.get(topic, index)
        except KafkaError as error:
            return DescribeProducersPartition(
                partition_index=index, error_code=error.code, error_message=str(error), active_producers=()
            )
        return DescribeProducersPartition(
            partition_index=index,
            active_producers=tuple(
                ProducerState(
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.current_txn_first_offset,
                )
                for each in replica.log.producers
            ),
        )
