"""The words of a diagnosis."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

import msgspec


class Kind(StrEnum):
    SLOW_CONSUMER = "slow_consumer"
    CATCHING_UP = "catching_up"
    HOT_PARTITION = "hot_partition"
    LOPSIDED_ASSIGNMENT = "lopsided_assignment"
    REBALANCE_STORM = "rebalance_storm"
    STUCK_MEMBER = "stuck_member"
    EVICTED_MAX_POLL = "evicted_max_poll"
    EVICTED_SESSION = "evicted_session"
    OFFSETS_RESET = "offsets_reset"
    OFFSETS_OUT_OF_RANGE = "offsets_out_of_range"
    RETENTION_OVERTAKES = "retention_overtakes"
    NOBODY_READS = "nobody_reads"
    TOO_EARLY = "too_early_to_tell"
    NOTHING_WRONG = "nothing_wrong"


class Severity(IntEnum):
    INFO = 0
    WARNING = 1
    CRITICAL = 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    severity: Severity
    subject: str
    """The member, partition, topic or group it is about."""
    summary: str
    evidence: Mapping[str, float | int | str]
    advice: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on something is worth telling."""

    lag_records_min: int = 100
    lag_seconds_large: float = 60.0
    commit_pause_s: float = 6.0
    """Clients commit every five seconds by default: in between, a group that keeps up looks that much behind."""
    falling_behind_ratio: float = 0.98  # processed / arrived
    stuck_after_ms: int = 30_000
    hot_ratio: float = 2.0  # busiest partition / mean
    hot_rate_min: float = 1.0  # records per second of the whole topic
    lopsided_difference: int = 2
    storm_window_ms: int = 600_000
    storm_rebalances: int = 5
    storm_stopped_share: float = 0.2
    eviction_window_ms: int = 3_600_000
    retention_warning_hours: float = 24.0
    retention_critical_hours: float = 4.0
