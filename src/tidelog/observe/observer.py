"""One group watched for a while: each look adds a sample, and all samples together make the facts for a diagnosis."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidelog.groups.diagnosis_facts import (
    NOT_COMMITTED,
    RATE_WINDOW_MIN_MS,
    UNKNOWN,
    GroupFacts,
    MemberFacts,
    PartitionFacts,
    Sample,
)
from tidelog.groups.insight import GroupInsight
from tidelog.ids import TopicPartition
from tidelog.observe import memory
from tidelog.observe.clients import Kafka
from tidelog.observe.group import GroupIdNotFound, GroupView, committed_offsets, describe_group
from tidelog.observe.offsets import end_offsets, start_offsets
from tidelog.observe.retention import Retention, retention_of, sizes_of
from tidelog.observe.unread import unread_timestamps

LIVE_SAMPLES_MAX: Final = 120
SAMPLE_SECONDS: Final = 1.0

Progress = Callable[[float], None]
"""Told how many seconds of the watch are over."""


class Observer:
    """A look at a group that no coordinator knows, and that has no offsets, raises GroupIdNotFound."""

    def __init__(self, kafka: Kafka, group_id: str) -> None:
        self._kafka = kafka
        self._group_id = group_id
        self._memory: memory.Memory | None = None
        self._remembered: Mapping[TopicPartition, tuple[Sample, ...]] = {}
        self._live: dict[TopicPartition, deque[Sample]] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._clock_ahead_ms = 0
        self.view: GroupView | None = None

    @property
    def missing_because(self) -> str:
        """Why there is no history from the coordinator; empty if there is."""
        return self._memory.missing_because if self._memory is not None else ""

    @property
    def insight(self) -> GroupInsight | None:
        return self._memory.insight if self._memory is not None else None

    @property
    def now_ms(self) -> int:
        """By the coordinator's clock if it told its time, so that its samples and ours are on one scale."""
        return time.time_ns() // 1_000_000 + self._clock_ahead_ms

    def look(self) -> GroupView:
        """One more sample of every partition the group owns or has committed to."""
        self.view = view = describe_group(self._kafka, self._group_id)
        if self._memory is None:
            # Before the first sample of our own, which would otherwise be younger and yet know less.
            self._remember(memory.ask(self._kafka, view.coordinator, self._group_id))
        committed = committed_offsets(self._kafka, self._group_id)
        at_ms = self.now_ms
        if not committed and view.state == "Dead":
            raise GroupIdNotFound(self._group_id)
        owned = {partition for member in view.members for partition in member.partitions}
        partitions = sorted(owned | committed.keys())
        self._starts = start_offsets(self._kafka, partitions)
        ends = end_offsets(self._kafka, partitions)
        # Partitions of deleted topics have no end, and nobody can lag behind it.
        self._live = {
            partition: self._live.get(partition, deque(maxlen=LIVE_SAMPLES_MAX))
            for partition in partitions
            if partition in ends
        }
        for partition, samples in self._live.items():
            samples.append(Sample(at_ms, committed.get(partition, NOT_COMMITTED), ends[partition]))
        return view

    def watch(self, seconds: float, progress: Progress | None = None) -> None:
        """Look now, once a second, and when `seconds` are over."""
        began = time.monotonic()
        self.look()
        while (over := time.monotonic() - began) < seconds:
            if progress is not None:
                progress(over)
            time.sleep(min(SAMPLE_SECONDS, seconds - over))
            self.look()

    @property
    def span_seconds(self) -> float:
        """Between the oldest and the youngest sample, of the partition that is known for the shortest time."""
        spans = [samples[-1].at_ms - samples[0].at_ms for samples in map(self._samples, self._live)]
        return min(spans, default=0) / 1000

    def knows_pace(self) -> bool:
        """Whether samples so far are far enough apart to tell a rate."""
        return not self._live or self.span_seconds * 1000 >= RATE_WINDOW_MIN_MS

    def facts(self, *, retention: bool = False) -> GroupFacts:
        """All there is to know after the looks so far; `retention` also asks what will be deleted when."""
        view = self.view if self.view is not None else self.look()
        owners = {partition: member.member_id for member in view.members for partition in member.partitions}
        unread = self._unread()
        kept = retention_of(self._kafka, {partition.topic for partition in self._live}) if retention else {}
        sizes: dict[TopicPartition, int] = {}
        for topic, limit in kept.items():
            if limit.bytes >= 0:
                sizes.update(sizes_of(self._kafka, topic))
        return GroupFacts(
            group_id=self._group_id,
            now_ms=self.now_ms,
            members=tuple(
                MemberFacts(member_id=one.member_id, client_id=one.client_id, host=one.host) for one in view.members
            ),
            partitions=tuple(self._partitions(owners, unread, kept, sizes)),
            events=self.insight.events if self.insight is not None else (),
        )

    def _remember(self, told: memory.Memory) -> None:
        self._memory = told
        if told.insight is None:
            return
        self._clock_ahead_ms = told.insight.now_ms - time.time_ns() // 1_000_000
        self._remembered = {
            TopicPartition(one.topic, one.partition): tuple(Sample(*sample) for sample in one.samples)
            for one in told.insight.partitions
        }

    def _samples(self, partition: TopicPartition) -> tuple[Sample, ...]:
        return (*self._remembered.get(partition, ()), *self._live[partition])

    def _unread(self) -> dict[TopicPartition, int]:
        latest = {partition: samples[-1] for partition, samples in self._live.items()}
        positions = {
            partition: max(sample.committed, self._starts.get(partition, 0)) for partition, sample in latest.items()
        }
        behind = {partition: position for partition, position in positions.items() if position < latest[partition].end}
        return unread_timestamps(self._kafka, behind)

    def _partitions(
        self,
        owners: Mapping[TopicPartition, str],
        unread: Mapping[TopicPartition, int],
        kept: Mapping[str, Retention],
        sizes: Mapping[TopicPartition, int],
    ) -> Iterator[PartitionFacts]:
        for partition in self._live:
            limit = kept.get(partition.topic, Retention())
            plain = PartitionFacts(
                partition=partition,
                samples=self._samples(partition),
                start_offset=self._starts.get(partition, 0),
                owner=owners.get(partition, ""),
                unread_timestamp_ms=unread.get(partition, UNKNOWN),
                retention_ms=limit.ms,
                retention_bytes=limit.bytes,
            )
            yield _with_bytes(plain, sizes[partition]) if partition in sizes else plain


def _with_bytes(facts: PartitionFacts, size: int) -> PartitionFacts:
    """Records of one partition are taken to be of about the same size."""
    from msgspec.structs import replace

    records = max(facts.end - facts.start_offset, 1)
    each = size / records
    return replace(facts, unread_bytes=round(facts.lag * each), bytes_per_s=(facts.arrival_per_s or 0.0) * each)
