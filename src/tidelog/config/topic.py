"""What one topic runs with: the table of topic settings, and how a topic inherits from its broker."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from tidelog.config.broker import BROKER_SETTINGS, CODECS, BrokerConfig
from tidelog.config.setting import (
    LONG_MAX,
    Setting,
    Value,
    at_least,
    between,
    boolean,
    double,
    gzip_level,
    integer,
    list_of,
    long,
    one_of,
    partitions_of_brokers,
    some_of,
    string,
    table,
    unknown,
)
from tidelog.errors import InvalidConfig

_UNITS_MS: Final = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What one topic runs with, after topic overrides and broker defaults are resolved."""

    cleanup_policy: frozenset[str] = list_of(
        frozenset({"delete"}),
        "What happens to old records: delete them by age and size, compact them to the last value per key, or both.",
        some_of("compact", "delete"),
        inherits=("log.cleanup.policy",),
    )
    compression_type: str = string(
        "producer",
        "The codec batches are stored with; producer keeps what arrived.",
        one_of(*CODECS),
        inherits=("compression.type",),
    )
    compression_gzip_level: int = integer(
        -1, "Level for compression.type=gzip.", gzip_level(), inherits=("compression.gzip.level",)
    )
    compression_lz4_level: int = integer(
        9, "Level for compression.type=lz4.", between(1, 17), inherits=("compression.lz4.level",)
    )
    compression_zstd_level: int = integer(
        3, "Level for compression.type=zstd.", between(-131_072, 22), inherits=("compression.zstd.level",)
    )
    delete_retention_ms: int = long(
        86_400_000,
        "How long a compacted topic keeps tombstones.",
        at_least(0),
        inherits=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = long(
        60_000,
        "How long a deleted segment's file stays on disk under another name. Accepted, but without effect so far.",
        at_least(0),
        inherits=("log.segment.delete.delay.ms",),
    )
    flush_on_ack: bool = boolean(
        True,
        """Answer acks=all only after the records are on the disk. false is Kafka's own behaviour: faster, and a power
        cut loses what the operating system had not written out. This setting is Tidelog's own.""",
        inherits=("flush.on.ack",),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = list_of(
        (),
        """Replicas that catch up no faster than their broker's follower.replication.throttled.rate, each as
        partition:broker; * is all of them.""",
        partitions_of_brokers(),
    )
    index_interval_bytes: int = integer(
        4096,
        "Bytes of log between two entries of the offset and time indexes.",
        at_least(0),
        inherits=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = list_of(
        (),
        """Replicas from which others catch up no faster than their broker's leader.replication.throttled.rate, each as
        partition:broker; * is all of them.""",
        partitions_of_brokers(),
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "A record becomes eligible for compaction after at most this long.",
        at_least(1),
        inherits=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = integer(
        1_048_588, "The largest record batch accepted.", at_least(0), inherits=("message.max.bytes",)
    )
    message_timestamp_after_max_ms: int = long(
        3_600_000,
        "Refuse records stamped further in the future than this.",
        at_least(0),
        inherits=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "Refuse records stamped longer ago than this.",
        at_least(0),
        inherits=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        inherits=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Compact a log once this share of it is new since the last time.",
        between(0, 1),
        inherits=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = long(
        0,
        "A record stays uncompacted for at least this long.",
        at_least(0),
        inherits=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = integer(
        1,
        "acks=all is refused while fewer replicas than this are in sync.",
        at_least(1),
        inherits=("min.insync.replicas",),
    )
    preallocate: bool = boolean(
        False,
        "Reserve disk space for a whole segment when it is begun. Accepted, but without effect so far.",
        inherits=("log.preallocate",),
    )
    retention_bytes: int = long(
        -1,
        "How many bytes of a partition are kept; -1 is no limit.",
        at_least(-1),
        inherits=("log.retention.bytes",),
    )
    retention_ms: int = long(
        604_800_000,
        "How long records are kept; -1 is for ever.",
        at_least(-1),
        inherits=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = integer(
        1_073_741_824,
        "A segment file is closed and a new one begun at this size.",
        at_least(14),
        inherits=("log.segment.bytes",),
    )
    segment_index_bytes: int = integer(
        10_485_760,
        "A segment is closed when its index reaches this size.",
        at_least(4),
        inherits=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = long(
        0,
        """A random time up to this is taken off a segment's age limit, so that partitions do not roll together.
        Accepted, but without effect so far.""",
        at_least(0),
        inherits=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = long(
        604_800_000, "A segment is closed at this age.", at_least(1), inherits=("log.roll.ms", "log.roll.hours")
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica that is not in sync lead, losing records, when no other is left.",
        inherits=("unclean.leader.election.enable",),
    )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> "TopicConfig":
        """The topic's own settings, then the broker's. Raises `InvalidConfig` for overrides nobody may set."""
        values = {setting.attribute: inherited(setting, broker) for setting in TOPIC_SETTINGS.values()}
        values.update((TOPIC_SETTINGS[name].attribute, value) for name, value in parse_topic_configs(overrides).items())
        config = replace(cls(), **values)  # type: ignore[arg-type]
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} must not exceed "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        return config


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(table(TopicConfig))


def inherited(setting: Setting, broker: BrokerConfig) -> Value:
    """What a topic has that says nothing: the first of the broker's settings that is set."""
    for name in setting.inherits:
        value: Value = getattr(broker, BROKER_SETTINGS[name].attribute)
        if value is not None:
            return in_milliseconds(name, value)
    return setting.default


def in_milliseconds(name: str, value: Value) -> Value:
    """log.retention.hours=24 is retention.ms=86400000. A negative value means no limit in any unit."""
    unit = _UNITS_MS.get(name.rpartition(".")[2])
    if unit is None or not isinstance(value, int):
        return value
    return value * unit if value >= 0 else -1


def parse_topic_configs(overrides: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise _unknown_for_topic(name)
        values[name] = setting.parse(text)
    return values


def validate_topic_configs(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Refuse overrides no topic may have; the message says what would be valid."""
    TopicConfig.resolve(broker or BrokerConfig(), overrides)


def _unknown_for_topic(name: str) -> InvalidConfig:
    counterpart = next((each.name for each in TOPIC_SETTINGS.values() if name in each.inherits), None)
    if counterpart is not None:
        return InvalidConfig(f"unknown topic setting {name}: for a topic it is called {counterpart}")
    return unknown(name, TOPIC_SETTINGS, "topic")
