"""The options of the source: those of Spark's Kafka source, by the same names and with the same defaults.

Names do not distinguish case. What is not understood is refused, with the name that was probably meant: a misspelt
`maxOffsetsPerTriger` that is silently ignored is found only when the cluster falls over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import READ_COMMITTED, READ_UNCOMMITTED, parse_servers
from tidelog.ids import TopicPartition
from tidelog.spark.bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    InvalidOption,
    parse_assign,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from tidelog.spark.refusals import refuse_kafka, refuse_unknown, refuse_unknown_kafka

SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_TRIGGER: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN: Final = (
    *SUBSCRIPTIONS, *_ENDING, *_TRIGGER,
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "pushFilters", "isolation.level",
    "value.format", "value.schema",
)  # fmt: skip
WITHOUT_EFFECT: Final = (
    # Of Spark's connector: its consumers are cached, polled and retried; this source has none of those.
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "path", "serialization.format",
)  # fmt: skip
REFUSED: Final = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are always bytes; cast the column",
    "value.deserializer": "values are always bytes; cast the column or use value.format",
    "enable.auto.commit": "Spark's checkpoint holds the position; kafka.group.id publishes it",
    "interceptor.classes": "there is no Java consumer that could run them",
}
_KAFKA_USED: Final = (
    "bootstrap.servers", "isolation.level", "group.id", "client.id", "default.api.timeout.ms", "security.protocol",
)  # fmt: skip
_KAFKA_WITHOUT_EFFECT: Final = (
    # Of Java's consumer, which is not there to be tuned. Any other name is a mistake, and one that may matter.
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "check.crcs",
    "client.dns.lookup", "client.rack", "config.providers", "connections.max.idle.ms", "enable.metrics.push",
    "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.instance.id",
    "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "security.providers",
    "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)  # fmt: skip
_MS_PER: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")


def option_text(value: Any) -> str:
    """As Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound
    ending: Bound
    latest_if_no_timestamp: bool = False
    isolation_level: int = READ_UNCOMMITTED
    fail_on_data_loss: bool = True
    include_headers: bool = False
    push_filters: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    group_id: str | None = None
    client_id: str = "tidelog-spark"
    timeout_ms: int = 60_000
    value_format: str = "raw"
    value_schema: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = {key.lower(): str(value) for key, value in given.items()}
    kafka = {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}
    refuse_unknown(options, (*KNOWN, *WITHOUT_EFFECT), "source")
    _refuse_kafka(kafka)
    get = _Getter(options)
    servers = kafka.get("bootstrap.servers", "")
    if not servers:
        raise InvalidOption("kafka.bootstrap.servers is not set: give one or more host:port, separated by commas")
    try:
        parse_servers(servers)
    except ValueError as error:
        raise InvalidOption(f"kafka.bootstrap.servers: {error}") from None
    topics, pattern, assigned = _subscription(get)
    columns = parse_columns(given)
    level = _isolation(kafka.get("isolation.level", options.get("isolation.level", "read_uncommitted")))
    return SourceOptions(
        bootstrap_servers=servers,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_starting(get, streaming),
        ending=_ending(get, streaming),
        latest_if_no_timestamp=get.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        isolation_level=level,
        fail_on_data_loss=get.boolean("failOnDataLoss", True),
        include_headers=columns.include_headers,
        push_filters=get.boolean("pushFilters", False),
        min_partitions=get.positive("minPartitions"),
        max_records_per_partition=get.positive("maxRecordsPerPartition"),
        **_trigger(get, streaming),
        group_id=kafka.get("group.id"),
        client_id=kafka.get("client.id", "tidelog-spark"),
        timeout_ms=_timeout(kafka),
        value_format=columns.value_format,
        value_schema=columns.value_schema,
        kafka=kafka,
    )


class ColumnOptions(NamedTuple):
    include_headers: bool
    value_format: str
    value_schema: str | None


def parse_columns(given: Mapping[str, str]) -> ColumnOptions:
    """The options that decide about the schema: Spark asks for it without saying whether it will read or stream."""
    get = _Getter({key.lower(): str(value) for key, value in given.items()})
    return ColumnOptions(
        get.boolean("includeHeaders", False),
        get.choice("value.format", ("raw", "string", "json", "avro")),
        get.text("value.schema"),
    )


