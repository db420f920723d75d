"""One row of the comparison: what is done, what it guarantees, what is read off, and what would be good enough."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.samples import Metric, Values
from bench.peers.servers.broker import Broker, Launcher

PAIR = ("tidelog", "kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Exactly one of `measure` (on brokers that the run starts and keeps for several rows) and `from_start` (which
    starts one itself, in an empty directory) is given."""

    name: str
    title: str
    guarantee: str  # when a record counts as accepted, the same on all sides
    metrics: tuple[Metric, ...]
    measure: Callable[[Broker], Values] | None = None
    from_start: Callable[[Launcher, Path, bool], Values] | None = None
    nodes: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)  # of the broker, by Kafka's names, on all sides
    settings_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of one side's broker, by its name
    sides: tuple[str, ...] = PAIR
    rounds_most: int = 99  # a row that takes minutes is repeated less often
    awake: bool = False  # cores are kept from sleeping meanwhile: see `bench.peers.awake`
    warm: bool = True  # one turn of each side before the first that counts: the JVM compiles, librdkafka's pages are in
