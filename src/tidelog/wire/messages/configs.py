"""Tables for settings and for looking inside a broker: configs, log directories, active producers."""

from typing import Annotated

from tidelog.wire.primitives import i8, i16, i32, i64
from tidelog.wire.schema import IGNORABLE, Message, Versions, answers, api


class DescribeConfigsResource(Message, kw_only=True):
    resource_type: i8
    resource_name: str
    configuration_keys: tuple[str, ...] | None


@api(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Message, kw_only=True):
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: bool = False
    include_documentation: Annotated[bool, Versions(3)] = False


class DescribeConfigsSynonym(Message, kw_only=True):
    name: str
    value: str | None
    source: i8


class DescribeConfigsResourceResult(Message, kw_only=True):
    name: str
    value: str | None
    read_only: bool
    config_source: i8 = -1
    is_sensitive: bool
    synonyms: tuple[DescribeConfigsSynonym, ...]
    config_type: Annotated[i8, Versions(3), IGNORABLE] = 0
    documentation: Annotated[str | None, Versions(3), IGNORABLE] = None


class DescribeConfigsResult(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...]


@answers(DescribeConfigsRequest)
class DescribeConfigsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    results: tuple[DescribeConfigsResult, ...]


class IncrementalAlterableConfig(Message, kw_only=True):
    name: str
    config_operation: i8
    value: str | None


class IncrementalAlterConfigsResource(Message, kw_only=True):
    resource_type: i8
    resource_name: str
    configs: tuple[IncrementalAlterableConfig, ...]


@api(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Message, kw_only=True):
    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: bool


class IncrementalAlterConfigsResourceResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str


@answers(IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...]


class AlterableConfig(Message, kw_only=True):
    name: str
    value: str | None


class AlterConfigsResource(Message, kw_only=True):
    resource_type: i8
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@api(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message, kw_only=True):
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool


class AlterConfigsResourceResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str


@answers(AlterConfigsRequest)
class AlterConfigsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...]


@api(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message, kw_only=True):
    resource_types: Annotated[tuple[i8, ...], Versions(1)] = ()


class ConfigResource(Message, kw_only=True):
    resource_name: str
    resource_type: Annotated[i8, Versions(1), IGNORABLE] = 16


@answers(ListConfigResourcesRequest)
class ListConfigResourcesResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    config_resources: tuple[ConfigResource, ...]


class DescribableLogDirTopic(Message, kw_only=True):
    topic: str
    partitions: tuple[i32, ...]


@api(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest(Message, kw_only=True):
    topics: tuple[DescribableLogDirTopic, ...] | None


class DescribeLogDirsPartition(Message, kw_only=True):
    partition_index: i32
    partition_size: i64
    offset_lag: i64
    is_future_key: bool


class DescribeLogDirsTopic(Message, kw_only=True):
    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


class DescribeLogDirsResult(Message, kw_only=True):
    error_code: i16 = 0
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: Annotated[i64, Versions(4), IGNORABLE] = -1
    usable_bytes: Annotated[i64, Versions(4), IGNORABLE] = -1
    is_cordoned: Annotated[bool, Versions(5), IGNORABLE] = False


@answers(DescribeLogDirsRequest)
class DescribeLogDirsResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    error_code: Annotated[i16, Versions(3), IGNORABLE] = 0
    results: tuple[DescribeLogDirsResult, ...]


class DescribeProducersRequestTopic(Message, kw_only=True):
    name: str
    partition_indexes: tuple[i32, ...]


@api(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message, kw_only=True):
    topics: tuple[DescribeProducersRequestTopic, ...]


class ProducerState(Message, kw_only=True):
    producer_id: i64
    producer_epoch: i32
    last_sequence: i32 = -1
    last_timestamp: i64 = -1
    coordinator_epoch: i32
    current_txn_start_offset: i64 = -1


class DescribeProducersPartition(Message, kw_only=True):
    partition_index: i32
    error_code: i16 = 0
    error_message: str | None = None
    active_producers: tuple[ProducerState, ...]


class DescribeProducersTopic(Message, kw_only=True):
    name: str
    partitions: tuple[DescribeProducersPartition, ...]


@answers(DescribeProducersRequest)
class DescribeProducersResponse(Message, kw_only=True):
    throttle_time_ms: i32 = 0
    topics: tuple[DescribeProducersTopic, ...]
