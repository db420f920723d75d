"""Topics come, grow and go.

CreateTopics 2-7, DeleteTopics 1-6 (by id from 6), CreatePartitions 0-3. A topic is usable when its creation is
answered. Not done: `timeout_ms` is not needed, since nothing here waits for another node.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from tidelog.broker.metadata import Decide, Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint
from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.config import describe_topic
from tidelog.errors import ErrorCode, InvalidConfig, InvalidRequest, KafkaError
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BROKER_DEFAULT = -1
Wish = TypeVar("Wish")


class TopicsHandler:
    def __init__(
        self, metadata: Metadata, partitions: Partitions, new_topic_id: Callable[[], UUID], node_id: int
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._new_topic_id = new_topic_id
        self._node_id = node_id

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(19, 2, 7, self.create_topics),
            Endpoint(20, 1, 6, self.delete_topics),
            Endpoint(37, 0, 3, self.create_partitions),
        ]

    def _brokers(self, image: MetadataImage) -> list[int]:
        """Those that may lead. A broker alone is not registered."""
        return image.available if image.brokers else [self._node_id]

    # -- create -----------------------------------------------------------------------------------------------------

    async def create_topics(self, context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic, times in _once_each(request.topics, lambda topic: topic.name):
            await asyncio.sleep(0)  # a request may hold a hundred thousand topics, and others have their turn
            try:
                _check_named_once(topic.name, times)
                results.append(await self._create(topic, request.validate_only))
            except KafkaError as error:
                results.append(
                    CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error), configs=())
                )
        return CreateTopicsResponse(topics=tuple(results))

    async def auto_create(self, name: str) -> None:
        """For Metadata: what cannot be created is answered there as unknown."""
        wish = CreatableTopic(
            name=name, num_partitions=BROKER_DEFAULT, replication_factor=BROKER_DEFAULT, assignments=(), configs=()
        )
        try:
            await self._create(wish, validate_only=False)
        except KafkaError:
            return

    async def _create(self, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        config = self._partitions.broker_config
        configs = {}
        for each in topic.configs:
            if each.value is None:
                raise InvalidConfig(f"config {each.name!r} has no value")
            configs[each.name] = each.value
        if topic.assignments and (topic.num_partitions, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise InvalidRequest("give either assignments or numbers of partitions and replicas, not both")
        count = config.num_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
        factor = topic.replication_factor
        topic_id = self._new_topic_id()

        def decide(image: MetadataImage) -> list[AnyRecord]:
            if topic_id in image.names_by_id:
                return []  # it was taken, by a leader of the quorum that could not say so any more
            records = controller.create_topic(
                image,
                topic.name,
                topic_id=topic_id,
                brokers=self._brokers(image),
                partitions=count,
                replication_factor=config.default_replication_factor if factor == BROKER_DEFAULT else factor,
                assignments={each.partition_index: each.broker_ids for each in topic.assignments},
                configs=configs,
            )
            self._partitions.check_configs(image.apply(records), [topic.name])
            return records

        image = self._metadata.image
        if validate_only:
            image = image.apply(decide(image))
        else:
            image = await self._metadata.change(decide)
        created = image.topics[topic.name]
        return CreatableTopicResult(
            name=topic.name,
            topic_id=NO_TOPIC_ID if validate_only else TopicId(created.topic_id),
            num_partitions=len(created.partitions),
            replication_factor=len(created.partitions[0].replicas),
            configs=tuple(
                CreatableTopicConfigs(
                    name=each.name,
                    value=each.value,
                    read_only=each.read_only,
                    config_source=each.source,
                    is_sensitive=each.sensitive,
                )
                for each in describe_topic(config, configs)
            ),
        )

    # -- delete -----------------------------------------------------------------------------------------------------

    async def delete_topics(self, context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        wanted = request.topics or tuple(
            DeleteTopicState(name=name, topic_id=NO_TOPIC_ID) for name in request.topic_names
        )
        responses = []
        for state, times in _once_each(wanted, lambda state: (state.name, state.topic_id)):
            await asyncio.sleep(0)
            responses.append(await self._delete(state, times))
        return DeleteTopicsResponse(responses=tuple(responses))

    async def _delete(self, state: DeleteTopicState, times: int) -> DeletableTopicResult:
        image = self._metadata.image
        name = state.name
        topic_id = state.topic_id
        try:
            _check_named_once(name or topic_id, times)
            if not self._partitions.broker_config.delete_topic_enable:
                raise KafkaError("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
            if name is not None and topic_id != NO_TOPIC_ID:
                raise InvalidRequest("give a topic's name or its id, not both")
            if name is None:
                delete = partial(controller.delete_topic_by_id, topic_id=topic_id)
                await self._metadata.change(_until_gone(topic_id, delete))
                name = image.names_by_id.get(topic_id)
            else:
                topic_id = TopicId(controller.known_topic(image, name).topic_id)
                await self._metadata.change(_until_gone(topic_id, partial(controller.delete_topic, name=name)))
        except KafkaError as error:
            return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=str(error))
        return DeletableTopicResult(name=name, topic_id=topic_id)

    # -- grow -------------------------------------------------------------------------------------------------------

    async def create_partitions(self, context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        results = []
        for topic, times in _once_each(request.topics, lambda topic: topic.name):
            await asyncio.sleep(0)
            try:
                _check_named_once(topic.name, times)
                await self._grow(topic, request.validate_only)
                results.append(CreatePartitionsTopicResult(name=topic.name))
            except KafkaError as error:
                results.append(
                    CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
                )
        return CreatePartitionsResponse(results=tuple(results))

    async def _grow(self, topic: CreatePartitionsTopic, validate_only: bool) -> None:
        assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]

        def decide(image: MetadataImage) -> list[AnyRecord]:
            return controller.create_partitions(
                image, topic.name, total=topic.count, brokers=self._brokers(image), assignments=assignments
            )

        if validate_only:
            decide(self._metadata.image)
        else:
            await self._metadata.change(decide)


def _until_gone(topic_id: UUID, delete: Decide) -> Decide:
    """It may have to be decided again, because whether it was done is not known: if it was, that is no error."""
    asked = False

    def decide(image: MetadataImage) -> Sequence[AnyRecord]:
        nonlocal asked
        if asked and topic_id not in image.names_by_id:
            return []
        records = delete(image)
        asked = True
        return records

    return decide


def _once_each(asked: Sequence[Wish], key: Callable[[Wish], Hashable]) -> Iterator[tuple[Wish, int]]:
    """Each topic once, and how often it was asked for: librdkafka takes two answers about one for a broken frame."""
    times = Counter(map(key, asked))
    first: dict[Hashable, Wish] = {}
    for each in asked:
        first.setdefault(key(each), each)
    return ((each, times[name]) for name, each in first.items())


def _check_named_once(topic: str | UUID, times: int) -> None:
    if times > 1:
        raise InvalidRequest(f"topic {str(topic)!r} is in the request more than once")
