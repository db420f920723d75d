"""`tidelog produce`: one record a line, from standard input."""

import os
import sys
import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, note, print_json, size
from tidelog.cli.problems import Problem, next_step

MAX_PARTITION: Final = 2**31 - 1
_FLUSH_SECONDS: Final = 30.0
_PROGRESS_SECONDS: Final = 0.5


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    *,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Splits a line into key and value.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header on each record. Repeatable."),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            "--null-marker", metavar="TEXT", help="A value that is exactly this is sent as null: a tombstone."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, max=MAX_PARTITION, help="Send all records here.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record before it counts.")] = Acks.ALL,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="Codec of the batches.")] = Codec.NONE,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Send standard input to a topic, one record a line."""
    if key_separator == "":
        raise typer.BadParameter("--key-separator must not be empty")
    headers = [parse_header(each) for each in header or ()]
    cluster = Cluster.dial(bootstrap, properties)
    run = Run(
        cluster.producer(
            **{
                "acks": acks.value,
                "compression.type": compression.value,
                "enable.idempotence": acks is Acks.ALL,
                "delivery.report.only.error": True,
            }
        ),
        topic,
        headers,
        partition,
    )
    if sys.stdin.isatty():
        note(f"one record a line to {topic}; Ctrl-D ends")
    interrupted = False
    try:
        run.send_all(lines(sys.stdin.buffer, key_separator, null_marker))
    except KeyboardInterrupt:
        interrupted = True
    run.finish()
    _report(run, output)
    if interrupted:
        raise typer.Exit(130)


def parse_header(text: str) -> tuple[str, bytes]:
    """Not a setting: a name may come twice, and spaces are part of a value, as are bytes that are no text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--header {text}: expected NAME=VALUE")
    return name, os.fsencode(value)


def lines(stream: Iterable[bytes], key_separator: str | None, null_marker: str | None) -> Iterable[Line]:
    separator = os.fsencode(key_separator) if key_separator else None
    marker = os.fsencode(null_marker) if null_marker is not None else None
    for number, raw in enumerate(stream, start=1):
        text = raw.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        if separator is not None:
            before, found, text = text.partition(separator)
            if not found:
                raise Problem(
                    f"line {number} has no {key_separator!r} to separate key and value",
                    "lines before it were sent; drop --key-separator to send lines without keys",
                )
            key = before
        yield Line(key, None if text == marker else text)


class Run:
    """One producer and what became of its records."""

    def __init__(self, producer: Any, topic: str, headers: list[tuple[str, bytes]], partition: int | None) -> None:
        self.topic = topic
        self.sent = 0
        self.sent_bytes = 0
        self.failed = 0
        self.first_error: Any = None
        self.seconds = 0.0
        self._producer = producer
        self._started = time.monotonic()
        self._more: dict[str, Any] = {"on_delivery": self._not_delivered}
        if headers:
            self._more["headers"] = headers
        if partition is not None:
            self._more["partition"] = partition

    def send_all(self, records: Iterable[Line]) -> None:
        from confluent_kafka import KafkaException

        shown = self._started
        try:
            for record in records:
                self._send(record)
                if self.sent % 1000 == 0 and time.monotonic() - shown > _PROGRESS_SECONDS:
                    shown = time.monotonic()
                    if sys.stderr.isatty() and not sys.stdin.isatty():
                        print(f"\r{count(self.sent, 'record')} …", end="", file=sys.stderr, flush=True)
        except Problem:
            self.finish()
            raise
        except KafkaException as refused:  # by the library, which takes no record that is larger than it may send
            self.finish()
            error = refused.args[0]
            hints = ["lines before it were sent", *filter(None, [_next_step(error)])]
            raise Problem(f"line {self.sent + 1} cannot be sent: {error.str()}", "; ".join(hints)) from None

    def _send(self, record: Line) -> None:
        while True:
            try:
                self._producer.produce(self.topic, record.value, record.key, **self._more)
                break
            except BufferError:  # the library's queue is full: wait for deliveries, do not drop
                self._producer.poll(0.1)
        self.sent += 1
        self.sent_bytes += len(record.value or b"") + len(record.key or b"")
        self._producer.poll(0)

    def _not_delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error

    def finish(self) -> None:
        left = self._producer.flush(_FLUSH_SECONDS)
        self.failed += left
        self.seconds = time.monotonic() - self._started

    @property
    def delivered(self) -> int:
        return self.sent - self.failed


def _report(run: Run, output: Output) -> None:
    if output is Output.JSON:
        facts = {"topic": run.topic, "delivered": run.delivered, "failed": run.failed, "bytes": run.sent_bytes}
        print_json({**facts, "seconds": round(run.seconds, 3)})
    elif sys.stderr.isatty():
        rate = run.delivered / run.seconds if run.seconds else 0.0
        print(
            f"\r{count(run.delivered, 'record')} to {run.topic}, {size(run.sent_bytes)}, {rate:,.0f} records/s",
            file=sys.stderr,
        )
    if run.failed:
        why = f": {run.first_error.str()}" if run.first_error is not None else f" within {_FLUSH_SECONDS:.0f} s"
        raise Problem(f"{count(run.failed, 'record')} of {run.sent:,} not delivered{why}", _next_step(run.first_error))


def _next_step(error: Any) -> str | None:
    if error is None:
        return "is the broker still there? `tidelog topic list` asks it"
    if error.name() == "MSG_SIZE_TOO_LARGE":
        return "raise the topic's max.message.bytes and give -X message.max.bytes=… here"
    return next_step(error)