class _Getter:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """The first choice is the default."""
        value = (self.text(name) or choices[0]).lower()
        if value not in choices:
            raise InvalidOption(f"{name} is {value!r}; it may be {' or '.join(choices)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false") if default else ("false", "true")) == "true"

    def positive(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdigit() or int(text) < 1:
            raise InvalidOption(f"{name} is {text!r}; it must be a whole number above 0")
        return int(text)


def _subscription(get: _Getter) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    given = [name for name in SUBSCRIPTIONS if get.text(name)]
    if len(given) != 1:
        found = "none is given" if not given else f"{' and '.join(given)} are given"
        raise InvalidOption(f"exactly one of {', '.join(SUBSCRIPTIONS)} says what to read; {found}")
    text = get.text(given[0]) or ""
    if given[0] == "assign":
        return (), None, parse_assign(text)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidOption(f"subscribePattern {text!r} is no regular expression: {error}") from None
        return (), text, ()
    topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
    if not topics:
        raise InvalidOption("subscribe names no topic")
    return topics, None, ()


def _starting(get: _Getter, streaming: bool) -> Bound:
    if (text := get.text("startingTimestamp")) is not None:
        return parse_timestamp("startingTimestamp", text)
    if (text := get.text("startingOffsetsByTimestamp")) is not None:
        return parse_timestamps("startingOffsetsByTimestamp", text)
    bound = parse_offsets("startingOffsets", get.text("startingOffsets") or ("latest" if streaming else "earliest"))
    if not streaming and (bound.kind == "latest" or LATEST_OFFSET in bound.per_partition.values()):
        raise InvalidOption("startingOffsets: a batch read cannot start at latest (-1), nothing is behind it")
    return bound


def _ending(get: _Getter, streaming: bool) -> Bound:
    given = [name for name in _ENDING if get.text(name) is not None]
    if streaming and given:
        raise InvalidOption(f"{given[0]} is for batch reads; a stream ends with trigger(availableNow=True) or stop()")
    if (text := get.text("endingTimestamp")) is not None:
        return parse_timestamp("endingTimestamp", text)
    if (text := get.text("endingOffsetsByTimestamp")) is not None:
        return parse_timestamps("endingOffsetsByTimestamp", text)
    bound = parse_offsets("endingOffsets", get.text("endingOffsets") or "latest")
    if bound.kind == "earliest" or EARLIEST_OFFSET in bound.per_partition.values():
        raise InvalidOption("endingOffsets: a batch read cannot end at earliest (-2), nothing is before it")
    return bound


def _trigger(get: _Getter, streaming: bool) -> dict[str, Any]:
    given = [name for name in _TRIGGER if get.text(name) is not None]
    if given and not streaming:
        raise InvalidOption(f"{given[0]} is for streams; a batch read is bounded by endingOffsets")
    most, least = get.positive("maxOffsetsPerTrigger"), get.positive("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOption(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    found: dict[str, Any] = {"max_offsets_per_trigger": most, "min_offsets_per_trigger": least}
    delay = get.text("maxTriggerDelay")
    if delay is not None:
        match = _DURATION.fullmatch(delay.lower())
        if match is None:
            raise InvalidOption(f"maxTriggerDelay is {delay!r}; write for example 15m or 30s")
        found["max_trigger_delay_ms"] = int(match[1]) * _MS_PER[match[2] or "ms"]
    return found


def _isolation(text: str) -> int:
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    if text.lower() not in levels:
        raise InvalidOption(f"isolation.level is {text!r}; it may be read_uncommitted or read_committed")
    return levels[text.lower()]


def _timeout(kafka: Mapping[str, str]) -> int:
    text = kafka.get("default.api.timeout.ms", "60000")
    if not text.isdigit() or int(text) < 1:
        raise InvalidOption(f"kafka.default.api.timeout.ms is {text!r}; it must be a whole number above 0")
    return int(text)


def _refuse_kafka(kafka: Mapping[str, str]) -> None:
    refuse_kafka(kafka, REFUSED, "source")
    for name in kafka:
        if name.startswith(("sasl.", "ssl.")):
            raise InvalidOption(f"kafka.{name} is not supported: this source connects by PLAINTEXT only")
    refuse_unknown_kafka(kafka, (*_KAFKA_USED, *_KAFKA_WITHOUT_EFFECT), "source")
