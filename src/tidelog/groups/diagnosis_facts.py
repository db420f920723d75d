"""What is known about a group when somebody asks why it lags, and the lag itself: in records, in seconds, its trend.

Plain numbers that any Kafka can supply, except for the event history, which only our coordinator keeps.
"""

from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.groups.history import GroupEvent
from tidelog.ids import TopicPartition

NOT_COMMITTED: Final = -1
UNKNOWN: Final = -1
RATE_WINDOW_MIN_MS: Final = 1_000  # below that a rate is noise


class Sample(msgspec.Struct, frozen=True):
    """One look at a partition: first at the commit, then at the end, or a busy group seems to be ahead of its log."""

    at_ms: int
    committed: int  # NOT_COMMITTED if the group has no offset here
    end: int


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    partition: TopicPartition
    samples: tuple[Sample, ...]  # at least one, oldest first
    start_offset: int = 0
    owner: str = ""  # member id
    unread_timestamp_ms: int = UNKNOWN
    """Of the record at the committed offset, the first that is not done."""
    unread_bytes: int = UNKNOWN
    bytes_per_s: float = 0.0
    """Arriving."""
    retention_ms: int = UNKNOWN
    retention_bytes: int = UNKNOWN

    @property
    def committed(self) -> int:
        return self.samples[-1].committed

    @property
    def end(self) -> int:
        return self.samples[-1].end

    @property
    def is_committed(self) -> bool:
        return self.committed != NOT_COMMITTED

    @property
    def lag(self) -> int:
        """Records that exist and are not done. All of them if nothing was ever committed."""
        return max(self.end - max(self.committed, self.start_offset), 0)

    @cached_property
    def reset(self) -> tuple[Sample, Sample] | None:
        """The samples around the last time that the committed offset went back."""
        steps = [(a, b) for a, b in pairwise(self.samples) if NOT_COMMITTED < b.committed < a.committed]
        return steps[-1] if steps else None

    @cached_property
    def _steady(self) -> tuple[Sample, ...]:
        """Samples since somebody last moved the offset by hand: only these tell how fast the group is."""
        samples = self.samples
        if self.reset is not None:
            samples = samples[samples.index(self.reset[1]) :]
        committed = tuple(sample for sample in samples if sample.committed != NOT_COMMITTED)
        return committed or samples

    @cached_property
    def window_ms(self) -> int:
        return self._steady[-1].at_ms - self._steady[0].at_ms

    @property
    def span_ms(self) -> int:
        """From the first look to the last."""
        return self.samples[-1].at_ms - self.samples[0].at_ms

    @cached_property
    def stalled_ms(self) -> int:
        """For how long there was something to read and nothing was committed."""
        since_ms = self.samples[-1].at_ms
        for sample in reversed(self.samples):
            if sample.committed != self.committed or sample.end <= max(sample.committed, self.start_offset):
                break
            since_ms = sample.at_ms
        return self.samples[-1].at_ms - since_ms

    @cached_property
    def arrival_per_s(self) -> float | None:
        """None if the samples are too close to tell."""
        first, last = self.samples[0], self.samples[-1]
        return _rate(first.at_ms, last.at_ms, last.end - first.end)

    @cached_property
    def processed_per_s(self) -> float | None:
        first, last = self._steady[0], self._steady[-1]
        if not self.is_committed:
            return _rate(first.at_ms, last.at_ms, 0)
        return _rate(first.at_ms, last.at_ms, last.committed - first.committed)


def _rate(start_ms: int, end_ms: int, count: int) -> float | None:
    if end_ms - start_ms < RATE_WINDOW_MIN_MS:
        return None
    return max(count, 0) * 1000 / (end_ms - start_ms)


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """As a person would recognise it."""
        at = f"{self.client_id}@{self.host.lstrip('/')}" if self.host else self.client_id
        return at or self.member_id


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    now_ms: int
    members: tuple[MemberFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    events: tuple[GroupEvent, ...] = ()

    def owned_by(self, member_id: str) -> tuple[PartitionFacts, ...]:
        return tuple(one for one in self.partitions if one.owner == member_id)


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    records: int
    seconds: float | None
    """How old the oldest record is that is not done; None if nothing tells."""
    exact: bool
    """`seconds` comes from the record's own timestamp, not from rates."""
    arrival_per_s: float | None
    processed_per_s: float | None
    catch_up_s: float | None
    """At the present pace; None if never, or if the pace is unknown."""

    @property
    def trend_per_s(self) -> float | None:
        """Positive: falling behind."""
        if self.arrival_per_s is None or self.processed_per_s is None:
            return None
        return self.arrival_per_s - self.processed_per_s


def partition_lag(facts: PartitionFacts, now_ms: int) -> Lag:
    seconds, exact = _seconds(facts, now_ms)
    return _lag(facts.lag, seconds, exact, facts.arrival_per_s, facts.processed_per_s)


def group_lag(facts: GroupFacts) -> Lag:
    """Records add up; in seconds a group is as late as its latest partition."""
    lags = [partition_lag(one, facts.now_ms) for one in facts.partitions]
    known = [lag for lag in lags if lag.seconds is not None]
    latest = max(known, key=lambda lag: lag.seconds or 0.0, default=None)
    return _lag(
        sum(lag.records for lag in lags),
        latest.seconds if latest else (0.0 if not lags else None),
        latest.exact if latest else not lags,
        _sum([lag.arrival_per_s for lag in lags]),
        _sum([lag.processed_per_s for lag in lags]),
    )


def _seconds(facts: PartitionFacts, now_ms: int) -> tuple[float | None, bool]:
    if facts.lag == 0:
        return 0.0, True
    if facts.unread_timestamp_ms != UNKNOWN:
        return max(now_ms - facts.unread_timestamp_ms, 0) / 1000, True
    if facts.arrival_per_s:
        return facts.lag / facts.arrival_per_s, False
    return None, False


def _lag(records: int, seconds: float | None, exact: bool, arrival: float | None, processed: float | None) -> Lag:
    catch_up: float | None = None
    if records == 0:
        catch_up = 0.0
    elif arrival is not None and processed is not None and processed > arrival:
        catch_up = records / (processed - arrival)
    return Lag(
        records=records,
        seconds=seconds,
        exact=exact,
        arrival_per_s=arrival,
        processed_per_s=processed,
        catch_up_s=catch_up,
    )


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
