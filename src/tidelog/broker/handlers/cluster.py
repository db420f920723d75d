"""Who is here and what exists.

ApiVersions 0-4: exactly the endpoints that are wired. Metadata 0-13: creates missing topics if both sides allow it;
lookup by id from 12. DescribeCluster 0-2. DescribeTopicPartitions 0, with paging. Not done: authorized operations are
always the "unknown" value; there are no ACLs yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from tidelog.broker.advertised import Advertised
from tidelog.broker.metadata import Metadata
from tidelog.broker.peers.members import members, offline
from tidelog.broker.requests import Context, Endpoint, Reply
from tidelog.broker.turns import in_turns
from tidelog.cluster.controller import check_topic_name
from tidelog.cluster.image import NO_LEADER, MetadataImage, TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.messages.admin import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from tidelog.wire.schema import encode

PARTITIONS_PER_ANSWER = 2000
TRANSACTION_VERSION = "transaction.version"
SECOND_PROTOCOL = 2
"""The transaction.version with an epoch per transaction (KIP-890); clients of the first are served as before."""
BROKER_ENDPOINTS = 1
CACHED_ANSWERS = 64
CACHED_BYTES_MAX = 512 * 1024
TOPICS_PER_TURN = 500

AutoCreate = Callable[[str], Awaitable[None]]


class ClusterHandler:
    def __init__(
        self,
        metadata: Metadata,
        advertised: Advertised,
        node_id: int,
        auto_create: AutoCreate | None,
        served: Callable[[], Iterable[Endpoint]],
    ) -> None:
        self._metadata = metadata
        self._advertised = advertised
        self._node_id = node_id
        self._auto_create = auto_create
        self._served = served
        self._api_versions: ApiVersionsResponse | None = None
        self._cached_image: MetadataImage | None = None
        self._cache: dict[object, bytes] = {}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(18, 0, 4, self.api_versions),
            Endpoint(3, 0, 13, self.metadata),
            Endpoint(60, 0, 2, self.describe_cluster),
            Endpoint(75, 0, 0, self.describe_topic_partitions),
        ]

    def api_versions(self, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if self._api_versions is None:
            served = (each for each in self._served() if each.advertised)
            ranges = sorted((each.api_key, each.min_version, each.max_version) for each in served)
            self._api_versions = ApiVersionsResponse(
                api_keys=tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges),
                supported_features=(
                    SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=SECOND_PROTOCOL),
                ),
                finalized_features_epoch=0,
                finalized_features=(
                    FinalizedFeatureKey(
                        name=TRANSACTION_VERSION, max_version_level=SECOND_PROTOCOL, min_version_level=SECOND_PROTOCOL
                    ),
                ),
            )
        return self._api_versions

    # -- Metadata ---------------------------------------------------------------------------------------------------

    def metadata(self, context: Context, request: MetadataRequest) -> Reply:
        if request.topics:
            # Each topic once, however often it is named: a small question must not have a huge answer.
            request = msgspec.structs.replace(request, topics=tuple(dict.fromkeys(request.topics)))
        missing = self._to_create(request)
        if missing or len(request.topics or ()) > TOPICS_PER_TURN:
            return self._create_and_answer(context, request, missing)
        return self._answer(context, request)

    def _to_create(self, request: MetadataRequest) -> list[str]:
        if self._auto_create is None or not request.allow_auto_topic_creation:
            return []
        topics = self._metadata.image.topics
        return [topic.name for topic in request.topics or () if topic.name and topic.name not in topics]

    async def _create_and_answer(self, context: Context, request: MetadataRequest, missing: Sequence[str]) -> bytes:
        for name in missing:
            assert self._auto_create is not None
            await asyncio.sleep(0)
            await self._auto_create(name)
        if len(request.topics or ()) <= TOPICS_PER_TURN:
            return self._answer(context, request)
        image = self._metadata.image
        topics = await in_turns(lambda asked: _topic(image, asked, context.version), request.topics or ())
        return encode(self._response(image, topics, *self._advertised.to(context.connection)), context.version)

    def _answer(self, context: Context, request: MetadataRequest) -> bytes:
        """Clients ask for the same thing over and over, so the encoded answer is kept until the image changes."""
        image = self._metadata.image
        if image is not self._cached_image:
            self._cached_image = image
            self._cache.clear()
        host, port = self._advertised.to(context.connection)
        key = (context.version, request.topics, host, port)
        body = self._cache.get(key)
        if body is None:
            if len(self._cache) >= CACHED_ANSWERS:
                self._cache.clear()
            version = context.version
            if request.topics is None or (version == 0 and not request.topics):
                topics = tuple(_known(image, topic) for topic in image.topics.values())
            else:
                topics = tuple(_topic(image, asked, version) for asked in request.topics)
            body = encode(self._response(image, topics, host, port), version)
            if len(body) <= CACHED_BYTES_MAX:
                self._cache[key] = body
        return body

    def _response(
        self, image: MetadataImage, topics: tuple[MetadataResponseTopic, ...], host: str, port: int
    ) -> MetadataResponse:
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in members(image, self._node_id, host, port)
            ),
            cluster_id=image.cluster_id,
            controller_id=self._node_id,
            topics=topics,
        )

    # -- DescribeCluster --------------------------------------------------------------------------------------------

    def describe_cluster(self, context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
        image = self._metadata.image
        if request.endpoint_type != BROKER_ENDPOINTS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="this is a broker's endpoint, not a controller's",
                cluster_id=image.cluster_id,
                brokers=(),
            )
        host, port = self._advertised.to(context.connection)
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=self._node_id,
            brokers=tuple(
                DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in members(image, self._node_id, host, port)
            ),
        )

    # -- DescribeTopicPartitions ------------------------------------------------------------------------------------

    def describe_topic_partitions(
        self, context: Context, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        image = self._metadata.image
        names = sorted({topic.name for topic in request.topics} or image.topics)
        first = max(request.cursor.partition_index, 0) if request.cursor else 0
        if request.cursor is not None:
            names = [name for name in names if name >= request.cursor.topic_name]
            if not names or names[0] != request.cursor.topic_name:
                first = 0
        left = min(max(request.response_partition_limit, 1), PARTITIONS_PER_ANSWER)
        answered: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if left <= 0:
                return DescribeTopicPartitionsResponse(
                    topics=tuple(answered), next_cursor=Cursor(topic_name=name, partition_index=0)
                )
            topic = image.topics.get(name)
            answered.append(_partitions_of(image, name, topic, first, left))
            total = len(topic.partitions) if topic else 0
            if total - first > left:
                cursor = Cursor(topic_name=name, partition_index=first + left)
                return DescribeTopicPartitionsResponse(topics=tuple(answered), next_cursor=cursor)
            left -= total - first
            first = 0
        return DescribeTopicPartitionsResponse(topics=tuple(answered))


def _known(image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=TopicId(topic.topic_id),
        is_internal=topic.internal,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=offline(image, partition),
            )
            for partition in topic.partitions
        ),
    )


def _topic(image: MetadataImage, asked: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    name = asked.name
    if name is None:
        name = image.names_by_id.get(asked.topic_id)
        if name is None:
            # Before version 12 the name in an answer cannot be null.
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if version >= 12 else "",
                topic_id=asked.topic_id,
                partitions=(),
            )
    topic = image.topics.get(name)
    if topic is not None:
        return _known(image, topic)
    try:
        check_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return MetadataResponseTopic(error_code=code, name=name, partitions=())


def _partitions_of(
    image: MetadataImage, name: str, topic: TopicImage | None, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    if topic is None:
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=NO_TOPIC_ID, partitions=()
        )
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=TopicId(topic.topic_id),
        is_internal=topic.internal,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                # Empty and not null: the Java client cannot read null here.
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=offline(image, partition),
            )
            for partition in topic.partitions[first : first + limit]
        ),
    )
