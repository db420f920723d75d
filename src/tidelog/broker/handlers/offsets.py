"""Questions about offsets, and moving the start of a log.

ListOffsets 1-11: earliest (-2), latest (-1), by time, max timestamp (-3, from 7), earliest local (-4, from 8); for
read_committed (from 2) the log ends at the last stable offset. Tiered storage does not exist here, so -5 and -6 have no
offset to give. OffsetForLeaderEpoch 2-4. DeleteRecords 0-2.
"""

from functools import partial

from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint
from tidelog.broker.turns import Turn, in_turns
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError, OffsetOutOfRange, PolicyViolation, StorageOffline
from tidelog.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
READ_COMMITTED = 1
EPOCHS_SINCE = 4  # the first ListOffsets that can carry one
HIGH_WATERMARK = -1  # as the offset of a DeleteRecords


class OffsetsHandler:
    def __init__(self, partitions: Partitions, *, for_brokers: bool = False) -> None:
        self._partitions = partitions
        self._for_brokers = for_brokers

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(2, 1, 11, self.list_offsets),
            Endpoint(23, 2, 4, self.offset_for_leader_epoch),
            Endpoint(21, 0, 2, self.delete_records),
        ]

    # -- ListOffsets ------------------------------------------------------------------------------------------------

    async def list_offsets(self, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
        turn = Turn()
        follower = self._for_brokers and request.replica_id >= 0
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                found = await self._list_one(
                    topic.name,
                    asked,
                    turn,
                    isolation=request.isolation_level,
                    version=context.version,
                    follower=follower,
                )
                partitions.append(found)
                await turn.give_way()
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
        return ListOffsetsResponse(topics=tuple(topics))

    async def _list_one(
        self, topic: str, asked: ListOffsetsPartition, turn: Turn, *, isolation: int, version: int, follower: bool
    ) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        try:
            replica = self._partitions.led(topic, index)
            replica.check_epoch(asked.current_leader_epoch)
            if follower and asked.timestamp == LATEST:
                offset, timestamp, epoch = replica.log.end_offset, -1, replica.leader_epoch
            else:
                offset, timestamp, epoch = await _find(replica, asked.timestamp, isolation, turn)
                # What was found below the watermark stays the answer. Where the log begins must be told in any case: a
                # follower that has to begin anew there may be the one without which the watermark does not move.
                if not replica.is_settled and (offset < 0 or asked.timestamp in (LATEST, MAX_TIMESTAMP)):
                    raise KafkaError("the new leader does not know yet what is safe", ErrorCode.OFFSET_NOT_AVAILABLE)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        return ListOffsetsPartitionResponse(
            partition_index=index,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch if version >= EPOCHS_SINCE else -1,
        )

    # -- OffsetForLeaderEpoch ---------------------------------------------------------------------------------------

    def offset_for_leader_epoch(
        self, context: Context, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(self._epoch_end(topic.topic, asked) for asked in topic.partitions),
                )
                for topic in request.topics
            )
        )

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> OffsetForLeaderEpochEndOffset:
        try:
            replica = self._partitions.led(topic, asked.partition)
            replica.check_epoch(asked.current_leader_epoch)
        except KafkaError as error:
            return OffsetForLeaderEpochEndOffset(partition=asked.partition, error_code=error.code)
        if asked.leader_epoch == replica.leader_epoch:
            epoch, end = asked.leader_epoch, replica.high_watermark
        else:
            epoch, end = replica.log.epochs.end_offset_for(asked.leader_epoch, replica.log.end_offset)
        return OffsetForLeaderEpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)

    # -- DeleteRecords ----------------------------------------------------------------------------------------------

    async def delete_records(self, context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        turn = Turn()
        topics = []
        for topic in request.topics:
            partitions = await in_turns(partial(self._delete_before, topic.name), topic.partitions, turn)
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        try:
            await self._partitions.checkpoint_start_offsets()
        except (OSError, StorageOffline):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            topics = [
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        DeleteRecordsPartitionResult(
                            partition_index=each.partition_index, low_watermark=-1, error_code=each.error_code or code
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in topics
            ]
        return DeleteRecordsResponse(topics=tuple(topics))

    def _delete_before(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = asked.partition_index
        try:
            replica = self._partitions.led(topic, index)
            if "delete" not in replica.config.cleanup_policy:
                raise PolicyViolation(f"records of the compacted topic {topic!r} cannot be deleted by offset")
            watermark = replica.high_watermark
            offset = watermark if asked.offset == HIGH_WATERMARK else asked.offset
            if not 0 <= offset <= watermark:
                raise OffsetOutOfRange(offset, replica.log.start_offset, watermark)
            replica.advance_start_offset(offset)
        except KafkaError as error:
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=replica.log.start_offset)


async def _find(replica: Replica, timestamp: int, isolation: int, turn: Turn) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) for a timestamp or one of the special ones; (-1, -1, -1) when there is none."""
    log = replica.log
    upper = replica.last_stable_offset if isolation == READ_COMMITTED else replica.high_watermark
    if timestamp == LATEST:
        return upper, -1, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, log.epochs.epoch_of(log.start_offset)
    if timestamp == MAX_TIMESTAMP:
        found = await turn.finish(log.find_newest(upper))
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    elif timestamp < 0:
        raise KafkaError(f"unknown special timestamp {timestamp}", ErrorCode.UNSUPPORTED_VERSION)
    else:
        found = await turn.finish(log.find_by_time(timestamp, upper))
    return (-1, -1, -1) if found is None else (found[0], found[1], found[2])
