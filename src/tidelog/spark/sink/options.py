"""The options of the sink: those of Spark's Kafka sink, `delivery`, and the producer's settings as `kafka.*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.cluster import parse_servers
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.refusals import refuse_kafka, refuse_unknown
from tidelog.wire.compression import CODEC_NAMES

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
KNOWN: Final = ("topic", "delivery", "includeHeaders")
_OF_SPARK: Final = ("path", "checkpointlocation", "queryname", "serialization.format", "outputmode")
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_REFUSED: Final = {
    "key.serializer": "keys are strings or bytes; cast the column",
    "value.serializer": "values are strings or bytes; cast the column",
    "transactional.id": "delivery=exactly-once names its transactions itself",
    "enable.idempotence": "it is always on; kafka.acks below all turns it off",
    "partitioner.class": "rows go by key as Java's default has it; give a partition column for anything else",
    "interceptor.classes": "there is no Java producer that could run them",
}
_WITHOUT_EFFECT: Final = (
    # Of Java's producer: a task has all its rows at hand, so nothing lingers, and what is held is bounded by itself.
    "linger.ms", "buffer.memory", "retries", "retry.backoff.ms", "reconnect.backoff.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "metadata.max.age.ms", "connections.max.idle.ms", "send.buffer.bytes",
    "receive.buffer.bytes", "security.protocol",
)  # fmt: skip
_USED: Final = (
    "bootstrap.servers", "acks", "compression.type", "batch.size", "max.request.size", "client.id",
    "request.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    bootstrap_servers: str
    topic: str | None = None
    delivery: str = AT_LEAST_ONCE
    acks: int = -1
    codec: int = 0
    batch_bytes: int = 512 << 10
    bytes_max: int = 1 << 20
    client_id: str = "tidelog-spark-sink"
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = 900_000

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    options = {key.lower(): str(value) for key, value in given.items()}
    kafka = {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}
    refuse_unknown(options, KNOWN, "sink", ignored=_OF_SPARK)
    _refuse_kafka(kafka)
    servers = kafka.get("bootstrap.servers", "")
    if not servers:
        raise InvalidOption("kafka.bootstrap.servers is not set: give one or more host:port, separated by commas")
    try:
        parse_servers(servers)
    except ValueError as error:
        raise InvalidOption(f"kafka.bootstrap.servers: {error}") from None
    delivery = options.get("delivery", EXACTLY_ONCE if streaming else AT_LEAST_ONCE).lower()
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise InvalidOption(f"delivery is {delivery!r}; it may be {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    acks = _choice(kafka, "acks", "all", _ACKS)
    if delivery == EXACTLY_ONCE and acks != -1:
        raise InvalidOption(f"delivery={EXACTLY_ONCE} needs kafka.acks=all")
    return SinkOptions(
        bootstrap_servers=servers,
        topic=options.get("topic") or None,
        delivery=delivery,
        acks=acks,
        codec=_choice(kafka, "compression.type", "none", CODEC_NAMES),
        batch_bytes=_number(kafka, "batch.size", 512 << 10),
        bytes_max=_number(kafka, "max.request.size", 1 << 20),
        client_id=kafka.get("client.id", "tidelog-spark-sink"),
        request_timeout_ms=_number(kafka, "request.timeout.ms", 30_000),
        delivery_timeout_ms=_number(kafka, "delivery.timeout.ms", 120_000),
        transaction_timeout_ms=_number(kafka, "transaction.timeout.ms", 900_000),
    )


def _choice(kafka: Mapping[str, str], name: str, default: str, choices: Mapping[str, int]) -> int:
    value = kafka.get(name, default).lower()
    if value not in choices:
        raise InvalidOption(f"kafka.{name} is {value!r}; it may be {', '.join(choices)}")
    return choices[value]


def _number(kafka: Mapping[str, str], name: str, default: int) -> int:
    text = kafka.get(name, str(default))
    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidOption(f"kafka.{name} is {text!r}; it must be a whole number above 0")
    return int(text)


def _refuse_kafka(kafka: Mapping[str, str]) -> None:
    refuse_kafka(kafka, _REFUSED, "sink")
    for name in kafka:
        if name not in _USED and name not in _WITHOUT_EFFECT:
            raise InvalidOption(f"kafka.{name} is not a setting of this sink; it knows {', '.join(_USED)}")
