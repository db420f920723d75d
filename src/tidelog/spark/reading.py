"""What runs in Spark's Python workers: a slice of a partition as Arrow batches."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import READ_COMMITTED, Cluster
from tidelog.client.fetcher import DataLost, FetchRange, PartitionFetcher
from tidelog.spark.options import SourceOptions
from tidelog.spark.resolve import open_cluster
from tidelog.spark.slices import ReadTask, Slice
from tidelog.spark.workers import keep_modules

if TYPE_CHECKING:
    from tidelog.spark.values import ValueDecoder

log = logging.getLogger("tidelog.spark")


def read_task(options: SourceOptions, task: ReadTask, columns: Mapping[str, bool]) -> Iterator[Any]:
    """Arrow batches with `columns` in that order, each nullable or not: Spark compares that too."""
    decode = None
    if options.value_format != "raw":
        from tidelog.spark.values import ValueDecoder

        decode = ValueDecoder(options)
    made = {"value", "_error", "_raw"} if decode is not None else set()
    stored = [name for name in columns if name not in made]
    if made & set(columns):
        stored.append("value")
    with open_cluster(options) as cluster:
        for wanted in task.slices:
            for batch in _read_slice(cluster, options, wanted, stored):
                yield _shaped(batch, columns, decode)


def _shaped(batch: Any, columns: Mapping[str, bool], decode: "ValueDecoder | None") -> Any:
    """With what was made of the value, and as nullable as the query takes it."""
    if decode is None and all(columns.values()):
        return batch
    import pyarrow as pa  # here, not above: the planner has no use for it

    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    if decode is not None and "value" in found:
        found |= decode.columns(found["value"])
    arrays = [found[name] for name in columns]
    fields = [pa.field(name, array.type, columns[name]) for name, array in zip(columns, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _read_slice(cluster: Cluster, options: SourceOptions, wanted: Slice, columns: Sequence[str]) -> Iterator[Any]:
    # Here, not above: the planner on the driver has no use for the compiler.
    from tidelog.spark.columns.build import ColumnBuilder

    read_committed = options.isolation_level == READ_COMMITTED
    builder = ColumnBuilder(columns, topic=wanted.topic, partition=wanted.partition, read_committed=read_committed)
    fetch = FetchRange(
        partition=wanted.at,
        topic_id=wanted.topic_id,
        start=wanted.start,
        end=wanted.end,
        isolation_level=options.isolation_level,
    )
    fetcher = PartitionFetcher(
        cluster, fetch, on_loss=lambda loss: on_loss(options, loss), timeout_s=options.timeout_ms / 1000
    )
    for fetched in fetcher:
        yield from builder.read(fetched, fetched.first, wanted.end)
    keep_modules("source")  # now, when all of them have been used: some load the rest of theirs by then


def on_loss(options: SourceOptions, loss: DataLost) -> None:
    """Stops the query, or says what is skipped, as failOnDataLoss wants it."""
    if options.fail_on_data_loss:
        raise DataLost(
            loss.partition,
            loss.start,
            loss.end,
            f"{loss.why}. The query stops rather than skip them; failOnDataLoss=false logs the range and reads on",
        ) from None
    log.warning("%s; failOnDataLoss=false: reading on behind them", loss)
