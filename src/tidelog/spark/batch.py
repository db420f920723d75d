"""`spark.read`: offsets are settled when the query is planned, so every task and every retry reads the same records."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import SourceOptions
from tidelog.spark.reading import read_slice
from tidelog.spark.resolve import bytes_per_record, find_partitions, find_topics, open_cluster, resolve
from tidelog.spark.schema import check_schema
from tidelog.spark.slices import Slice, split


class TidelogBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_cluster(options) as cluster:
            topics = find_topics(cluster, options)
            wanted = find_partitions(topics, options)
            starts = resolve(cluster, options, wanted, options.starting, is_start=True)
            ends = resolve(cluster, options, wanted, options.ending, is_start=False)
            ranges = []
            for at in wanted:
                start, end = starts[at].offset, ends[at].offset
                if start > end and "offsets" in (options.starting.kind, options.ending.kind):
                    raise InvalidOption(f"{at}: the start, offset {start}, is behind the end, offset {end}")
                ranges.append(Slice(at.topic, at.partition, start, end, topics[at.topic].topic_id))
            sizes = bytes_per_record(cluster, wanted) if options.min_partitions is None else None
        return list(
            split(
                ranges,
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
                bytes_per_record=sizes,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Slice):  # Spark's own placeholder when there is nothing to read
            return iter(())
        return read_slice(self._options, partition, self._columns)
