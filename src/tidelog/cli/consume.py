"""`tidelog consume`: print a topic's records. Partitions are assigned by hand: no consumer group is made or needed."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from tidelog.cli.connecting import TIMEOUT_SECONDS, Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, PropertyOption
from tidelog.cli.output import count, note
from tidelog.cli.positions import Start, parse_start
from tidelog.cli.problems import Problem
from tidelog.cli.render import json_bytes, printable, when

_DRAIN: Final = 1000
_TAIL: Final = -2000  # librdkafka's RD_KAFKA_OFFSET_TAIL(n) is this minus n


class Shape(StrEnum):
    TEXT = "text"
    JSON = "json"
    VALUE = "value"
    KEY_VALUE = "key-value"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    *,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest record.")] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="N", help="Start at offset N; -N is the last N of each partition."),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Start at a time: 2026-01-31T12:00, milliseconds since 1970, or 10m ago.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition. Repeatable.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end/--follow", "-e/-f", help="Stop at the end, or wait for more.")
    ] = False,
    isolation: Annotated[
        bool, typer.Option("--read-uncommitted", help="Also show records of open and aborted transactions.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: Annotated[
        Shape,
        typer.Option("--output", "-o", help="text is for people; json is one object a line; the others are raw bytes."),
    ] = Shape.TEXT,
) -> None:
    """Print records as they arrive; from now on unless told where to start."""
    start = parse_start(from_beginning=from_beginning, offset=offset, from_time=from_time, now=datetime.now(UTC))
    cluster = Cluster.dial(bootstrap, properties)
    partitions = _partitions(cluster, topic, partition)
    consumer = cluster.consumer(
        **{
            "enable.partition.eof": exit_at_end,
            "fetch.wait.max.ms": 100,  # a partition that is found later waits for the fetch that is under way
            "auto.offset.reset": "earliest",  # an offset that retention has removed: begin with what is left
            "isolation.level": "read_uncommitted" if isolation else "read_committed",
        }
    )
    shown = 0
    try:
        assign(consumer, topic, partitions, start)
        if not exit_at_end and not from_beginning:
            note(f"waiting for records in {topic}; Ctrl-C ends")
        shown = _print_all(consumer, set(partitions) if exit_at_end else None, max_messages, _writer(output))
    finally:
        consumer.close()
        note(count(shown, "record"))


def _partitions(cluster: Cluster, topic: str, wanted: list[int] | None) -> list[int]:
    there = sorted(cluster.topics(topic).topics[topic].partitions)
    for each in wanted or ():
        if each not in there:
            raise Problem(f"{topic} has no partition {each}", f"it has {count(len(there), 'partition')}, from 0")
    return sorted(set(wanted)) if wanted else there


def assign(consumer: Any, topic: str, partitions: list[int], start: Start) -> None:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    # Knowing the leaders beforehand saves half a second: the library looks for a missing leader only that often.
    consumer.list_topics(topic, timeout=TIMEOUT_SECONDS)
    match start.kind:
        case "beginning":
            where = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions]
        case "end":
            where = [TopicPartition(topic, each, OFFSET_END) for each in partitions]
        case "tail":
            where = [TopicPartition(topic, each, _TAIL - start.number) for each in partitions]
        case "offset":
            # Beyond the end is the end; the library would begin at the oldest record, as if retention had removed it.
            ends = consumer.offsets_for_times(
                [TopicPartition(topic, each, OFFSET_END) for each in partitions], timeout=TIMEOUT_SECONDS
            )
            where = [TopicPartition(topic, end.partition, min(start.number, end.offset)) for end in ends]
        case "time":
            asked = [TopicPartition(topic, each, start.number) for each in partitions]
            # A partition without a record at or after that time answers "end", which is where to wait for one.
            where = consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
    consumer.assign(where)


def _print_all(consumer: Any, unfinished: set[int] | None, max_messages: int | None, write: Any) -> int:
    """Print until told to stop; `unfinished` are the partitions whose end was not seen yet, None to go on for ever."""
    shown = 0
    try:
        while unfinished is None or unfinished:
            first = consumer.poll(0.5)  # wakes for the first record, then takes all that came with it
            if first is None:
                _end_if_reader_left()
                continue
            for message in (first, *consumer.consume(_DRAIN, timeout=0)):
                if message.error() is not None:
                    _at_error(message, unfinished)
                    continue
                write(message)
                shown += 1
                if shown == max_messages:
                    return shown
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # the way to end a consumer that follows
    finally:
        sys.stdout.flush()
    return shown


def _end_if_reader_left() -> None:
    """A closed pipe shows only when it is written to; a topic may stay silent for ever after `| head` has left."""
    import select

    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)  # 0: errors only
    if any(event & select.POLLERR for _, event in watched.poll(0)):
        raise BrokenPipeError


def _at_error(message: Any, unfinished: set[int] | None) -> None:
    from confluent_kafka import KafkaError, KafkaException

    if message.error().code() == KafkaError._PARTITION_EOF:
        if unfinished is not None:
            unfinished.discard(message.partition())
    elif not message.error().retriable():
        raise KafkaException(message.error())


def _writer(shape: Shape) -> Any:
    binary, text = sys.stdout.buffer, sys.stdout

    def value(message: Any) -> None:
        binary.write((message.value() or b"") + b"\n")

    def key_value(message: Any) -> None:
        binary.write((message.key() or b"") + b"\t" + (message.value() or b"") + b"\n")

    def people(message: Any) -> None:
        text.write(as_text(message) + "\n")

    return {Shape.VALUE: value, Shape.KEY_VALUE: key_value, Shape.TEXT: people, Shape.JSON: _json_writer()}[shape]


def _json_writer() -> Any:
    import msgspec

    encoder, binary = msgspec.json.Encoder(), sys.stdout.buffer

    def write(message: Any) -> None:
        binary.write(encoder.encode(as_json(message)) + b"\n")

    return write


def as_text(message: Any) -> str:
    """`partition@offset  time  key  value`, with anything that could confuse a terminal escaped."""
    _, stamp = message.timestamp()
    at = when(stamp) if stamp >= 0 else "-"
    return f"{message.partition()}@{message.offset()}  {at}  {printable(message.key())}  {printable(message.value())}"


def as_json(message: Any) -> dict[str, object]:
    kind, stamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": stamp if kind else None,
        "timestamp_type": {1: "CreateTime", 2: "LogAppendTime"}.get(kind),
        "headers": [{"name": name, "value": json_bytes(value)} for name, value in message.headers() or ()],
        "key": json_bytes(message.key()),
        "value": json_bytes(message.value()),
    }
