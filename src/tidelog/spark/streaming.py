"""`spark.readStream`: how far each micro-batch goes, and the tasks that read it.

Spark keeps one instance of this on the driver for the life of a query, in a Python process of its own. `start` of
`latestOffset` is the end of a batch that Spark has committed, which makes it the moment to publish the position to a
consumer group: `commit` comes one batch later, and never for the last one of an AvailableNow run.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.client.group_offsets import commit_offsets
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.spark.admission import admit
from tidelog.spark.losses import LossCheck
from tidelog.spark.options import SourceOptions
from tidelog.spark.positions import Position, Positions
from tidelog.spark.reading import read_task
from tidelog.spark.resolve import resolve
from tidelog.spark.schema import check_schema
from tidelog.spark.slices import ReadTask, Slice, plan
from tidelog.spark.watching import Watch

log = logging.getLogger("tidelog.spark")

Json = dict[str, Any]


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema, options)
        self._watch = Watch(options)
        self._losses = LossCheck(options, self._watch)
        self._target: dict[TopicPartition, Position] | None = None  # AvailableNow: nothing behind it is read
        self._checked_epochs = False
        self._published: Json | None = None
        self._triggered_at = time.monotonic()

    # --- how far ------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:
        partitions = self._watch.partitions()
        places = resolve(self._watch.cluster, self._options, partitions, self._options.starting, is_start=True)
        return self._positions(places).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._watch.ends(fresh=True)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._publish(start)
        before = Positions.from_json(start)
        places = self._losses.continued(before)
        if not self._checked_epochs:
            self._losses.truncated(places)
            self._checked_epochs = True
        ends = self._ends(places)
        most = None if isinstance(limit, ReadAllAvailable) else self._options.max_offsets_per_trigger
        starts = {at: place.offset for at, place in places.items()}
        waiting = sum(ends[at].offset - starts[at] for at in ends)
        if not waiting and places == before.places:
            return start
        if self._should_wait(waiting, limit):
            return start
        self._triggered_at = time.monotonic()
        admitted = admit(starts, {at: place.offset for at, place in ends.items()}, most)
        # Where nothing moves the old epoch stays too: Spark compares positions as text to see whether there is work.
        after = {
            at: Position(offset, ends[at].epoch) if offset > starts[at] else places[at]
            for at, offset in admitted.items()
        }
        return self._positions(after).to_json()

    def reportLatestOffset(self) -> Json:
        """Shown as latestOffset in the query's progress: how far behind it is."""
        return self._positions(self._watch.ends()).to_json()

    def _ends(self, places: dict[TopicPartition, Position]) -> dict[TopicPartition, Position]:
        """Of every partition that is read; never before its place."""
        ends = self._watch.ends() if self._target is None else self._target
        found = {}
        for at, place in places.items():
            end = ends.get(at, place)  # a partition that came after an AvailableNow run began is left to the next
            if end.offset < place.offset:
                if self._target is None and self._watch.ends(fresh=True)[at].offset < place.offset:
                    self._losses.shortened(at, place, end)
                end = place
            found[at] = end
        return found

    def _should_wait(self, waiting: int, limit: ReadLimit) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        return waiting < least and waited_ms < self._options.max_trigger_delay_ms

    def _positions(self, places: dict[TopicPartition, Position]) -> Positions:
        group = self._options.group_id
        servers = self._options.bootstrap_servers if group is not None else None
        return Positions(places, self._watch.topic_ids(), self._watch.record_bytes(), group, servers)

    # --- reading ------------------------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        before, after = Positions.from_json(start), Positions.from_json(end)
        places = self._losses.readable(before, after)
        ranges = [
            Slice(at.topic, at.partition, place.offset, after.places[at].offset, after.topic_ids[at.topic])
            for at, place in sorted(places.items())
        ]
        return plan(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            record_bytes=after.record_bytes,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, ReadTask):
            return iter(())
        return read_task(self._options, partition, self._columns)

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def commit(self, end: Json) -> None:
        self._publish(end)

    def stop(self) -> None:
        self._watch.close()

    def _publish(self, position: Json) -> None:
        """Shows the position to everybody who looks at consumer groups. It decides nothing, so it must not stop a
        query: the checkpoint is what counts."""
        if self._options.group_id is None or position == self._published:
            return
        try:
            commit_offsets(self._watch.cluster, self._options.group_id, Positions.from_json(position).places)
            self._published = position
        except (KafkaError, OSError) as error:
            log.warning("group %s does not show the position of this query: %s", self._options.group_id, error)
