"""Topics with known records, and readers driven as Spark drives them."""

import time
import uuid
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.client.connection import Connection
from tidelog.spark.batch import TidelogBatchReader
from tidelog.spark.home import find_home
from tidelog.spark.options import parse_options
from tidelog.spark.schema import full_schema
from tidelog.spark.source import TidelogDataSource
from tidelog.spark.streaming import TidelogStreamReader
from tidelog.wire.messages.transactions import ListTransactionsRequest

Rows = list[dict[str, Any]]
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for seconds: it would not live to see code that is compiled with more care."""
OWN_PROCESSES = "spark-processes"
"""The group of tests that start a Spark of their own; they run beside those that share one."""


def quick_spark() -> dict[str, str]:
    """The environment of a Spark that lives for seconds, and that `tidelog.spark.session` does not start."""
    home = find_home()
    return {"JDK_JAVA_OPTIONS": QUICK_JAVA, **({"SPARK_HOME": str(home)} if home else {})}


class Topics:
    """Makes and fills topics of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})

    def make(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        topic = name or f"spark-{uuid.uuid4().hex[:10]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(20)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)

    def widen(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
        self._producer = self._new_producer()  # the old one would not know of them for minutes

    def fill(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        refused: list[Any] = []
        for value in values:
            data = value if value is None or isinstance(value, bytes) else str(value).encode()
            self._producer.produce(
                topic, data, partition=partition, on_delivery=lambda error, _: error and refused.append(error), **more
            )
        assert self._producer.flush(60) == 0
        assert not refused

    def options(self, topic: str | None, **more: Any) -> dict[str, str]:
        base = {"kafka.bootstrap.servers": self.bootstrap} | ({"subscribe": topic} if topic else {})
        return base | {key: str(value) for key, value in more.items()}


def until_decided(bootstrap: str) -> None:
    """Until readers of committed records are given what was committed: whoever ends a transaction is answered when that
    is decided, and its markers are written a moment later."""
    undecided = ListTransactionsRequest(state_filters=("PrepareCommit", "PrepareAbort"), producer_id_filters=())
    deadline = time.monotonic() + 60
    host, port = bootstrap.rsplit(":", 1)
    with Connection(host, int(port), 60) as connection:
        while connection.call(undecided).transaction_states:
            assert time.monotonic() < deadline, "markers are not written"
            time.sleep(0.01)


def rows_of(batches: Iterable[Any]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def batch_reader(options: dict[str, str], schema: StructType | None = None) -> TidelogBatchReader:
    source = TidelogDataSource(options)
    reader = source.reader(schema or source.schema())
    assert isinstance(reader, TidelogBatchReader)
    return reader


def read_all(options: dict[str, str], schema: StructType | None = None) -> Rows:
    reader = batch_reader(options, schema)
    return [row for task in reader.partitions() for row in rows_of(reader.read(task))]


def values_of(rows: Rows) -> list[str]:
    return [row["value"].decode() for row in rows]


class Query:
    """A stream reader with the calls of one micro-batch after the other, its position kept as a checkpoint keeps it."""

    def __init__(self, options: dict[str, str], start: dict[str, Any] | None = None) -> None:
        self.reader = TidelogStreamReader(parse_options(options, streaming=True), full_schema(False))
        self.position = start if start is not None else self.reader.initialOffset()

    def plan(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        return self.reader.latestOffset(self.position, limit or self.reader.getDefaultReadLimit())

    def batch(self, limit: ReadLimit | None = None) -> Rows:
        end = self.plan(limit)
        if end == self.position:
            return []
        tasks = self.reader.partitions(self.position, end)
        rows = [row for task in tasks for row in rows_of(self.reader.read(task))]
        self.position = end
        return rows

    def stop(self) -> None:
        self.reader.stop()
