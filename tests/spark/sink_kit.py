"""Writers driven as Spark drives them: tasks with a place in a query, messages to the driver, what readers then see."""

import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.kit import read_all, until_decided

from tidelog.client.cluster import Cluster
from tidelog.spark.sink import sink_writer, stream_sink_writer
from tidelog.spark.sink.ledger import Ledger
from tidelog.spark.sink.transactions import Transactions
from tidelog.spark.sink.writer import Written

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def frame(values: Iterable[Any]) -> pa.RecordBatch:
    texts = [str(value).encode() for value in values]
    return pa.record_batch({"key": pa.array(texts, pa.binary()), "value": pa.array(texts, pa.binary())})


class Run:
    """One run of a streaming query, from start to its end or death."""

    def __init__(self, bootstrap: str, topic: str, query_id: str | None = None, **options: Any) -> None:
        self.query_id, self.run_id = query_id or str(uuid.uuid4()), str(uuid.uuid4())
        self.bootstrap, self.topic = bootstrap, topic
        self._options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        self._options |= {key: str(value) for key, value in options.items()}

    def again(self) -> "Run":
        """The same query, started anew."""
        run = Run(self.bootstrap, self.topic, self.query_id)
        run._options = self._options
        return run

    def writer(self) -> Any:
        return stream_sink_writer(self._options, SCHEMA, False)

    def task(self, batch: int, number: int, values: Iterable[Any], *, attempt: int = 0) -> Written:
        place = {
            "sql.streaming.queryId": self.query_id,
            "spark.jobGroup.id": self.run_id,
            "streaming.sql.batchId": str(batch),
        }
        be_task(number, attempt, place)
        return self.writer().write(iter([frame(values)]))

    def batch(self, batch: int, *tasks: Iterable[Any]) -> list[Written]:
        messages = [self.task(batch, number, values) for number, values in enumerate(tasks)]
        self.commit(batch, messages)
        return messages

    def commit(self, batch: int, messages: list[Any]) -> None:
        self.writer().commit(messages, batch)

    def abort(self, batch: int, messages: list[Any]) -> None:
        self.writer().abort(messages, batch)

    def ledger(self) -> tuple[Ledger, Transactions]:
        cluster = Cluster(self.bootstrap)
        transactions = Transactions(cluster, transaction_timeout_ms=60_000)
        return Ledger(transactions, self.query_id), transactions


_attempts = iter(range(1, 1_000_000))


def be_task(number: int, attempt: int = 0, place: dict[str, str] | None = None) -> None:
    TaskContext(
        stageId=0,
        partitionId=number,
        attemptNumber=attempt,
        taskAttemptId=next(_attempts),
        localProperties=place or {},
    )


def batch_sink(bootstrap: str, topic: str, **options: Any) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic} | {k: str(v) for k, v in options.items()}
    return sink_writer(given, SCHEMA, False)


def committed(bootstrap: str, topic: str) -> list[str]:
    """What a reader of committed records finds, sorted."""
    until_decided(bootstrap)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
    }
    return sorted(row["value"].decode() for row in read_all(options))
