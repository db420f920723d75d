"""Settings of topics, groups and of this broker, read and changed while it runs.

DescribeConfigs 1-4, IncrementalAlterConfigs 0-1, AlterConfigs 0-2, ListConfigResources 0-1. Broker settings that need
a restart are read-only here. A group may have settings before it exists, and keeps them when it is deleted, as in
Kafka. Not done: broker loggers and client metrics have no settings.
"""

import asyncio
from collections.abc import Callable, Mapping

from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint
from tidelog.broker.turns import in_turns
from tidelog.cluster import controller
from tidelog.cluster.config_changes import Change, altered
from tidelog.cluster.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Described,
    GroupConfig,
    Setting,
    describe_broker,
    describe_group,
    describe_topic,
    inherited_text,
    render,
    validate_broker_configs,
)
from tidelog.errors import InvalidRequest, KafkaError
from tidelog.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

SETTINGS = {TOPIC_RESOURCE: TOPIC_SETTINGS, BROKER_RESOURCE: BROKER_SETTINGS, GROUP_RESOURCE: GROUP_SETTINGS}
CLIENT_METRICS_RESOURCE = 16
"""What ListConfigResources 0 lists. There are none."""


class ConfigsHandler:
    def __init__(self, metadata: Metadata, partitions: Partitions) -> None:
        self._metadata = metadata
        self._partitions = partitions

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(32, 1, 4, self.describe_configs),
            Endpoint(44, 0, 1, self.incremental_alter_configs),
            Endpoint(33, 0, 2, self.alter_configs),
            Endpoint(74, 0, 1, self.list_config_resources),
        ]

    # -- read -------------------------------------------------------------------------------------------------------

    async def describe_configs(self, context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        # Each resource once, however often it is named: a small question must not have a huge answer.
        resources = dict.fromkeys(request.resources)
        return DescribeConfigsResponse(results=await in_turns(lambda each: self._describe(each, request), resources))

    def _describe(self, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
        try:
            described = self._described(resource.resource_type, resource.resource_name)
        except KafkaError as error:
            return DescribeConfigsResult(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=(),
            )
        keys = resource.configuration_keys
        return DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(_result(each, request) for each in described if keys is None or each.name in keys),
        )

    def _described(self, resource_type: int, name: str) -> tuple[Described, ...]:
        image = self._metadata.image
        if resource_type == TOPIC_RESOURCE:
            controller.check_topic_name(name)
            controller.known_topic(image, name)
            return describe_topic(self._partitions.broker_config, image.topic_config(name))
        if resource_type == GROUP_RESOURCE:
            _check_group_name(name)
            return describe_group(self._partitions.broker_config, image.configs.get((GROUP_RESOURCE, name), {}))
        self._check_broker(resource_type, name)
        if name == "":
            overrides = image.configs.get((BROKER_RESOURCE, ""), {})
            return tuple(each for each in describe_broker(self._partitions.broker_config) if each.name in overrides)
        return describe_broker(self._partitions.broker_config)

    def _check_broker(self, resource_type: int, name: str) -> None:
        if resource_type != BROKER_RESOURCE:
            raise InvalidRequest(
                f"resources of type {resource_type} have no settings here; topics (2), brokers (4) and groups (32) have"
            )
        node_id = self._partitions.broker_config.node_id
        if name not in ("", str(node_id)):
            raise InvalidRequest(f"this is broker {node_id}, not {name!r}")

    def list_config_resources(
        self, context: Context, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        types = request.resource_types or (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
        if context.version == 0:
            types = (CLIENT_METRICS_RESOURCE,)
        found: list[ConfigResource] = []
        if TOPIC_RESOURCE in types:
            found.extend(
                ConfigResource(resource_name=name, resource_type=TOPIC_RESOURCE) for name in self._metadata.image.topics
            )
        if BROKER_RESOURCE in types:
            node_id = str(self._partitions.broker_config.node_id)
            found.append(ConfigResource(resource_name=node_id, resource_type=BROKER_RESOURCE))
        if GROUP_RESOURCE in types:
            found.extend(
                ConfigResource(resource_name=name, resource_type=GROUP_RESOURCE)
                for (kind, name), overrides in self._metadata.image.configs.items()
                if kind == GROUP_RESOURCE and overrides
            )
        return ListConfigResourcesResponse(config_resources=tuple(found))

    # -- change -----------------------------------------------------------------------------------------------------

    async def incremental_alter_configs(
        self, context: Context, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        responses = []
        for resource in request.resources:
            await asyncio.sleep(0)
            changes = [Change(each.name, each.config_operation, each.value) for each in resource.configs]
            error = await self._alter(resource.resource_type, resource.resource_name, changes, request.validate_only)
            responses.append(
                IncrementalAlterConfigsResourceResponse(
                    error_code=error.code if error else 0,
                    error_message=str(error) if error else None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return IncrementalAlterConfigsResponse(responses=tuple(responses))

    async def alter_configs(self, context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
        responses = []
        for resource in request.resources:
            await asyncio.sleep(0)
            whole = {each.name: each.value for each in resource.configs}
            error = await self._alter(resource.resource_type, resource.resource_name, whole, request.validate_only)
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=error.code if error else 0,
                    error_message=str(error) if error else None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return AlterConfigsResponse(responses=tuple(responses))

    async def _alter(
        self, resource_type: int, name: str, wish: list[Change] | Mapping[str, str | None], validate_only: bool
    ) -> KafkaError | None:
        """A list of changes is applied to what is there; a mapping replaces it."""

        def decide(image: MetadataImage) -> list[AnyRecord]:
            present = image.configs.get((resource_type, name), {})
            if isinstance(wish, list):
                wanted = altered(present, wish, self._settings(resource_type), self._inherited(resource_type))
            else:
                wanted = {key: value for key, value in wish.items() if value is not None}
            if resource_type == TOPIC_RESOURCE:
                records = controller.alter_topic_config(image, name, wanted)
                self._partitions.check_configs(image.apply(records), [name])
                return records
            if resource_type == GROUP_RESOURCE:
                _check_group_name(name)
                GroupConfig.resolve(self._partitions.broker_config, wanted)
                return controller.config_changes(resource_type, name, present, wanted)
            if resource_type != BROKER_RESOURCE or name not in map(str, image.brokers):
                self._check_broker(resource_type, name)  # those of another broker are told to it by the metadata
            validate_broker_configs(wanted)
            records = controller.config_changes(resource_type, name, present, wanted)
            self._partitions.check_configs(image.apply(records), image.topics)
            return records

        try:
            if validate_only:
                decide(self._metadata.image)
            else:
                await self._metadata.change(decide)
        except KafkaError as error:
            return error
        return None

    def _settings(self, resource_type: int) -> Mapping[str, Setting]:
        return SETTINGS.get(resource_type, BROKER_SETTINGS)

    def _inherited(self, resource_type: int) -> Callable[[str], str | None]:
        broker = self._partitions.broker_config
        if resource_type == TOPIC_RESOURCE:
            return lambda key: inherited_text(key, broker)
        if resource_type == GROUP_RESOURCE:
            return lambda key: None  # none of its settings is a list
        return lambda key: render(getattr(broker, BROKER_SETTINGS[key].attribute))


def _check_group_name(name: str) -> None:
    if not name:
        raise InvalidRequest("a group's name must not be empty: what holds for all groups is a broker setting")


def _result(each: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=each.name,
        value=each.value,
        read_only=each.read_only,
        config_source=each.source,
        is_sensitive=each.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (each.synonyms if request.include_synonyms else ())
        ),
        config_type=each.type,
        documentation=each.doc if request.include_documentation else None,
    )
