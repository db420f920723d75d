"""Looking inside this broker: DescribeLogDirs 1-5 (sizes and disk space), DescribeProducers 0 (idempotent and
transactional producers, and where each one's open transaction began).
"""

from collections.abc import Callable, Iterable
from functools import partial

from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint
from tidelog.broker.turns import Turn, in_turns
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

    async def describe_log_dirs(self, context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        directory = self._partitions.directory
        total, usable = self._disk_space(directory.path)
        by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
        replicas = dict.fromkeys(self._asked(request))  # once each, however often they are named
        for partition in await in_turns(_sized, replicas):
            by_topic.setdefault(partition[0], []).append(partition[1])
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

    async def describe_producers(
        self, context: Context, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        asked: dict[str, dict[int, None]] = {}  # once each, however often they are named
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        turn = Turn()
        topics = []
        for name, indexes in asked.items():
            partitions = await in_turns(partial(self._producers_of, name), indexes, turn)
            topics.append(DescribeProducersTopic(name=name, partitions=partitions))
        return DescribeProducersResponse(topics=tuple(topics))

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


def _sized(replica: Replica) -> tuple[str, DescribeLogDirsPartition]:
    topic, partition = replica.partition
    size = replica.log.size_bytes
    return topic, DescribeLogDirsPartition(
        partition_index=partition, partition_size=size, offset_lag=0, is_future_key=False
    )
