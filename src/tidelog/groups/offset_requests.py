"""OffsetCommit 2-10, OffsetFetch 1-10, OffsetDelete 0 and TxnOffsetCommit 0-5, decided on the offsets and the group.

Topics are known by name here. For versions that name them by id the broker fills in the name before, and ids into
what is answered; ids that come along are stored, as Kafka 4.1 does.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from tidelog.coordination import Outcome, Producer, Timer
from tidelog.errors import ErrorCode
from tidelog.groups.commit_records import CommitRecords
from tidelog.groups.group import Group, GroupSettings
from tidelog.groups.offsets import NO_EXPIRY, NO_OFFSET, Committed, Offsets
from tidelog.groups.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.commit_fast import PARTITIONS_MAX, TopicOffsets
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

DEFAULT_RETENTION: Final = -1

TopicIdOf = Callable[[str], TopicId]
"""The id of the topic that has this name now; NO_TOPIC_ID if there is none."""

# Commit ---------------------------------------------------------------------------------------------------------------


def commit(
    request: OffsetCommitRequest, settings: GroupSettings, now_ms: int, timers: tuple[Timer, ...] = ()
) -> Outcome[Any, GroupRecord]:
    """The member's right to commit has been checked."""
    if request.retention_time_ms == DEFAULT_RETENTION:
        columns = _columns(request.topics)
        if columns is not None:
            response = OffsetCommitResponse(topics=tuple([_all_stored(topic) for topic in columns]))
            return Outcome(response, records=CommitRecords(request.group_id, columns, now_ms), timers=timers)
    expire_ms = NO_EXPIRY if request.retention_time_ms == DEFAULT_RETENTION else now_ms + request.retention_time_ms
    group_id, max_bytes = request.group_id, settings.offset_metadata_max_bytes
    records: list[GroupRecord] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        name, topic_id = topic.name, topic.topic_id
        results = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata
            if metadata and len(metadata) > max_bytes:
                results.append(_too_large(partition.partition_index))
            else:
                records.append(_record(group_id, name, partition, now_ms, expire_ms, topic_id))
                results.append(_stored(partition.partition_index))
        topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=tuple(results)))
    return Outcome(OffsetCommitResponse(topics=tuple(topics)), records=tuple(records), timers=timers)


def _columns(topics: Sequence[OffsetCommitRequestTopic]) -> tuple[TopicOffsets, ...] | None:
    """What is committed, if it is without metadata and not too much."""
    columns = []
    count = 0
    for topic in topics:
        partitions = topic.partitions
        count += len(partitions)
        if count > PARTITIONS_MAX or any(each.committed_metadata for each in partitions):
            return None
        columns.append(
            TopicOffsets(
                topic.name,
                topic.topic_id,
                tuple([each.partition_index for each in partitions]),
                tuple([each.committed_offset for each in partitions]),
                tuple([each.committed_leader_epoch for each in partitions]),
            )
        )
    return tuple(columns)


def _all_stored(topic: TopicOffsets) -> OffsetCommitResponseTopic:
    partitions = tuple([_stored(partition) for partition in topic.partitions])
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


@lru_cache(maxsize=1024)
def _stored(partition: int) -> OffsetCommitResponsePartition:
    """Nearly every answer of nearly every commit, so each is made once. It is not changed by anybody."""
    return OffsetCommitResponsePartition(partition_index=partition, error_code=ErrorCode.NONE)


def _too_large(partition: int) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE)


def commit_transactional(
    request: TxnOffsetCommitRequest, settings: GroupSettings, now_ms: int, topic_id_of: TopicIdOf
) -> Outcome[Any, GroupRecord]:
    """As above, but the offsets count only once the producer's transaction is committed."""
    records: list[GroupRecord] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if _metadata_is_too_long(partition.committed_metadata, settings):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                topic_id = topic_id_of(topic.name)
                records.append(_record(request.group_id, topic.name, partition, now_ms, NO_EXPIRY, topic_id))
            results.append(TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(results)))
    producer = Producer(request.producer_id, request.producer_epoch)
    return Outcome(TxnOffsetCommitResponse(topics=tuple(topics)), records=tuple(records), producer=producer)


