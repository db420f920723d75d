"""`tidelog demo`: a broker, a generator of orders and a consumer, and a view of the records flowing between them."""

import signal
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import typer

from tidelog.cli.cluster import Cluster, admin_api
from tidelog.cli.consume import as_text, assign
from tidelog.cli.demo_broker import broker_at
from tidelog.cli.demo_view import LineView, TerminalView
from tidelog.cli.orders import Order, orders
from tidelog.cli.output import count
from tidelog.cli.positions import Start
from tidelog.cli.problems import Problem
from tidelog.cli.topic_report import skew

TOPIC: Final = "orders"
PARTITIONS: Final = 12
_DRAIN_SECONDS: Final = 15.0
_BURST_MAX: Final = 2000  # after a pause, catch up in steps that leave time to consume and draw
_RUN_HEADER: Final = "demo-run"


@dataclass
class Totals:
    """What has happened so far; the view draws it."""

    partitions: int
    produced: int = 0
    consumed: int = 0
    failed: int = 0
    per_partition: Counter[int] = field(default_factory=Counter)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=6))

    @property
    def counts(self) -> list[int]:
        return [self.per_partition[each] for each in range(self.partitions)]

    @property
    def skew(self) -> float | None:
        return skew(self.counts)


def demo(
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="End by itself after this long.")] = None,
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65_535, help="Broker to use, or to start.")] = 9092,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where a broker started here keeps its log.")
    ] = Path("data"),
    rate: Annotated[int, typer.Option("--rate", "-r", min=1, max=100_000, help="Orders a second.")] = 1000,
) -> None:
    """See it work: start a broker, generate orders, watch records flow. Ctrl-C ends it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a broker started here ends with the demo
    with broker_at(port, data_dir) as (bootstrap, started):
        print(f"{'started a broker' if started else 'using the broker'} at {bootstrap}; orders go to topic {TOPIC}")
        totals = _flow(Cluster.dial(bootstrap), seconds, rate)
    _print_totals(totals, port, data_dir, started)
    if totals.failed or totals.consumed != totals.produced:
        raise Problem(
            f"produced {totals.produced:,} and consumed {totals.consumed:,}, {totals.failed:,} failed",
            f"`tidelog log verify {data_dir}` checks what is on disk",
        )


def _flow(cluster: Cluster, seconds: float | None, rate: int) -> Totals:
    partitions = _make_topic(cluster)
    totals = Totals(partitions)
    run = f"{time.time_ns():x}".encode()
    consumer = cluster.consumer(**{"auto.offset.reset": "earliest", "fetch.wait.max.ms": 100})
    try:
        assign(consumer, TOPIC, list(range(partitions)), Start("end"))
        _settle(consumer, partitions)
        flow = _Flow(
            cluster.producer(**{"acks": "all", "compression.type": "lz4", "linger.ms": 10}), consumer, run, totals
        )
        view = TerminalView(totals) if sys.stdout.isatty() else LineView(totals)
        with view:
            with suppress(KeyboardInterrupt):  # the way to end it; what is on its way still arrives below
                flow.run(seconds, rate, view)
            flow.drain(view)
    finally:
        consumer.close()
    return totals


def _make_topic(cluster: Cluster) -> int:
    from confluent_kafka import KafkaError, KafkaException

    (created,) = cluster.admin.create_topics([admin_api().NewTopic(TOPIC, PARTITIONS, 1)]).values()
    try:
        created.result(15)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    return cluster.await_topic(TOPIC)


def _settle(consumer: Any, partitions: int) -> None:
    """Pin "end" to offsets before the first order is sent: found out later, the end would lie behind it."""
    from confluent_kafka import TopicPartition

    where = [TopicPartition(TOPIC, each) for each in range(partitions)]
    for each in where:
        each.offset = consumer.get_watermark_offsets(each, timeout=15)[1]
    consumer.assign(where)


class _Flow:
    """Produces and consumes in one loop: the client library does the sending and fetching in threads of its own."""

    def __init__(self, producer: Any, consumer: Any, run: bytes, totals: Totals) -> None:
        self._producer, self._consumer, self._totals = producer, consumer, totals
        self._headers = [(_RUN_HEADER, run)]

    def run(self, seconds: float | None, rate: int, view: Any) -> None:
        source = orders(Random(), time.time_ns() // 1_000_000)
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < (seconds if seconds is not None else float("inf")):
            due = min(int(elapsed * rate) - self._totals.produced, _BURST_MAX)
            for order in islice(source, max(due, 0)):
                self._send(order)
            self._producer.poll(0)
            self._take(0.05)
            view.draw()

    def drain(self, view: Any) -> None:
        self._producer.flush(_DRAIN_SECONDS)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._totals.consumed < self._totals.produced - self._totals.failed and time.monotonic() < deadline:
            self._take(0.1)
            view.draw()

    def _send(self, order: Order) -> None:
        try:
            self._producer.produce(TOPIC, order.value, order.key, headers=self._headers, on_delivery=self._delivered)
        except BufferError:
            return  # the broker is behind; the next round catches up
        self._totals.produced += 1

    def _delivered(self, error: Any, _message: Any) -> None:
        self._totals.failed += error is not None

    def _take(self, wait_seconds: float) -> None:
        messages = [each for each in self._consumer.consume(5000, timeout=wait_seconds) if self._ours(each)]
        self._totals.consumed += len(messages)
        self._totals.per_partition.update(each.partition() for each in messages)
        self._totals.last.extend(as_text(each) for each in messages[-6:])

    def _ours(self, message: Any) -> bool:
        """Somebody else may write orders to the same broker; they are not this demo's to count."""
        return message.error() is None and message.headers() == self._headers


def _print_totals(totals: Totals, port: int, data_dir: Path, started: bool) -> None:
    print(f"produced {count(totals.produced, 'order')}, consumed {totals.consumed:,}, skew {totals.skew or '-'}")
    print("next:")
    if started:
        print(f"  tidelog serve --port {port} --data-dir {data_dir}      # the orders are still there")
    broker = "" if port == 9092 else f" -b localhost:{port}"
    print(f"  tidelog topic describe {TOPIC}{broker}")
    print(f"  tidelog topic locate {TOPIC} customer-1{broker}")
    print(f"  tidelog consume {TOPIC} --offset -1 -e -o json{broker}")
