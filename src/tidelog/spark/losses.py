"""Is what a query has yet to read still there, and is it the log that it read before?

A topic may have been deleted or created anew, its log truncated, its beginning taken by retention. The query then stops
and names topic, partition and range, or with failOnDataLoss=false says so in the log and goes on. Before retention
overtakes a query that is too slow, there is a warning.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from tidelog.client.fetcher import GONE_S, DataLost
from tidelog.errors import KafkaError
from tidelog.ids import NO_TOPIC_ID, TopicPartition
from tidelog.spark.options import SourceOptions
from tidelog.spark.positions import Position, Positions
from tidelog.spark.reading import on_loss
from tidelog.spark.watching import Watch

log = logging.getLogger("tidelog.spark")

NEAR: Final = 0.1
"""A position in the first tenth of a log that retention is cutting is about to be overtaken."""


_PAUSE_S: Final = 0.2


class TopicChanged(KafkaError):
    """A topic of the query is gone, or another one has its name."""


class LossCheck:
    def __init__(self, options: SourceOptions, watch: Watch) -> None:
        self._options = options
        self._watch = watch
        self._warned: set[TopicPartition] = set()

    def continued(self, start: Positions) -> dict[TopicPartition, Position]:
        """Where reading goes on: the places of `start`, without what is gone, from the beginning where a topic is
        another one now or a partition is new."""
        existing = self._existing(start)
        places = dict(start.places)
        for at, place in start.places.items():
            if at not in existing:
                self._changed(f"topic {at.topic}, partition {at.partition} does not exist any more", place)
                del places[at]
        self._drop_of_others(places, start)
        new = sorted(existing - places.keys())
        for at, first in self._watch.starts(dict.fromkeys(new)).items():
            if first > 0 and at not in start.places:
                why = f"the partition is new to this query and its log begins at {first}"
                on_loss(self._options, DataLost(at, 0, first, why))
            places[at] = Position(first)
        return places

    def readable(self, start: Positions, end: Positions) -> dict[TopicPartition, Position]:
        """Where a batch from `start` to `end` begins in each partition. A batch that is planned again after a crash may
        end in a topic that is another one by now: what has its name then is none of this batch."""
        places = {at: place for at, place in self.continued(start).items() if at in end.places}
        self._drop_of_others(places, end)
        return self.expired(places, end.places)

    def _drop_of_others(self, places: dict[TopicPartition, Position], known: Positions) -> None:
        """Takes away the places in topics that are not those of `known` any more, though they have their names."""
        ids = self._watch.topic_ids()
        for at in list(places):
            then, now = known.topic_ids.get(at.topic, NO_TOPIC_ID), ids.get(at.topic, NO_TOPIC_ID)
            if then != now and NO_TOPIC_ID not in (then, now):
                text = (
                    f"topic {at.topic} was deleted and created anew (id {then} then, {now} now), "
                    f"partition {at.partition}"
                )
                self._changed(text, places.pop(at))

    def _existing(self, start: Positions) -> set[TopicPartition]:
        """Asked again for a moment when something is missing: a broker that has just started may not know all yet."""
        self._watch.continues()
        deadline = time.monotonic() + GONE_S
        while True:
            existing = set(self._watch.partitions())
            if start.places.keys() <= existing or time.monotonic() > deadline:
                return existing
            time.sleep(_PAUSE_S)
            self._watch.topics(fresh=True)

    def truncated(self, places: Mapping[TopicPartition, Position]) -> None:
        """By leader epochs: did a log lose its end, and perhaps grow again, while nobody read?"""
        known = {at: place.epoch for at, place in places.items() if place.epoch >= 0}
        for at, end in self._watch.cluster.epoch_ends(known).items():
            if 0 <= end < places[at].offset:
                why = f"the log was truncated: leader epoch {known[at]} ended at offset {end}"
                on_loss(self._options, DataLost(at, end, places[at].offset, why))

    def shortened(self, at: TopicPartition, place: Position, end: Position) -> None:
        why = f"the log ends at {end.offset} now, this query has read up to {place.offset}"
        on_loss(self._options, DataLost(at, end.offset, place.offset, why))

    def expired(
        self, places: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, Position]:
        """The places moved up to where logs begin, once that is settled to be what the user wants."""
        moved = dict(places)
        for at, first in self._watch.starts(places).items():
            place, end = places[at], ends[at]
            if place.offset < first:
                upto = max(place.offset, min(first, end.offset))
                if upto > place.offset:
                    why = f"retention has deleted them, the log begins at {first} now"
                    on_loss(self._options, DataLost(at, place.offset, upto, why))
                moved[at] = Position(upto, place.epoch)
            else:
                self._near(at, first, place.offset, end.offset)
        return moved

    def _near(self, at: TopicPartition, first: int, offset: int, end: int) -> None:
        """Warns once per partition until it is out of danger again. A log that begins at 0 has lost nothing yet."""
        if first == 0 or offset - first > NEAR * (end - first):
            self._warned.discard(at)
        elif at not in self._warned and end > offset:
            self._warned.add(at)
            log.warning(
                "topic %s, partition %d: retention is about to overtake this query: it stands at offset %d, the log "
                "begins at %d and ends at %d; raise retention.ms or give the query more resources",
                at.topic, at.partition, offset, first, end,
            )  # fmt: skip

    def _changed(self, what: str, place: Position) -> None:
        message = f"{what}: offsets from {place.offset} on cannot be read"
        if self._options.fail_on_data_loss:
            raise TopicChanged(
                f"{message}. The query stops; start it with a new checkpoint, or with failOnDataLoss=false to go on "
                "with what is there"
            )
        log.warning("%s; failOnDataLoss=false: going on with what is there", message)
