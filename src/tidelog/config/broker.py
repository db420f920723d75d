"""What one broker runs with: the table of broker settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tidelog.config.given import Given, Source
from tidelog.config.listeners import Listener, listens, own_address, parse_voters, quorum_voters, reachable
from tidelog.config.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    Valid,
    at_least,
    between,
    boolean,
    double,
    gzip_level,
    integer,
    list_of,
    long,
    one_of,
    some_of,
    string,
    table,
    unknown,
)
from tidelog.errors import InvalidConfig

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    node_id: int = integer(1, "The id of this broker, unique in its cluster.", at_least(0))
    cluster_id: str | None = string(
        None, "The id of the cluster. Unset: made up at first start and kept in meta.properties of the log directory."
    )
    listeners: tuple[str, ...] = list_of(
        ("PLAINTEXT://localhost:9092",),
        """Addresses the broker binds; a name is bound at each of its addresses, so localhost is IPv4 and IPv6. An empty
        host, 0.0.0.0 or [::] is every interface; port 0 is any free port. Anyone who can connect may read and write,
        so the default is this machine only.""",
        Valid("such as PLAINTEXT://127.0.0.1:9092, each on its own port", listens),
    )
    advertised_listeners: tuple[str, ...] | None = list_of(
        None,
        """Addresses clients are told to connect to. Unset: each client is told the address it reached the broker at,
        which is right from the same machine and from inside and outside a container with the same port.""",
        Valid("such as PLAINTEXT://broker.example:9092, with a real host and port", reachable),
    )
    controller_quorum_voters: tuple[str, ...] | None = list_of(
        None,
        """The brokers that keep the cluster's metadata, each as id@host:port, where the port is for brokers only. The
        same list for every broker of the cluster. Unset: this broker is alone.""",
        Valid("such as 1@127.0.0.1:9192,2@127.0.0.1:9292,3@127.0.0.1:9392", quorum_voters),
    )
    controller_listener: str | None = string(
        None,
        """Where this broker listens for other brokers, as host:port. Unset: at its address in controller.quorum.voters.
        Anyone who can connect there may act as a broker, so let nobody else.""",
    )
    broker_rack: str | None = string(None, "Where this broker stands: replicas of a partition go to different racks.")
    replica_selector_class: str | None = string(
        None,
        """Set to org.apache.kafka.common.replica.RackAwareReplicaSelector to let consumers that have a client.rack read
        from an in-sync replica in that rack. Unset: they read from the leader.""",
        one_of("org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    )
    broker_heartbeat_interval_ms: int = integer(
        200, "How often a broker tells the controller that it is there.", at_least(1)
    )
    broker_session_timeout_ms: int = integer(
        1_500, "A broker that is silent for this long no longer leads anything. Kafka's default is 9000.", at_least(1)
    )
    controller_quorum_election_timeout_ms: int = integer(
        750, "A voter without a leader for one to two times this stands for election. Kafka's is 1000.", at_least(1)
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20_971_520, "Of metadata, until a snapshot takes the place of its log.", at_least(1)
    )
    replica_lag_time_max_ms: int = long(
        10_000,
        "A follower that has not had everything for this long leaves the in-sync set. Kafka's default is 30000.",
        at_least(1),
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Give leadership back to the preferred replica when it is in sync again."
    )
    leader_imbalance_check_interval_seconds: int = long(
        10, "How often that is looked at. Kafka's default is 300.", at_least(1)
    )
    log_dirs: tuple[str, ...] = list_of(
        ("data",), "The directory that holds the log.", Valid("at least one directory", bool)
    )

    num_partitions: int = integer(1, "Partitions of a topic created without saying how many.", at_least(1))
    default_replication_factor: int = integer(
        1, "Replicas of a topic created without saying how many.", between(1, 32_767)
    )
    auto_create_topics_enable: bool = boolean(True, "Create a topic when a client first asks for it by name.")
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.")

    log_retention_ms: int | None = long(
        None,
        "How long records are kept, in milliseconds; -1 is for ever. Unset: log.retention.minutes decides.",
        at_least(-1),
        dynamic=True,
    )
    log_retention_minutes: int | None = integer(
        None, "How long records are kept, in minutes. Unset: log.retention.hours decides.", at_least(-1)
    )
    log_retention_hours: int = integer(168, "How long records are kept, in hours; -1 is for ever.", at_least(-1))
    log_retention_bytes: int = long(
        -1, "How many bytes of a partition are kept; -1 is no limit.", at_least(-1), dynamic=True
    )
    log_retention_check_interval_ms: int = long(
        300_000, "How often retention looks for something to delete.", at_least(1)
    )
    log_segment_bytes: int = integer(
        1_073_741_824, "A segment file is closed and a new one begun at this size.", at_least(14), dynamic=True
    )
    log_roll_ms: int | None = long(
        None, "A segment is closed at this age. Unset: log.roll.hours decides.", at_least(1), dynamic=True
    )
    log_roll_hours: int = integer(168, "A segment is closed at this age, in hours.", at_least(1))
    log_roll_jitter_ms: int | None = long(
        None,
        """A random time up to this is taken off a segment's age limit. Unset: log.roll.jitter.hours decides. Accepted,
        but without effect so far.""",
        at_least(0),
        dynamic=True,
    )
    log_roll_jitter_hours: int = integer(
        0,
        "A random time up to this is taken off a segment's age limit. Accepted, but without effect so far.",
        at_least(0),
    )
    log_index_interval_bytes: int = integer(
        4096, "Bytes of log between two entries of the offset and time indexes.", at_least(0), dynamic=True
    )
    log_index_size_max_bytes: int = integer(
        10_485_760, "A segment is closed when its index reaches this size.", at_least(4), dynamic=True
    )
    log_segment_delete_delay_ms: int = long(
        60_000,
        "How long a deleted segment's file stays on disk under another name. Accepted, but without effect so far.",
        at_least(0),
        dynamic=True,
    )
    log_preallocate: bool = boolean(
        False,
        "Reserve disk space for a whole segment when it is begun. Accepted, but without effect so far.",
        dynamic=True,
    )
    log_cleanup_policy: frozenset[str] = list_of(
        frozenset({"delete"}),
        "What happens to old records: delete them by age and size, compact them to the last value per key, or both.",
        some_of("compact", "delete"),
        dynamic=True,
    )

    log_cleaner_enable: bool = boolean(True, "Run the compactor.")
    log_cleaner_backoff_ms: int = long(15_000, "How long the compactor sleeps when nothing is dirty.", at_least(0))
    log_cleaner_dedupe_buffer_size: int = long(
        134_217_728, "Memory the compactor may use to remember keys, in bytes.", at_least(1_048_576)
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, "Compact a log once this share of it is new since the last time.", between(0, 1), dynamic=True
    )
    log_cleaner_delete_retention_ms: int = long(
        86_400_000, "How long a compacted topic keeps tombstones.", at_least(0), dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "A record stays uncompacted for at least this long.", at_least(0), dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX, "A record becomes eligible for compaction after at most this long.", at_least(1), dynamic=True
    )

    flush_on_ack: bool = boolean(
        True,
        """Answer acks=all only after the records are on the disk (fdatasync, many producers per flush). false is
        Kafka's own behaviour: the operating system writes them out when it likes, and a power cut loses them. This
        setting is Tidelog's own.""",
        dynamic=True,
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the offset up to which a log is known to be on disk is written down.", at_least(1)
    )

    message_max_bytes: int = integer(1_048_588, "The largest record batch accepted.", at_least(0), dynamic=True)
    compression_type: str = string(
        "producer", "The codec batches are stored with; producer keeps what arrived.", one_of(*CODECS), dynamic=True
    )
    compression_gzip_level: int = integer(-1, "Level for compression.type=gzip.", gzip_level(), dynamic=True)
    compression_lz4_level: int = integer(9, "Level for compression.type=lz4.", between(1, 17), dynamic=True)
    compression_zstd_level: int = integer(3, "Level for compression.type=zstd.", between(-131_072, 22), dynamic=True)
    log_message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX, "Refuse records stamped longer ago than this.", at_least(0), dynamic=True
    )
    log_message_timestamp_after_max_ms: int = long(
        3_600_000, "Refuse records stamped further in the future than this.", at_least(0), dynamic=True
    )
    min_insync_replicas: int = integer(
        1, "acks=all is refused while fewer replicas than this are in sync.", at_least(1), dynamic=True
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second from here to listed replicas that are catching up.", at_least(1), dynamic=True
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX, "Bytes a second to listed replicas here that are catching up.", at_least(1), dynamic=True
    )
    unclean_leader_election_enable: bool = boolean(
        False, "Let a replica that is not in sync lead, losing records, when no other is left.", dynamic=True
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "An idempotent producer that wrote nothing for this long is forgotten.", at_least(1)
    )

    offsets_topic_num_partitions: int = integer(
        50, "Partitions of the topic that holds groups and committed offsets; fixed once it exists.", at_least(1)
    )
    offsets_topic_replication_factor: int = integer(
        3, "Replicas of that topic, or as many as there are brokers if that is fewer.", between(1, 32_767)
    )
    offsets_topic_segment_bytes: int = integer(
        104_857_600, "Segment size of that topic: small, so that it is compacted often and loads quickly.", at_least(1)
    )
    offsets_retention_minutes: int = integer(
        10_080, "How long the offsets of an empty group are kept after its last member left.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often offsets that are kept no longer are looked for.", at_least(1)
    )
    offset_metadata_max_bytes: int = integer(4096, "The longest text committed with an offset.", at_least(0))
    group_min_session_timeout_ms: int = integer(
        6000, "The shortest session timeout a member of a classic group may ask for.", at_least(1)
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000, "The longest session timeout a member of a classic group may ask for.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = integer(
        0,
        """How long an empty classic group waits for more members before its first rebalance. Kafka's default is 3000,
        its own example configuration has 0.""",
        at_least(0),
    )
    group_max_size: int = integer(INT_MAX, "The most members a classic group may have.", at_least(1))
    group_consumer_session_timeout_ms: int = integer(
        45_000, "A member of a consumer-protocol group that is silent for this long is removed.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5000,
        """The longest time between heartbeats that members of consumer-protocol groups are asked for. While few members
        are here, or a group is changing, they are asked for more, so that a rebalance takes less than a second.""",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = integer(
        6_000, "The shortest consumer.session.timeout.ms a group may be given. Kafka's default is 45000.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = integer(
        1_800_000,
        "The longest consumer.session.timeout.ms a group may be given. Kafka's default is 60000.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        100, "The shortest consumer.heartbeat.interval.ms a group may be given. Kafka's default is 5000.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        60_000,
        "The longest consumer.heartbeat.interval.ms a group may be given. Kafka's default is 15000.",
        at_least(1),
    )
    group_consumer_max_size: int = integer(INT_MAX, "The most members a consumer-protocol group may have.", at_least(1))
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether a group with members may change between the classic and the consumer protocol.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    )

    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of the topic that holds the state of transactions; fixed once it exists.", at_least(1)
    )
    transaction_state_log_replication_factor: int = integer(
        3, "Replicas of that topic, or as many as there are brokers if that is fewer.", between(1, 32_767)
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "Segment size of that topic: small, so that it is compacted often and loads quickly.", at_least(1)
    )
    transaction_max_timeout_ms: int = integer(
        900_000, "The longest transaction.timeout.ms a producer may ask for.", at_least(1)
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000,
        "A transactional id without an open transaction that was not used for this long is forgotten.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often transactional ids that are kept no longer are looked for.", at_least(1)
    )

    socket_request_max_bytes: int = integer(104_857_600, "The largest request accepted.", at_least(1))
    queued_max_requests: int = integer(
        500, "Requests of one connection that may be in progress; beyond it the broker stops reading.", at_least(1)
    )
    max_connections: int = integer(INT_MAX, "Connections that may be open; beyond it new ones are closed.", at_least(0))
    connections_max_idle_ms: int = long(600_000, "A connection silent for this long is closed.", at_least(1))
    busy_poll_max_us: int = integer(
        250,
        """While a client asks again as soon as it is answered, or is in the middle of a transaction, look for its next
        request for so many microseconds instead of sleeping; 0 always sleeps. Not while something is synced.""",
        between(0, 10_000),
    )
    fetch_max_bytes: int = integer(57_671_680, "The most record bytes one fetch is answered with.", at_least(1024))
    max_incremental_fetch_session_cache_slots: int = integer(
        1000,
        "Fetch sessions kept; each saves a consumer of many partitions from naming them in every fetch.",
        at_least(0),
    )

    given: Mapping[str, tuple[Given, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """What was written down for each setting, strongest first; a setting that is not here has its default."""

    @property
    def listener_addresses(self) -> tuple[Listener, ...]:
        return tuple(Listener.parse(text) for text in self.listeners)

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """By node id, where each listens for brokers."""
        return parse_voters(self.controller_quorum_voters or ())

    @property
    def controller_address(self) -> tuple[str, int] | None:
        """Where this broker listens for brokers; None if it is alone."""
        if self.controller_quorum_voters is None:
            return None
        return own_address(self.node_id, self.voters, self.controller_listener)

    @property
    def advertised_addresses(self) -> tuple[Listener, ...] | None:
        """None: tell each client the address it connected to."""
        return tuple(map(Listener.parse, self.advertised_listeners)) if self.advertised_listeners else None

    def source_of(self, name: str) -> Source:
        return self.given[name][0].source if name in self.given else Source.DEFAULT_CONFIG

    def with_dynamic(self, overrides: Mapping[str, str]) -> "BrokerConfig":
        """This config with exactly these run-time changes; earlier run-time changes that are not among them end."""
        validate_broker_configs(overrides)
        static = {
            name: kept
            for name, layers in self.given.items()
            if (kept := tuple(each for each in layers if each.source is not Source.DYNAMIC_BROKER_CONFIG))
        }
        layers = dict(static)
        for name, text in overrides.items():
            layers[name] = (Given(text, Source.DYNAMIC_BROKER_CONFIG, "changed at run time"), *static.get(name, ()))
        return from_layers(layers)


BROKER_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(table(BrokerConfig))


def from_layers(layers: Mapping[str, tuple[Given, ...]]) -> BrokerConfig:
    """A config from everything that was written down; the strongest value of each setting rules."""
    values = {
        BROKER_SETTINGS[name].attribute: BROKER_SETTINGS[name].parse(given[0].text) for name, given in layers.items()
    }
    config = replace(BrokerConfig(), **values, given=MappingProxyType(dict(layers)))  # type: ignore[arg-type]
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        raise InvalidConfig("log.cleaner.min.compaction.lag.ms must not exceed log.cleaner.max.compaction.lag.ms")
    return config


def validate_broker_configs(overrides: Mapping[str, str]) -> None:
    """Refuse run-time changes that are unknown, invalid or need a restart."""
    for name, text in overrides.items():
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise unknown(name, BROKER_SETTINGS, "broker")
        if not setting.dynamic:
            raise InvalidConfig(f"{name} cannot change while the broker runs: set it in server.properties and restart")
        setting.parse(text)
