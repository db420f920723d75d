"""All peers side by side, where protocols can be compared: storing records of 100 B, one by one and in a stream."""

import time
from functools import partial

from bench.peers import clients, sessions
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Absent, Broker
from bench.peers.sessions.session import Session

RECORD_BYTES, UNANSWERED, BATCH = 100, 1000, 100
SIDES = ("tidelog", "kafka", "nats", "redis", "rabbitmq-stream", "rabbitmq-quorum", "activemq")
_KAFKA_PROTOCOL = ("tidelog", "kafka")
_WITHOUT = {"rabbitmq-quorum": "always syncs: see the rows with fsync"}
_WITHOUT_SYNC = {
    "nats": "2.9 has no setting that syncs before the answer",
    "rabbitmq-stream": "streams never sync before the answer",
}


def store(broker: Broker, *, count: int, unanswered: int, synced: bool) -> Values:
    """`count` records, at most `unanswered` of them on their way; batches of 100 where the protocol has batches."""
    if reason := (_WITHOUT_SYNC if synced else _WITHOUT).get(broker.side):
        raise Absent(reason)
    name = f"others{time.time_ns() // 1000 % 10**9}"
    if broker.side in _KAFKA_PROTOCOL:
        name = broker.make_topic("others", synced=synced)
    batch = BATCH if unanswered > 1 else 1
    session = sessions.connect(broker.side, broker.host, broker.port, name, b"x" * RECORD_BYTES, batch)
    try:
        requests = broker.scaled(count) // session.per_request
        path = broker.work_dir / "request"
        path.write_bytes(session.request)
        session.sock.setblocking(True)
        descriptor = session.sock.fileno()
        before, cpu = session.stored(), broker.cpu_s()
        in_flight = max(1, unanswered // session.per_request)
        took = clients.run(
            "answers", descriptor, session.kind, path, requests, in_flight, pass_fds=(descriptor,), timeout_s=120
        )
        cpu = broker.cpu_s() - cpu
        _check(session, before + requests * session.per_request, broker.side)
    finally:
        session.close()
    if broker.side in _KAFKA_PROTOCOL:
        broker.delete_topic(name)
    records = requests * session.per_request
    return {
        "rate": records / took["seconds"],
        "p50_us": took["p50_us"],
        "p99_us": took["p99_us"],
        "cpu_us": cpu / records * 1e6,
        "rss_mb": broker.rss_mb(),
    }


def _check(session: Session, expected: int, side: str) -> None:
    """What was acknowledged is there; a queue's own count may lag a moment."""
    deadline = time.monotonic() + 20
    while (got := session.stored()) != expected and side != "activemq":
        if time.monotonic() > deadline:
            raise RuntimeError(f"{side} has {got} records where {expected} were acknowledged")
        time.sleep(0.2)


def _row(name: str, title: str, *, count: int, unanswered: int, synced: bool) -> Row:
    rate = Metric("rate", "records/s", Better.HIGHER)
    p50, p99 = Metric("p50_us", "p50 µs"), Metric("p99_us", "p99 µs")
    first = (rate, p50, p99) if unanswered > 1 else (p50, p99, rate)
    return Row(
        name=name,
        title=title,
        guarantee="on disk (fsync before the answer)" if synced else "in the page cache of one broker",
        metrics=(*first, Metric("cpu_us", "broker CPU µs per record"), Metric("rss_mb", "broker RSS MB")),
        measure=partial(store, count=count, unanswered=unanswered, synced=synced),
        settings_of=_SYNCING if synced else {},
        sides=SIDES,
    )


_SYNCING = {"redis": {"appendfsync": "always"}, "activemq": {"journalDiskSyncStrategy": "always"}}
ROWS = (
    _row("peers-one", "one record of 100 B at a time", count=5_000, unanswered=1, synced=False),
    _row("peers-stream", "records of 100 B, 1,000 unanswered", count=200_000, unanswered=UNANSWERED, synced=False),
    _row("peers-one-fsync", "one record of 100 B at a time, fsync first", count=1_000, unanswered=1, synced=True),
    _row(
        "peers-stream-fsync", "records of 100 B, 1,000 unanswered, fsync first",
        count=50_000, unanswered=UNANSWERED, synced=True,
    ),
)  # fmt: skip
