"""How fast replicas are copied while they move: the limits that Kafka's own kafka-reassign-partitions sets."""

import re
from collections.abc import Iterable
from typing import Final

import typer

from tidelog.cli.cluster.moves import Plan
from tidelog.cli.cluster.picture import Picture
from tidelog.cli.config import alter_configs
from tidelog.cli.connecting import Cluster
from tidelog.ids import TopicPartition

LIFT: Final = "none"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SOURCES: Final = "leader.replication.throttled.replicas"
TARGETS: Final = "follower.replication.throttled.replicas"

_SHAPE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|B|KB|MB|GB|KiB|MiB|GiB)(?:/s)?", re.IGNORECASE)
_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip


def parse_rate(text: str) -> int | None:
    """Bytes a second; None is no limit."""
    if text.lower() == LIFT:
        return None
    found = _SHAPE.fullmatch(text.strip())
    rate = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if rate < 1:
        raise typer.BadParameter(f"--throttle {text}: expected bytes a second, such as 50MB, or none")
    return rate


def limit(kafka: Cluster, seen: Picture, plan: Plan, rate: int) -> None:
    """Of everybody who takes part in the plan."""
    present = {TopicPartition(each.topic, each.partition): each.replicas for each in seen.partitions}
    brokers = {node for place, replicas in plan.items() for node in (*replicas, *present.get(place, ()))}
    for node in sorted(brokers & {each.id for each in seen.brokers}):
        alter_configs(kafka, "broker", str(node), dict.fromkeys(RATES, str(rate)))
    for topic in sorted({place.topic for place in plan}):
        moved = [(place, replicas) for place, replicas in sorted(plan.items()) if place.topic == topic]
        sources = [f"{place.partition}:{node}" for place, _ in moved for node in present.get(place, ())]
        targets = [
            f"{place.partition}:{node}" for place, new in moved for node in new if node not in present.get(place, ())
        ]
        alter_configs(kafka, "topic", topic, {SOURCES: ",".join(sources), TARGETS: ",".join(targets)})


def lift(kafka: Cluster, seen: Picture, topics: Iterable[str]) -> None:
    for topic in sorted(set(topics)):
        alter_configs(kafka, "topic", topic, {SOURCES: None, TARGETS: None})
    for each in seen.brokers:
        alter_configs(kafka, "broker", str(each.id), dict.fromkeys(RATES))
