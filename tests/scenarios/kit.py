"""Short words for what scenarios say to a broker over a raw connection."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.testing import Broker
from tidelog.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tidelog.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tidelog.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.record_batch import build_batch, iter_batches, iter_records
from tidelog.wire.records import Record

TOPIC, BROKER = 2, 4  # resource types
EARLIEST, LATEST = -2, -1
NAMES = 12  # the last version of Produce and Fetch that names topics
IDS = 13  # the first that carries their ids

Pair = tuple[bytes | None, bytes | None]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def connect(broker: Broker | int, timeout: float = 10.0) -> Connection:
    return Connection("127.0.0.1", broker if isinstance(broker, int) else broker.port, timeout)


@contextmanager
def broker_at(directory: Path, **settings: Any) -> Iterator[Connection]:
    """A broker on `directory` until the block ends, cleanly; `log_retention_ms=5` is log.retention.ms=5."""
    with (
        Broker({key.replace("_", "."): value for key, value in settings.items()}, data_dir=directory) as broker,
        connect(broker) as connection,
    ):
        yield connection


def eventually(holds: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Polls; background work has no other way to say that it is done. How soon is the business of the benchmarks."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


# -- topics and settings -----------------------------------------------------------------------------------------------


def create_topic(connection: Connection, name: str, partitions: int = 1, **config: Any) -> UUID:
    """`retention_ms=1` is retention.ms=1."""
    configs = tuple(
        CreatableTopicConfig(
            name=key.replace("_", "."), value=str(value).lower() if isinstance(value, bool) else f"{value}"
        )
        for key, value in config.items()
    )
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs)
    (result,) = connection.call(CreateTopicsRequest(topics=(topic,))).topics
    assert result.error_code == 0, result.error_message
    topic_id: UUID = result.topic_id
    return topic_id


def delete_topic(connection: Connection, name: str) -> None:
    wanted = DeleteTopicState(name=name, topic_id=NO_TOPIC_ID)
    (result,) = connection.call(DeleteTopicsRequest(topics=(wanted,), timeout_ms=10_000)).responses
    assert result.error_code == 0, result.error_message


def alter_config(
    connection: Connection, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> Any:
    """Sets; None deletes. Returns the answer, whose `error_code` and `error_message` matter."""
    configs = tuple(
        IncrementalAlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
        for key, value in changes.items()
    )
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    return connection.call(request).responses[0]


def config_of(connection: Connection, kind: int, name: str) -> dict[str, Any]:
    """Every setting by name, as DescribeConfigs tells it."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = connection.call(DescribeConfigsRequest(resources=(resource,), include_synonyms=True)).results
    assert result.error_code == 0, result.error_message
    return {each.name: each for each in result.configs}


# -- records -----------------------------------------------------------------------------------------------------------


def batch_of(
    *pairs: Pair | bytes,
    timestamp: int | None = None,
    producer: tuple[int, int, int] | None = None,
    codec: int = 0,
    attributes: int = 0,
) -> bytes:
    """A batch of (key, value) pairs, or of bare values; `producer` is (id, epoch, first sequence)."""
    at = now_ms() if timestamp is None else timestamp
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    whole = [pair if isinstance(pair, tuple) else (None, pair) for pair in pairs]
    return build_batch(
        [Record(offset, at, key, value, ()) for offset, (key, value) in enumerate(whole)],
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def produce_request(topic: str | UUID, batch: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = (PartitionProduceData(index=partition, records=memoryview(batch)),)
    if isinstance(topic, UUID):
        target = TopicProduceData(topic_id=TopicId(topic), partition_data=data)
    else:
        target = TopicProduceData(name=topic, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(target,))


def produce(connection: Connection, topic: str | UUID, batch: bytes, partition: int = 0, acks: int = -1) -> Any:
    """The partition's part of the answer: `error_code`, `base_offset`, ..."""
    version = IDS if isinstance(topic, UUID) else NAMES
    answer = connection.call(produce_request(topic, batch, partition, acks), version)
    return answer.responses[0].partition_responses[0] if answer is not None else None


def store(connection: Connection, topic: str, *pairs: Pair | bytes, **options: Any) -> int:
    """Produces one batch that must succeed; its base offset."""
    partition = options.pop("partition", 0)
    answer = produce(connection, topic, batch_of(*pairs, **options), partition)
    assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
    base_offset: int = answer.base_offset
    return base_offset


def fetch_request(topic: str | UUID, *wishes: FetchPartition, **options: Any) -> FetchRequest:
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50 << 20, **options}
    if isinstance(topic, UUID):
        return FetchRequest(topics=(FetchTopic(topic_id=TopicId(topic), partitions=wishes),), **fields)
    return FetchRequest(topics=(FetchTopic(topic=topic, partitions=wishes),), **fields)


def wish(offset: int, partition: int = 0, max_bytes: int = 10 << 20, **options: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **options)


def fetch(connection: Connection, topic: str | UUID, offset: int, partition: int = 0, **options: Any) -> Any:
    """The partition's part of the answer: `error_code`, `high_watermark`, `records`, ..."""
    version = IDS if isinstance(topic, UUID) else NAMES
    answer = connection.call(fetch_request(topic, wish(offset, partition), **options), version)
    return answer.responses[0].partitions[0]


def records_in(records: memoryview | bytes | None) -> list[Record]:
    return [record for _, batch in iter_batches(records or b"") for record in iter_records(batch)]


def read_all(connection: Connection, topic: str, partition: int = 0, start: int | None = None) -> list[Record]:
    """Everything visible, fetch after fetch, from `start` or the log's start."""
    at = offset_at(connection, topic, EARLIEST, partition) if start is None else start
    end = offset_at(connection, topic, LATEST, partition)
    found: list[Record] = []
    while at < end:
        answer = fetch(connection, topic, at, partition)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        batches = list(iter_batches(answer.records or b""))
        if not batches:
            break  # compaction left nothing behind this offset
        found.extend(record for _, batch in batches for record in iter_records(batch) if record.offset >= at)
        at = batches[-1][0].last_offset + 1
    return found


def values(records: Sequence[Record]) -> list[bytes]:
    return [bytes(record.value or b"") for record in records]


def offset_at(connection: Connection, topic: str, timestamp: int, partition: int = 0) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),))
    answer = connection.call(request, 8).topics[0].partitions[0]
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    offset: int = answer.offset
    return offset


def delete_records(connection: Connection, topic: str, offset: int, partition: int = 0) -> Any:
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(asked,)),), timeout_ms=10_000)
    return connection.call(request).topics[0].partitions[0]


def new_producer_id(connection: Connection) -> int:
    answer = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    assert answer.error_code == 0
    producer_id: int = answer.producer_id
    return producer_id
