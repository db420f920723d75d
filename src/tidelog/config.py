"""Settings: Kafka's own names, types, defaults and docs, in one table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What one topic runs with, after topic overrides and broker defaults are resolved."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_on_ack: bool = True
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = 9_223_372_036_854_775_807
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = 9_223_372_036_854_775_807
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy
