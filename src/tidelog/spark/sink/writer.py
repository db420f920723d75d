"""What Spark calls: one writer for frames, one for streams. `write` runs in a task, `commit` and `abort` on the driver.

Spark makes a writer anew for the planner and for the commit of every micro-batch, so nothing is remembered here: what
the driver must know comes in the tasks' messages, and what must survive is in the ledger.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.client.cluster import Cluster, raise_for
from tidelog.errors import KafkaError
from tidelog.spark.sink.ledger import Ledger, Prepared, Run, check_open, identity
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.schema import check_schema
from tidelog.spark.sink.transactions import Fenced, Identity, Transactions
from tidelog.spark.workers import keep_modules
from tidelog.wire.messages.data import InitProducerIdRequest

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties of a task: a streaming query runs its jobs in a group named after the run."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's word to the driver. `prepared` is None if it wrote nothing, `run` if it wrote without a ledger."""

    rows: int
    query_id: str = ""
    run: Run | None = None
    prepared: Prepared | None = None
    skipped: bool = False


class TidelogBatchWriter(DataSourceArrowWriter):
    """`df.write`. With delivery=exactly-once the rows appear when all tasks have written theirs; a failed job leaves
    none. Running the job again writes them again: a frame has no identity by which it could be recognised."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options
        self._prefix = f"tidelog-write-{uuid.uuid4()}-"

    def write(self, iterator: Iterator[Any]) -> Written:
        options = self._options
        task = _task()
        with open_cluster(options) as cluster:
            if not options.exactly_once:
                return Written(write_rows(options, cluster, iterator, None, task.partitionId()))
            with open_transactions(options, cluster) as transactions:
                prepared = prepare(options, cluster, transactions, self._prefix, task, iterator)
        return Written(prepared.rows if prepared else 0, prepared=prepared)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._end(messages, commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._end(messages, commit=False)

    def _end(self, messages: Sequence[Any], *, commit: bool) -> None:
        prepared = [each.prepared for each in messages if each is not None and each.prepared is not None]
        if not self._options.exactly_once:
            return
        with (
            open_cluster(self._options) as cluster,
            open_transactions(self._options, cluster) as transactions,
        ):
            if commit:
                check_open(transactions, "the frame", self._prefix, prepared)
            for each in prepared:
                # One that has ended already must not keep the others from being aborted.
                with nullcontext() if commit else suppress(KafkaError):
                    transactions.end(identity(self._prefix, each), commit=commit)
            # Tasks that failed or were overtaken left transactions that nobody commits.
            for name in transactions.open_names(self._prefix):
                transactions.init(name)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`. What makes a micro-batch count once is told in `ledger`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        options = self._options
        task = _task()
        with open_cluster(options) as cluster:
            if not options.exactly_once:
                return Written(write_rows(options, cluster, iterator, None, task.partitionId()))
            query_id, run_id, batch = task_place(task)
            with open_transactions(options, cluster) as transactions:
                ledger = Ledger(transactions, query_id)
                state = ledger.enter(run_id, batch, leads=task.partitionId() == 0)
                if state.batch >= batch:
                    # Drained, not left: a source that sees its reader go away takes that for a failure.
                    return Written(sum(each.num_rows for each in iterator), query_id, state.run, skipped=True)
                prepared = prepare(options, cluster, transactions, state.run.prefix, task, iterator)
        return Written(prepared.rows if prepared else 0, query_id, state.run, prepared)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [each for each in messages if isinstance(each, Written)]
        if not self._options.exactly_once or not written or all(each.skipped for each in written):
            return
        run = _one_run(written)
        prepared = [each.prepared for each in written if each.prepared is not None]
        if not prepared:
            return
        with (
            open_cluster(self._options) as cluster,
            open_transactions(self._options, cluster) as transactions,
        ):
            ledger = Ledger(transactions, written[0].query_id)
            check_open(transactions, f"batch {batchId}", run.prefix, prepared)
            ledger.decide(run, batchId, prepared)
            ledger.finish(run.prefix, batchId, prepared)
            # Left by attempts that were killed, or lost a race: nobody will end them, and readers wait for them.
            ledger.abort_open(run.prefix)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [each for each in messages if isinstance(each, Written) and each.prepared is not None]
        if not self._options.exactly_once or not written:
            return
        with (
            open_cluster(self._options) as cluster,
            open_transactions(self._options, cluster) as transactions,
        ):
            # Spark also calls this when `commit` failed, or its process died: that may have been behind the decision.
            if Ledger(transactions, written[0].query_id).decided(batchId):
                return
            for each in written:
                if each.run is not None and each.prepared is not None:
                    with suppress(Fenced):
                        transactions.end(identity(each.run.prefix, each.prepared), commit=False)


def prepare(
    options: SinkOptions,
    cluster: Cluster,
    transactions: Transactions,
    prefix: str,
    task: TaskContext,
    iterator: Iterator[Any],
) -> Prepared | None:
    """Writes all rows in a transaction and leaves it open. None, and no transaction, if there are no rows."""
    first = next((each for each in iterator if each.num_rows), None)
    if first is None:
        return None
    # The first attempt's name serves batch after batch. A later attempt must not take it over: the first may have
    # finished after all, and be the one that counts.
    number = task.partitionId()
    name = f"{number}" if task.attemptNumber() == 0 else f"{number}-{task.taskAttemptId()}"
    who = transactions.init(prefix + name)
    try:
        rows = write_rows(options, cluster, _behind(first, iterator), (transactions, who), number)
    except BaseException:
        with suppress(KafkaError, OSError):
            transactions.end(who, commit=False)
        raise
    return Prepared(name, who.producer_id, who.epoch, rows)


def write_rows(
    options: SinkOptions,
    cluster: Cluster,
    iterator: Iterator[Any],
    transaction: tuple[Transactions, Identity] | None,
    turn: int,
) -> int:
    """Every row, acknowledged, when it returns."""
    # Here, not above: the planner and the driver have no use for the compiler.
    from tidelog.spark.sink.batches import BatchMaker, chunks
    from tidelog.spark.sink.columns import open_rows
    from tidelog.spark.sink.producer import Producer

    transactions, who = transaction if transaction is not None else (None, _idempotent(options, cluster))
    producer = Producer(
        cluster,
        acks=options.acks,
        transactional_id=who.name or None,
        request_timeout_ms=options.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        before=None if transactions is None else lambda fresh: transactions.add_partitions(who, fresh),
    )
    maker = BatchMaker(
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        transactional=transactions is not None,
        codec=options.codec,
        batch_bytes=options.batch_bytes,
        bytes_max=options.bytes_max,
        topic=options.topic,
        partitions_of=producer.partitions_of,
        turn=turn,
    )
    count = 0
    try:
        for chunk in chunks(iterator):
            rows = open_rows(chunk, options.topic, time.time_ns() // 1_000_000)
            for batch in maker.make(rows):
                producer.send(batch)
            count += rows.count
        producer.flush()
    finally:
        producer.close()
    keep_modules("sink")
    return count


def _idempotent(options: SinkOptions, cluster: Cluster) -> Identity:
    """A producer id, so that repeated requests are no repeated records. Without acks there is nothing to repeat."""
    if options.acks != -1:
        return Identity("", -1, -1)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=options.transaction_timeout_ms)

    def ask() -> Identity:
        answer = cluster.anyone().ask(request)
        if answer.error_code:
            raise_for(answer.error_code, "InitProducerId")
        return Identity("", answer.producer_id, answer.producer_epoch)

    return cluster.retry(ask)


def open_cluster(options: SinkOptions) -> Cluster:
    timeout_s = options.delivery_timeout_ms / 1000
    return Cluster(options.bootstrap_servers, client_id=options.client_id, timeout_s=timeout_s)


def open_transactions(options: SinkOptions, cluster: Cluster) -> Transactions:
    return Transactions(
        cluster,
        transaction_timeout_ms=options.transaction_timeout_ms,
        timeout_s=options.delivery_timeout_ms / 1000,
    )


def _behind(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("the sink's write() runs in a Spark task only")
    return task


def task_place(task: TaskContext) -> tuple[str, str, int]:
    """The query, its run and the micro-batch that a task is of."""
    query_id, run_id, batch = (task.getLocalProperty(name) for name in (QUERY_ID, RUN_ID, BATCH_ID))
    if query_id is None or run_id is None or batch is None:
        raise RuntimeError("Spark did not say which query and batch a task is of; use delivery=at-least-once")
    return query_id, run_id, int(batch)


def _one_run(written: Sequence[Written]) -> Run:
    runs = {each.run for each in written if each.run is not None}
    if len(runs) != 1 or any(each.skipped for each in written):
        raise KafkaError("the tasks of this batch did not all work under the same run: another one took over meanwhile")
    return runs.pop()
