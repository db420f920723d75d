"""A place in every partition of a query: what Spark writes to its checkpoint for us.

    {"topics": {"orders": {"id": "5a0c…", "recordBytes": 80, "partitions": {"0": {"offset": 42, "epoch": 3}}}}, …}

Topic id and leader epoch are there so that a topic that was deleted and created anew, or a log that was truncated, is
recognised after a restart instead of being read as if nothing had happened. `recordBytes` decides how a batch is
divided into tasks: written down, so that a replay is divided alike. `group` and `servers` are there for the listener
that publishes the position to a consumer group: it sees nothing of a query but this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from uuid import UUID

from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition


class Position(NamedTuple):
    offset: int
    epoch: int = -1  # of the leader that gave it; -1 if unknown


@dataclass(frozen=True, slots=True)
class Positions:
    places: Mapping[TopicPartition, Position] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    record_bytes: Mapping[str, int] = field(default_factory=dict)
    group: str | None = None
    servers: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The same places give the same JSON: Spark compares it as text to see whether there is anything new."""
        topics: dict[str, Any] = {}
        for (topic, number), place in sorted(self.places.items()):
            if topic not in topics:
                topics[topic] = {"id": str(self.topic_ids.get(topic, NO_TOPIC_ID)), "partitions": {}}
                if topic in self.record_bytes:
                    topics[topic]["recordBytes"] = self.record_bytes[topic]
            entry = topics[topic]
            entry["partitions"][str(number)] = {"offset": place.offset, "epoch": place.epoch}
        found: dict[str, Any] = {"topics": topics}
        if self.group is not None:
            found |= {"group": self.group, "servers": self.servers}
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        places, ids, sizes = {}, {}, {}
        try:
            for topic, entry in data["topics"].items():
                ids[topic] = TopicId(UUID(entry["id"]))
                if "recordBytes" in entry:
                    sizes[topic] = int(entry["recordBytes"])
                for number, place in entry["partitions"].items():
                    places[TopicPartition(topic, int(number))] = Position(int(place["offset"]), int(place["epoch"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"this is no position of the tidelog source: {data!r} ({error!r})") from None
        return cls(places, ids, sizes, data.get("group"), data.get("servers"))


def lag(position: Mapping[str, Any] | None, latest: Mapping[str, Any] | None) -> int:
    """Records between two positions given as JSON, such as `endOffset` and `latestOffset` of a query's progress."""
    if not position or not latest:
        return 0
    behind, ahead = Positions.from_json(position).places, Positions.from_json(latest).places
    return sum(max(0, place.offset - behind[at].offset) for at, place in ahead.items() if at in behind)
