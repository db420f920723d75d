"""Three brokers on this machine, every record on all of them before it is acknowledged."""

from bench import native
from bench.peers import raw
from bench.peers.rows import produce
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker


def one_record(broker: Broker) -> Values:
    topic = broker.make_topic("three")
    leader = broker.leader_port(topic)
    request = broker.work_dir / "request"
    request.write_bytes(raw.produce(topic, raw.batch(1, 100), acks=-1))
    count = broker.scaled(5_000)
    cpu = broker.cpu_s()
    took = native.run("blast", "send", broker.host, leader, request, count, 1)
    cpu = broker.cpu_s() - cpu
    broker.check_end(topic, count)
    broker.delete_topic(topic)
    return {
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "per_s": count / took["seconds"],
        "cpu_us": cpu / count * 1e6,
    }


ROWS = (
    Row(
        name="one-record-3-nodes",
        title="one record per request, one in flight, acks=all, 3 brokers (C client)",
        guarantee="in the page caches of all in-sync brokers, two at least",
        metrics=(
            Metric("per_s", "requests/s", Better.HIGHER, target=1.0),
            Metric("p50_us", "p50 µs"),
            Metric("p99_us", "p99 µs"),
            Metric("cpu_us", "CPU µs per request, all brokers"),
        ),
        measure=one_record,
        nodes=3,
        settings={"min.insync.replicas": "2"},
    ),
    produce.row(100, "all", 1, nodes=3),
    produce.row(1000, "all", 1, nodes=3),
)
