"""Does a produce cost more when there is more of everything else? One record per request, one after the other."""

from functools import partial
from itertools import pairwise

from bench.peers import clients, raw
from bench.peers.rows.history import fill
from bench.peers.rows.latency import CACHED
from bench.peers.rows.row import Row
from bench.peers.samples import Metric, Values
from bench.peers.servers.broker import Broker

PARTITIONS, CONNECTIONS = (1, 10, 100, 1_000, 10_000), (1, 100, 1_000)
REQUESTS = 10_000


def _cost(broker: Broker, topic: str, *, partitions: int = 1, connections: int = 1) -> tuple[float, float]:
    """CPU µs of the broker and median µs of a request that goes to each partition and connection in turn."""
    request = broker.work_dir / "request"
    batch = raw.batch(1, 100)
    framed = raw.produce(topic, batch)
    request.write_bytes(framed)
    where = raw.partition_at(framed, batch)
    load = ("crowd", "spread", broker.host, broker.port, request, connections)
    clients.run(*load, max(partitions, connections), 1, where, partitions)  # every log open, every connection greeted
    count = broker.scaled(REQUESTS)
    cpu = broker.cpu_s()
    took = clients.run(*load, count, 1, where, partitions)
    return (broker.cpu_s() - cpu) / count * 1e6, took["p50_us"]


def by_partitions(broker: Broker) -> Values:
    values = {}
    for partitions in PARTITIONS:
        topic = broker.make_topic("growth", partitions=partitions)
        values[f"cpu_{partitions}"], values[f"p50_{partitions}"] = _cost(broker, topic, partitions=partitions)
        broker.delete_topic(topic)
    values["growth"] = values[f"p50_{PARTITIONS[-1]}"] / values[f"p50_{PARTITIONS[0]}"]
    return values


def by_connections(broker: Broker) -> Values:
    values = {}
    topic = broker.make_topic("growth")
    for connections in CONNECTIONS:
        values[f"cpu_{connections}"], values[f"p50_{connections}"] = _cost(broker, topic, connections=connections)
    broker.delete_topic(topic)
    values["growth"] = values[f"p50_{CONNECTIONS[-1]}"] / values[f"p50_{CONNECTIONS[0]}"]
    return values


def by_history(broker: Broker, *, gigabytes: tuple[int, ...]) -> Values:
    """One topic that grows: nothing has to be deleted, which some do a minute later."""
    values, records = {}, 0
    topic = broker.make_topic("growth")
    for had, size in pairwise((0, 0, *gigabytes)):
        if size > had:
            records += fill(broker, topic, broker.scaled((size - had) * 1000))
        values[f"cpu_{size}"], values[f"p50_{size}"] = _cost(broker, topic)
        records += 1 + broker.scaled(REQUESTS)
    broker.check_end(topic, records, 1)
    broker.delete_topic(topic)
    values["growth"] = values[f"p50_{gigabytes[-1]}"] / values["p50_0"]
    return values


def _row(name: str, title: str, points: tuple[int, ...], unit: str, **rest: object) -> Row:
    figures = [Metric(f"p50_{point}", f"p50 µs at {point:,} {unit}") for point in points]
    return Row(
        name=name,
        title=title,
        guarantee=CACHED,
        metrics=(Metric("growth", "p50 at the most ÷ at the least (≤ 2 is flat)"), *figures),
        **rest,  # type: ignore[arg-type]
    )


_GIGABYTES = (1, 10, 50)
ROWS = (
    _row("growth-connections", "one record per request, more connections", CONNECTIONS, "connections",
         measure=by_connections, rounds_most=3),
    _row("growth-partitions", "one record per request, more partitions", PARTITIONS, "partitions",
         measure=by_partitions, rounds_most=2),
    _row("growth-history", "one record per request, behind more history", (0, *_GIGABYTES), "GB",
         measure=partial(by_history, gigabytes=_GIGABYTES), rounds_most=1, warm=False),
)  # fmt: skip
