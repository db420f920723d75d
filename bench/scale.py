"""Width: a thousand partitions in one request, and two hundred consumers that wait for nothing."""

import selectors
import socket
import time

from bench import native, requests
from bench.results import Limits, Result
from bench.target import Target

_PARTITIONS = 1000
_POLLERS = 200
_POLL_WAIT_MS = 500  # librdkafka's default


def measure(target: Target, _limits: Limits) -> list[Result]:
    topic = target.make_topic("wide", partitions=_PARTITIONS)
    assert topic is not None
    everything = [(p, 0) for p in range(_PARTITIONS)]
    results = []
    for name, request in (
        ("Metadata of 1,000 partitions", requests.metadata(topic)),
        ("Fetch of 1,000 partitions", requests.fetch(topic, everything, wait_ms=0)),
    ):
        path = target.work_dir / "request"
        path.write_bytes(request)
        took = native.run("blast", "send", target.host, target.port, path, target.scaled(500), 1)
        milliseconds = took["p50_us"] / 1e3
        detail = {"p99_ms": took["p99_us"] / 1e3, "response_bytes": took["bytes_received"] / took["count"]}
        results.append(
            Result(name=name, value=milliseconds, unit="ms p50", target="< 3", ok=milliseconds < 3, detail=detail)
        )
    if target.pid:
        results.append(_idle_polls(target, topic))
    target.delete_topic(topic)
    return results


def _idle_polls(target: Target, topic: str) -> Result:
    """Each connection asks again as soon as its wait is over, as a consumer of a quiet topic does."""
    request = requests.fetch(topic, [(0, 0)], wait_ms=_POLL_WAIT_MS)
    selector = selectors.DefaultSelector()
    connections = [socket.create_connection((target.host, target.port)) for _ in range(_POLLERS)]
    for connection in connections:
        connection.sendall(request)
        selector.register(connection, selectors.EVENT_READ, connection)
    seconds = 2.0 if target.quick else 5.0
    answers, cpu, end = 0, target.cpu_s(), time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            poller: socket.socket = key.data
            size = int.from_bytes(_exactly(poller, 4), "big")
            _exactly(poller, size)
            poller.sendall(request)
            answers += 1
    cpu = target.cpu_s() - cpu
    for connection in connections:
        connection.close()
    return Result(
        name="200 idle long polls: broker CPU",
        value=cpu / seconds * 100,
        unit="% of a core",
        detail={"polls_per_s": answers / seconds, "cpu_us_per_poll": cpu / max(answers, 1) * 1e6},
    )


def _exactly(connection: socket.socket, size: int) -> bytes:
    """The rest of a frame follows its first bytes at once, so blocking here delays nobody."""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the broker closed an idle consumer's connection")
    return data
