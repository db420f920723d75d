"""The records of one commit as they came, in columns: written and replayed without making an object of each.

Whoever looks at them one by one sees the `GroupRecord`s they stand for; the bytes are those of these records.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple, overload

from tidelog.groups.records import (
    COMMIT_VERSION,
    NO_TAGS,
    TOPIC_ID_TAG,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    commit_key_start,
    encode_record,
)
from tidelog.wire.commit_fast import TopicOffsets
from tidelog.wire.records import ONE_BYTE_VARINTS, encode_pairs, encode_varint, small_varints

_TIMESTAMP: Final = Struct(">Bq").pack  # behind the length of metadata that is empty
_EMPTY: Final = 1
_NO_HEADERS: Final = b"\0"
_ATTRIBUTES_AND_TIME: Final = b"\0\0"


class CommitRecords(Sequence[GroupRecord]):
    """At most `commit_fast.PARTITIONS_MAX` of one group, without metadata, and kept for as long as the broker keeps
    offsets."""

    __slots__ = ("_count", "commit_ms", "group_id", "topics")

    def __init__(self, group_id: str, topics: tuple[TopicOffsets, ...], commit_ms: int) -> None:
        self.group_id = group_id
        self.topics = topics
        self.commit_ms = commit_ms
        self._count = sum([len(topic.partitions) for topic in topics])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GroupRecord]:
        for name, topic_id, partitions, offsets, epochs in self.topics:
            for partition, offset, epoch in zip(partitions, offsets, epochs, strict=True):
                key = OffsetCommitKey(group=self.group_id, topic=name, partition=partition)
                value = OffsetCommitValue(
                    offset=offset,
                    leader_epoch=epoch,
                    metadata="",
                    commit_timestamp=self.commit_ms,
                    topic_id=topic_id,
                )
                yield GroupRecord(key, value)

    @overload
    def __getitem__(self, index: int) -> GroupRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[GroupRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> GroupRecord | tuple[GroupRecord, ...]:
        return tuple(self)[index]

    def payload(self) -> bytes:
        """Of the batch that holds them, and nothing else."""
        encoded: list[bytes] = []
        timestamp = _TIMESTAMP(_EMPTY, self.commit_ms)
        first = 0
        for name, topic_id, partitions, offsets, epochs in self.topics:
            number = topic_id.int
            tags = TOPIC_ID_TAG + number.to_bytes(16, "big") if number else NO_TAGS
            rest = timestamp + tags + _NO_HEADERS
            end = first + len(partitions)
            # A record's place in the batch takes one byte or two, and that is all that its length depends on.
            for start, stop in (first, min(end, ONE_BYTE_VARINTS)), (max(first, ONE_BYTE_VARINTS), end):
                if start >= stop:
                    continue
                places = small_varints(start, stop)
                layout = _layout(self.group_id, name, len(places[0]), len(rest))
                encoded += map(
                    layout.pack,
                    repeat(layout.head),
                    places,
                    repeat(layout.key),
                    partitions[start - first : stop - first],
                    repeat(layout.version),
                    offsets[start - first : stop - first],
                    epochs[start - first : stop - first],
                    repeat(rest),
                )
            first = end
        return b"".join(encoded)


class _Layout(NamedTuple):
    """All records of a group and a topic alike, and what is the same in each of them."""

    pack: Callable[..., bytes]
    head: bytes
    key: bytes
    version: bytes


@lru_cache(maxsize=4096)
def _layout(group_id: str, topic: str, place_bytes: int, rest_bytes: int) -> _Layout:
    start = commit_key_start(group_id, topic)
    key = encode_varint(len(start) + 4) + start
    value_bytes = 2 + 8 + 4 + rest_bytes - len(_NO_HEADERS)
    version = encode_varint(value_bytes) + COMMIT_VERSION.to_bytes(2, "big")
    length = len(_ATTRIBUTES_AND_TIME) + place_bytes + len(key) + 4 + len(version) + 8 + 4 + rest_bytes
    head = encode_varint(length) + _ATTRIBUTES_AND_TIME
    record = Struct(f">{len(head)}s{place_bytes}s{len(key)}si{len(version)}sqi{rest_bytes}s")
    return _Layout(record.pack, head, key, version)


def encode_records(records: Sequence[GroupRecord]) -> bytes | bytearray:
    """The payload of the batch that holds them."""
    if type(records) is CommitRecords:
        return records.payload()
    return encode_pairs([encode_record(record) for record in records])
