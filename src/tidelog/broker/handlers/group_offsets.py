"""Committed offsets: OffsetCommit 2-10, OffsetFetch 1-10 (several groups from 8, topic ids from 10), OffsetDelete 0.

Shards know topics by name. Here ids become names and names ids, and commits for partitions that do not exist are
refused: they would be kept until they expire, for nobody.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tidelog.broker.coordinators.shard_requests import Ask
from tidelog.broker.handlers.groups import GroupRequests
from tidelog.broker.metadata import Metadata
from tidelog.broker.requests import Context, Endpoint, Later, Reply
from tidelog.cluster.image import MetadataImage
from tidelog.coordination import coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.commit_fast import TopicOffsets, decode_commit, encode_commit_response
from tidelog.wire.messages import offsets as messages
from tidelog.wire.schema import decode

TOPIC_IDS_SINCE: Final = 10
GROUPS_SINCE: Final = 8


class GroupOffsetsHandler:
    def __init__(self, requests: GroupRequests, metadata: Metadata) -> None:
        self._requests = requests
        self._metadata = metadata

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(8, 2, 10, handle_raw=self.commit),
            Endpoint(9, 1, 10, self.fetch),
            Endpoint(47, 0, 0, self.delete),
        ]

    # -- commit -----------------------------------------------------------------------------------------------------

    def commit(self, context: Context, frame: memoryview, body: int) -> None:
        version = context.version
        plain = decode_commit(frame, body, version)
        topics = None if plain is None else _known_topics(self._metadata.image, plain.topics, version)
        if plain is None or topics is None:
            self._commit_any(context, decode(messages.OffsetCommitRequest, version, frame, body))
            return
        known = plain._replace(topics=topics)
        later = Later(context.connection)

        def answered(answer: ErrorCode | KafkaError) -> None:
            code = coordinator_code(answer) if isinstance(answer, KafkaError) else answer
            later.fulfil([encode_commit_response(version, context.correlation_id, topics, code)])

        self._requests.coordinator.submit(
            known.group_id, lambda shard, _, now_ms: shard.commit(known, version, now_ms), answered
        )

    def _commit_any(self, context: Context, request: messages.OffsetCommitRequest) -> None:
        """With metadata, or of partitions that do not exist."""
        image = self._metadata.image
        wanted: list[messages.OffsetCommitRequestTopic] = []
        refused: list[messages.OffsetCommitResponseTopic] = []
        for topic in request.topics:
            known, unknown = _split(image, topic, context.version)
            if known is not None:
                wanted.append(known)
            if unknown is not None:
                refused.append(unknown)

        def combine(answers: list[Any]) -> messages.OffsetCommitResponse:
            answer: messages.OffsetCommitResponse = answers[0]
            return msgspec.structs.replace(answer, topics=_merged((*answer.topics, *refused)))

        asked = msgspec.structs.replace(request, topics=tuple(wanted))
        self._requests.ask(context, [Ask(request.group_id, asked)], combine)

    # -- fetch ------------------------------------------------------------------------------------------------------

    def fetch(self, context: Context, request: messages.OffsetFetchRequest) -> Reply:
        if context.version < GROUPS_SINCE:
            self._requests.ask_one(context, request.group_id, request)
            return None
        image = self._metadata.image
        by_id = context.version >= TOPIC_IDS_SINCE
        groups = _once_each(request.groups)
        asks = []
        for group in groups:
            asked = _named(image, group) if by_id else group
            asks.append(Ask(group.group_id, msgspec.structs.replace(request, groups=(asked,))))

        def combine(answers: list[Any]) -> messages.OffsetFetchResponse:
            answered = [group for answer in answers for group in answer.groups]
            if by_id:
                answered = [_with_ids(image, asked, group) for asked, group in zip(groups, answered, strict=True)]
            return messages.OffsetFetchResponse(groups=tuple(answered))

        return self._requests.ask(context, asks, combine)

    # -- delete -----------------------------------------------------------------------------------------------------

    def delete(self, context: Context, request: messages.OffsetDeleteRequest) -> None:
        self._requests.ask_one(context, request.group_id, request)


def _known_topics(
    image: MetadataImage, topics: Iterable[TopicOffsets], version: int
) -> tuple[TopicOffsets, ...] | None:
    """Under their names and with their ids, if all partitions exist and no topic comes twice."""
    known = {}
    for topic in topics:
        name = image.names_by_id.get(topic.topic_id) if version >= TOPIC_IDS_SINCE else topic.name
        found = image.topics.get(name) if name is not None else None
        partitions = topic.partitions
        if name is None or found is None or name in known:
            return None
        if min(partitions) < 0 or max(partitions) >= len(found.partitions):
            return None
        known[name] = TopicOffsets(name, TopicId(found.topic_id), partitions, topic.offsets, topic.leader_epochs)
    return tuple(known.values())


def _split(
    image: MetadataImage, topic: messages.OffsetCommitRequestTopic, version: int
) -> tuple[messages.OffsetCommitRequestTopic | None, messages.OffsetCommitResponseTopic | None]:
    """The partitions that exist, under their topic's name, and an answer for those that do not."""
    name: str | None = topic.name
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= TOPIC_IDS_SINCE:
        name = image.names_by_id.get(topic.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    found = image.topics.get(name) if name is not None else None
    count = len(found.partitions) if found is not None else 0
    topic_id = topic.topic_id
    if found is not None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = TopicId(found.topic_id)
    if name is not None and all(0 <= each.partition_index < count for each in topic.partitions) and topic.partitions:
        return msgspec.structs.replace(topic, name=name, topic_id=topic_id), None
    known = tuple(each for each in topic.partitions if 0 <= each.partition_index < count)
    unknown = tuple(
        messages.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in topic.partitions
        if not 0 <= each.partition_index < count
    )
    return (
        # With the id also where it was asked by name: a topic made anew must not inherit the offsets of an old one.
        msgspec.structs.replace(topic, name=name, topic_id=topic_id, partitions=known) if known else None,
        messages.OffsetCommitResponseTopic(name=topic.name, topic_id=topic_id, partitions=unknown) if unknown else None,
    )


def _merged(
    topics: Iterable[messages.OffsetCommitResponseTopic],
) -> tuple[messages.OffsetCommitResponseTopic, ...]:
    """A topic of which some partitions exist and others do not is one topic again. Ids identify where names do not."""
    parts: dict[object, list[messages.OffsetCommitResponseTopic]] = {}
    for topic in topics:
        key = topic.topic_id if topic.topic_id != NO_TOPIC_ID else topic.name
        parts.setdefault(key, []).append(topic)
    # Put together once and not part by part: a topic may be named a hundred thousand times.
    return tuple(
        msgspec.structs.replace(part[-1], partitions=tuple(each for topic in part for each in topic.partitions))
        for part in parts.values()
    )


def _once_each(groups: Iterable[messages.OffsetFetchRequestGroup]) -> list[messages.OffsetFetchRequestGroup]:
    """However often they are named: all offsets of a group may be many, and a small question must not have a huge
    answer."""
    wanted: dict[object, messages.OffsetFetchRequestGroup] = {}
    for group in groups:
        wanted.setdefault(group.group_id if group.topics is None else group, group)
    return list(wanted.values())


def _named(image: MetadataImage, group: messages.OffsetFetchRequestGroup) -> messages.OffsetFetchRequestGroup:
    """With names for ids. Unknown ids are left out here and answered by `_with_ids`."""
    if group.topics is None:
        return group
    return msgspec.structs.replace(
        group,
        topics=tuple(
            msgspec.structs.replace(topic, name=image.names_by_id[topic.topic_id])
            for topic in group.topics
            if topic.topic_id in image.names_by_id
        ),
    )


def _with_ids(
    image: MetadataImage, asked: messages.OffsetFetchRequestGroup, group: messages.OffsetFetchResponseGroup
) -> messages.OffsetFetchResponseGroup:
    if group.error_code:
        return group
    answered = []
    for topic in group.topics:
        found = image.topics.get(topic.name)
        if found is not None:  # offsets of a deleted topic have no id to be told under
            answered.append(msgspec.structs.replace(topic, topic_id=TopicId(found.topic_id)))
    answered.extend(
        messages.OffsetFetchResponseTopics(
            topic_id=wanted.topic_id,
            partitions=tuple(
                messages.OffsetFetchResponsePartitions(
                    partition_index=number, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
                for number in wanted.partition_indexes
            ),
        )
        for wanted in asked.topics or ()
        if wanted.topic_id not in image.names_by_id
    )
    return msgspec.structs.replace(group, topics=tuple(answered))
