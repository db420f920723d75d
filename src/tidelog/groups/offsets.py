"""Committed offsets: how far each group has read each partition.

Memory is one entry per group and partition, never more however often it is committed. Offsets written inside a
transaction are kept apart, by producer, until its marker says that they count; nobody reads them before.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, repeat
from sys import intern
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.groups.commit_records import CommitRecords
from tidelog.groups.group import Group
from tidelog.groups.records import GroupRecord, OffsetCommitKey, OffsetCommitValue, encode_record
from tidelog.ids import NO_PRODUCER_ID, NO_TOPIC_ID, TopicId, TopicPartition

NO_OFFSET: Final = -1
NO_EXPIRY: Final = -1
RECORD_OVERHEAD: Final = 21
"""The most that lengths, deltas and attributes add to a record of a batch."""


class Committed(msgspec.Struct, frozen=True, gc=False):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """Asked for by the client (versions 2-4), instead of the retention of the broker."""
    topic_id: TopicId = NO_TOPIC_ID
    record_offset: int = -1
    """Where in the log it stands: of a plain and a transactional commit, the one written later wins."""

    def is_of(self, topic_id: TopicId) -> bool:
        """A topic that was deleted and made again has the same name and other records."""
        return NO_TOPIC_ID in (topic_id, self.topic_id) or topic_id == self.topic_id


ByPartition = dict[TopicPartition, Committed]
_NOTHING: Final[Mapping[TopicPartition, Committed]] = MappingProxyType({})


class Offsets:
    """Changed by `replay` and `replay_marker` alone."""

    def __init__(self) -> None:
        self._committed: dict[str, ByPartition] = {}
        self._pending: dict[int, dict[str, ByPartition]] = {}
        self._open: dict[str, set[int]] = {}
        """Producers with a transaction open, by group."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def of(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        return self._committed.get(group_id, _NOTHING)

    def groups(self) -> Iterator[str]:
        """Every group that has offsets, committed or pending."""
        yield from self._committed
        yield from (group_id for group_id in self._open if group_id not in self._committed)

    def has(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        return any(partition in self._pending[producer][group_id] for producer in self._open.get(group_id, ()))

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def deletions(self, group_id: str, partitions: Iterable[TopicPartition]) -> Iterator[GroupRecord]:
        """Records that remove these offsets, where there are any."""
        committed = self.of(group_id)
        for partition in partitions:
            if partition in committed or self.is_pending(group_id, partition):
                yield tombstone(group_id, partition)

    def all_deletions(self, group_id: str) -> Iterator[GroupRecord]:
        partitions = dict.fromkeys(self.of(group_id))
        for producer in self._open.get(group_id, ()):
            partitions.update(dict.fromkeys(self._pending[producer][group_id]))
        return (tombstone(group_id, partition) for partition in partitions)

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        found = []
        for partition, committed in self.of(group.group_id).items():
            if group.is_subscribed_to(partition.topic) or self.is_pending(group.group_id, partition):
                continue
            since = group.expires_since(committed.commit_timestamp_ms)
            if since is None:
                continue
            if committed.expire_timestamp_ms != NO_EXPIRY:
                is_over = now_ms >= committed.expire_timestamp_ms
            else:
                is_over = now_ms - since >= retention_ms
            if is_over:
                found.append(partition)
        return found

    def dump(self) -> dict[str, object]:
        """Everything, for comparing two of them."""
        return {
            "committed": {group_id: dict(offsets) for group_id, offsets in self._committed.items()},
            "pending": {
                producer: {group_id: dict(offsets) for group_id, offsets in by_group.items()}
                for producer, by_group in self._pending.items()
            },
            "open": {group_id: set(producers) for group_id, producers in self._open.items()},
        }

    # -- replay -------------------------------------------------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        if value is None:
            self._remove(key.group, TopicPartition(key.topic, key.partition))
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id == NO_PRODUCER_ID:
            offsets = self._committed.get(key.group)
            if offsets is None:
                offsets = self._committed[key.group] = {}
        else:
            offsets = self._pending.setdefault(producer_id, {}).setdefault(key.group, {})
            self._open.setdefault(key.group, set()).add(producer_id)
        # A plain tuple finds the entry that is there, as nearly always: the partition need not be named anew.
        known = (key.topic, key.partition)
        if known in offsets:
            offsets[known] = committed
        else:
            # Every record brings its own copy of the topic's name; thousands of groups need only one.
            offsets[TopicPartition(intern(key.topic), key.partition)] = committed

    def replay_commit(self, records: CommitRecords, first_offset: int) -> None:
        """As `replay` of each record, the first of which stands at `first_offset`."""
        offsets = self._committed.get(records.group_id)
        if offsets is None:
            offsets = self._committed[records.group_id] = {}
        commit_ms = records.commit_ms
        for name, topic_id, partitions, committed_offsets, epochs in records.topics:
            committed = map(
                Committed,
                committed_offsets,
                epochs,
                repeat(""),
                repeat(commit_ms),
                repeat(NO_EXPIRY),
                repeat(topic_id),
                count(first_offset),
            )
            before = len(offsets)
            # As above, plain tuples find the entries that are there.
            offsets.update(zip(zip(repeat(name), partitions, strict=False), committed, strict=False))  # type: ignore[arg-type]
            if len(offsets) != before:
                for key in zip(repeat(intern(name)), partitions, strict=False):
                    offsets[TopicPartition._make(key)] = offsets.pop(key)  # type: ignore[call-overload]
            first_offset += len(partitions)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            self._close(group_id, producer_id)
            if not committed:
                continue
            current = self._committed.setdefault(group_id, {})
            for partition, pending in offsets.items():
                known = current.get(partition)
                if known is None or pending.record_offset > known.record_offset:
                    current[partition] = pending
            if not current:
                del self._committed[group_id]

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        for producer in tuple(self._open.get(group_id, ())):
            self._pending[producer][group_id].pop(partition, None)

    def _close(self, group_id: str, producer_id: int) -> None:
        producers = self._open[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._open[group_id]


def in_batches(records: Iterable[GroupRecord], batch_bytes: int) -> Iterator[tuple[GroupRecord, ...]]:
    """As many batches as it takes to stay below this size; never an empty one."""
    batch: list[GroupRecord] = []
    size = 0
    for record in records:
        key, value = encode_record(record)
        length = len(key) + len(value or b"") + RECORD_OVERHEAD
        if batch and size + length > batch_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield tuple(batch)


def tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition), None)
