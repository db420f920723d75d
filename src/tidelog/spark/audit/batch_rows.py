"""The data source `tidelog-batches`: a row for every record batch of a log, made of its header alone.

Control batches are rows too. No record is decoded, so a topic's skeleton is read at the speed of its bytes: what is
missing, what belongs to which producer, what a transaction's end says of it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.client.fetcher import Fetched, FetchRange, PartitionFetcher
from tidelog.errors import CorruptMessage
from tidelog.spark.batch import TidelogBatchReader
from tidelog.spark.options import SourceOptions, parse_options
from tidelog.spark.reading import on_loss
from tidelog.spark.resolve import open_cluster
from tidelog.spark.slices import ReadTask, Slice
from tidelog.wire.checksum import crc32c
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import ATTRIBUTES_POSITION, CONTROL, HAS_DELETE_HORIZON, TRANSACTIONAL, BatchHeader

FORMAT: Final = "tidelog-batches"
COMMIT, ABORT = "commit", "abort"

_COLUMNS: Final[dict[str, tuple[DataType, Any]]] = {
    "partition": (IntegerType(), pa.int32()),
    "first": (LongType(), pa.int64()),  # the batch's offsets, cut to the range that is read
    "last": (LongType(), pa.int64()),
    "span": (LongType(), pa.int64()),  # the offsets it was written with
    "records": (IntegerType(), pa.int32()),
    "bytes": (IntegerType(), pa.int32()),
    "epoch": (IntegerType(), pa.int32()),
    "producerId": (LongType(), pa.int64()),
    "producerEpoch": (IntegerType(), pa.int32()),
    "sequence": (IntegerType(), pa.int32()),
    "transactional": (BooleanType(), pa.bool_()),
    "control": (BooleanType(), pa.bool_()),
    "marker": (StringType(), pa.string()),
    "horizon": (BooleanType(), pa.bool_()),  # the cleaner has been here
    "intact": (BooleanType(), pa.bool_()),
}
SCHEMA: Final = StructType([StructField(name, kind) for name, (kind, _) in _COLUMNS.items()])
_ARROW: Final = pa.schema([(name, kind) for name, (_, kind) in _COLUMNS.items()])

Row = tuple[Any, ...]


class BatchRows(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "BatchRowReader":
        return BatchRowReader(parse_options(self.options, streaming=False))


class BatchRowReader(TidelogBatchReader):
    """Plans as the source of records does; starts and ends are given as offsets."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options, StructType([]))
        self._starts, self._ends = options.starting.per_partition, options.ending.per_partition

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, ReadTask):
            return
        with open_cluster(self._options) as cluster:
            for wanted in partition.slices:
                fetch = FetchRange(partition=wanted.at, topic_id=wanted.topic_id, start=wanted.start, end=wanted.end)
                fetcher = PartitionFetcher(
                    cluster,
                    fetch,
                    on_loss=lambda loss: on_loss(self._options, loss),
                    timeout_s=self._options.timeout_ms / 1000,
                )
                begin = self._starts.get(wanted.at, wanted.start)
                until = self._ends.get(wanted.at, wanted.end)
                for fetched in fetcher:
                    rows = list(batch_rows(fetched, wanted, begin, until))
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    if columns:
                        arrays = [pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)]
                        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def batch_rows(fetched: Fetched, wanted: Slice, begin: int, until: int) -> Iterator[Row]:
    """A batch that reaches over the edge of slices is a row of the slice it begins in; one that reaches over the edge
    of everything that is read, [begin, until), is cut to it."""
    for header, position in fetched.batches:
        if header.last_offset >= begin and wanted.start <= max(header.base_offset, begin) < wanted.end:
            batch = fetched.records[position : position + header.size]
            yield _row(header, batch, wanted.partition, begin, until)


def _row(header: BatchHeader, batch: memoryview, partition: int, begin: int, until: int) -> Row:
    intact = crc32c(batch[ATTRIBUTES_POSITION:]) == header.crc
    control = bool(header.attributes & CONTROL)
    return (
        partition,
        max(header.base_offset, begin),
        min(header.last_offset, until - 1),
        header.last_offset_delta + 1,
        header.records_count,
        header.size,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        bool(header.attributes & TRANSACTIONAL),
        control,
        _marker(batch) if control and intact else None,
        bool(header.attributes & HAS_DELETE_HORIZON),
        intact,
    )


def _marker(batch: memoryview) -> str | None:
    try:
        marker = read_marker(batch)
    except CorruptMessage:
        return None
    return None if marker is None else COMMIT if marker.committed else ABORT