def _metadata_is_too_long(metadata: str | None, settings: GroupSettings) -> bool:
    return metadata is not None and len(metadata) > settings.offset_metadata_max_bytes


def _record(
    group_id: str,
    topic: str,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
    topic_id: TopicId,
) -> GroupRecord:
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
            topic_id=topic_id,
        ),
    )


# Fetch ----------------------------------------------------------------------------------------------------------------

GROUPS_SINCE: Final = 8


def fetch_one(offsets: Offsets, request: OffsetFetchRequest, topic_id_of: TopicIdOf) -> OffsetFetchResponse:
    """Versions 1-7, which ask about one group. A group that nobody knows has committed nothing, which is no error."""
    group_id = request.group_id
    wanted: Iterable[tuple[str, Sequence[int]]] = _all_of(offsets, group_id).items()
    if request.topics is not None:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = []
    for name, numbers in wanted:
        topic_id = topic_id_of(name)
        found = [
            _look_up(offsets, group_id, TopicPartition(name, number), request.require_stable, topic_id)
            for number in numbers
        ]
        partitions = tuple(
            OffsetFetchResponsePartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=code,
            )
            for number, (committed, code) in zip(numbers, found, strict=True)
        )
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=tuple(topics))


def fetch_group(
    offsets: Offsets,
    group: Group | None,
    request: OffsetFetchRequestGroup,
    require_stable: bool,
    topic_id_of: TopicIdOf,
) -> OffsetFetchResponseGroup:
    """Versions 8 and later ask about several groups, and members may say who they are."""
    group_id = request.group_id
    if group is not None and (code := group.check_fetch(request.member_id, request.member_epoch)):
        return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=code)
    wanted: list[tuple[str, TopicId, Sequence[int]]]
    if request.topics is None:
        wanted = [(name, NO_TOPIC_ID, numbers) for name, numbers in _all_of(offsets, group_id).items()]
    else:
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
    topics = []
    for name, topic_id, numbers in wanted:
        partitions = []
        current_id = topic_id if topic_id != NO_TOPIC_ID else topic_id_of(name)
        for number in numbers:
            partition = TopicPartition(name, number)
            committed, code = _look_up(offsets, group_id, partition, require_stable, current_id)
            partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
            )
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=tuple(partitions)))
    return OffsetFetchResponseGroup(group_id=group_id, topics=tuple(topics))


def _all_of(offsets: Offsets, group_id: str) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(offsets.of(group_id)):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return by_topic


_NONE: Final = Committed(NO_OFFSET, -1, "", -1)


def _look_up(
    offsets: Offsets,
    group_id: str,
    partition: TopicPartition,
    require_stable: bool,
    topic_id: TopicId,
) -> tuple[Committed, ErrorCode]:
    if require_stable and offsets.is_pending(group_id, partition):
        return _NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
    committed = offsets.of(group_id).get(partition)
    # Also when it is asked by name: a crash in the middle of a deletion leaves what was committed for the old topic.
    if committed is None or not committed.is_of(topic_id):
        return _NONE, ErrorCode.NONE
    return committed, ErrorCode.NONE


# Delete ---------------------------------------------------------------------------------------------------------------


def delete(offsets: Offsets, group: Group | None, request: OffsetDeleteRequest) -> Outcome[Any, GroupRecord]:
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or code:
        return Outcome(OffsetDeleteResponse(error_code=code, topics=()))
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        numbers = [partition.partition_index for partition in topic.partitions]
        if not code:
            records += offsets.deletions(request.group_id, (TopicPartition(topic.name, number) for number in numbers))
        results = tuple(OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number in numbers)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    return Outcome(OffsetDeleteResponse(topics=tuple(topics)), records=tuple(records))
