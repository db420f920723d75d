"""What real clients make of a log with transactions: written here batch by batch, read over the wire."""

from pathlib import Path
from typing import Any

import pytest
from batches import NOW
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from txn_writer import Writer

from tidelog.config import TopicConfig
from tidelog.ids import TopicPartition as Partition
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.testing import Broker

COMMITTED = [b"plain", b"committed", b"committed too", b"plain again"]
VISIBLE = [b"plain", b"committed", b"aborted", b"committed too", b"plain again", b"open", b"behind it"]


def write_history(directory: Path) -> int:
    """Over several segments, ending in an open transaction and a plain record behind it. Returns where that began."""
    config = TopicConfig()
    log = Log.open(RealDisk(), str(directory), Partition("orders", 0), config, now_ms=NOW, recovery_point=0)
    plain, one, two, three = (Writer(log, producer_id) for producer_id in (9, 1, 2, 3))

    def write(writer: Writer, value: bytes) -> int:
        return writer.write((b"k", value), transactional=writer is not plain).base_offset

    write(plain, b"plain")
    write(one, b"committed")
    write(two, b"aborted")
    log.roll(NOW)
    write(one, b"committed too")
    one.commit()
    log.roll(NOW)
    two.abort()
    write(plain, b"plain again")
    first = write(three, b"open")
    write(plain, b"behind it")
    log.close()
    return first


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("data")
    with Broker(data_dir=directory) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result()
    first_open = write_history(directory / "orders-0")
    with Broker(data_dir=directory) as broker:
        yield broker, first_open


@pytest.mark.parametrize(("isolation", "expected"), [("read_committed", COMMITTED), ("read_uncommitted", VISIBLE)])
@pytest.mark.parametrize("max_bytes", [100, 1 << 20])
def test_librdkafka_reads_what_its_isolation_allows(
    served: Any, isolation: str, expected: list[bytes], max_bytes: int
) -> None:
    broker, _ = served
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "max.partition.fetch.bytes": max_bytes,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    values = []
    while True:
        message = consumer.poll(10)
        assert message is not None, f"nothing after {values}"
        if message.error():
            break  # the end of the partition
        values.append(message.value())
    consumer.close()
    assert values == expected


@pytest.mark.parametrize(("isolation", "expected"), [("read_committed", COMMITTED), ("read_uncommitted", VISIBLE)])
def test_kafka_python_reads_what_its_isolation_allows(served: Any, isolation: str, expected: list[bytes]) -> None:
    broker, _ = served
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, isolation_level=isolation, group_id=None)
    place = PythonTopicPartition("orders", 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    values: list[bytes] = []
    for _ in range(20):
        values += [record.value for records in consumer.poll(timeout_ms=200).values() for record in records]
        if len(values) >= len(expected):
            break
    values += [record.value for records in consumer.poll(timeout_ms=300).values() for record in records]
    consumer.close()
    assert values == expected


def test_the_latest_offset_depends_on_the_isolation(served: Any) -> None:
    broker, first_open = served
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    place = TopicPartition("orders", 0)
    found = {
        isolation: admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)[place].result().offset
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    assert found == {IsolationLevel.READ_COMMITTED: first_open, IsolationLevel.READ_UNCOMMITTED: first_open + 2}
