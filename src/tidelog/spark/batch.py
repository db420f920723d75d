"""`spark.read`: offsets are settled when the query is planned, so every task and every retry reads the same records."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.client.cluster import Cluster
from tidelog.ids import TopicPartition
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.filters import Narrowed
from tidelog.spark.options import SourceOptions
from tidelog.spark.reading import read_task
from tidelog.spark.resolve import find_partitions, find_topics, open_cluster, record_bytes, resolve
from tidelog.spark.schema import check_schema
from tidelog.spark.slices import ReadTask, Slice, plan


class _Pushing:
    """`pushFilters` of a reader, also for sessions that have not enabled it.

    Spark refuses a reader of its own with that method unless spark.sql.python.filterPushdown.enabled is set, and it
    tells by `__func__`. Here nothing is lost without: filters that are not pushed are checked by Spark.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, narrowed: Narrowed) -> None:
        self._narrowed = narrowed

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._narrowed.push(filters)


class TidelogBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema, options)
        self._narrowed = Narrowed()

    @property
    def pushFilters(self) -> Any:
        """Only where the option asks for it. Spark 4.3 keeps what a reader planned after a push with the DataFrame: a
        second query of the same frame whose conditions cannot be pushed would read what the first one left over."""
        return _Pushing(self._narrowed) if self._options.push_filters else super().pushFilters

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_cluster(options) as cluster:
            topics = find_topics(cluster, options)
            wanted = find_partitions(topics, options)
            starts = resolve(cluster, options, wanted, options.starting, is_start=True)
            ends = resolve(cluster, options, wanted, options.ending, is_start=False)
            for at in wanted:
                start, end = starts[at].offset, ends[at].offset
                if start > end and "offsets" in (options.starting.kind, options.ending.kind):
                    raise InvalidOption(f"{at}: the start, offset {start}, is behind the end, offset {end}")
            wanted = [at for at in wanted if self._narrowed.allows(at)]
            firsts = self._firsts(cluster, wanted)
            ranges = [
                Slice(
                    at.topic,
                    at.partition,
                    max(starts[at].offset, self._narrowed.first, firsts.get(at, 0)),
                    min(ends[at].offset, self._narrowed.until),
                    topics[at.topic].topic_id,
                )
                for at in wanted
            ]
            sizes = record_bytes(cluster, wanted) if options.min_partitions is None else {}
        return list(self._tasks(ranges, sizes))

    def _firsts(self, cluster: Cluster, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a pushed condition on timestamps lets reading begin."""
        moment = self._narrowed.timestamp_min
        if moment is None:
            return {}
        found = cluster.offsets(dict.fromkeys(wanted, moment))
        return {at: row.offset if row.offset >= 0 else 2**63 - 1 for at, row in found.items()}

    def _tasks(self, ranges: list[Slice], sizes: dict[str, int]) -> list[ReadTask]:
        return plan(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            record_bytes=sizes,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, ReadTask):  # Spark's own placeholder when there is nothing to read
            return iter(())
        return read_task(self._options, partition, self._columns)
