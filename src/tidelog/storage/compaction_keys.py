"""Compaction's first pass: the last offset of every key in the dirty part of a log.

The map is all the second pass needs to know of that part. A record there survives if its offset is one of the map's, so
counting them between a batch's first and last offset tells whether none, some or all of its records do, and only of
the batches in between are the records looked at again.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.wire.record_batch import (
    CODEC_MASK,
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    MIN_RECORD_SIZE,
    BatchHeader,
    payload_of,
)
from tidelog.wire.records_keys import RecordKeys, scan_keys

DIGEST_SIZE: Final = 47
KEY_BYTES: Final = 208  # what one entry of the key map takes: key, offset and its share of the dict while it grows
NOTED_MAX: Final = 1 << 17  # batches of one kind that are remembered, eight bytes each


def key_digest(key: bytes) -> bytes:
    """A digest stands for a long key and a short key for itself; their lengths keep the two apart.

    The size is what fits the eighty bytes that Python allocates for it: more keys as they are, UUIDs as text among
    them, would take more memory, and fewer would have to be hashed for nothing.
    """
    return key if len(key) < DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE).digest()


def keys_of(header: BatchHeader, chunk: bytes, at: int) -> RecordKeys | None:
    """Of the batch at `chunk[at]`; None if its producer never wrote a readable one."""
    count, last = header.records_count, header.last_offset_delta
    try:
        if header.attributes & CODEC_MASK:
            payload = payload_of(header, memoryview(chunk)[at : at + header.size])
            return scan_keys(payload, 0, len(payload), count, last)
        if not 0 <= count <= (header.size - HEADER_SIZE) // MIN_RECORD_SIZE:
            return None
        # Where it was read, without a copy.
        return scan_keys(chunk, at + HEADER_SIZE, at + header.size, count, last)
    except CorruptMessage:
        return None


def is_whole(header: BatchHeader) -> bool:
    """As a producer writes it: a record at every offset."""
    return header.records_count == header.last_offset_delta + 1


class KeyMap(NamedTuple):
    """What the first pass found in [start, end)."""

    offsets: dict[bytes, int]
    start: int
    end: int
    known_end: int
    """Up to here the odd ones and those with tombstones are known, by their base offsets and in order."""
    odd: "array[int]"
    """Batches whose producer wrote nothing readable, or other offsets than their header lets expect."""
    tombstones: "array[int]"


class KeyMapBuilder:
    """Filled batch by batch, in the order of the log."""

    def __init__(self, start: int, bytes_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._start = start
        self._limit = max(1, bytes_max // KEY_BYTES)
        self._odd = array("q")
        self._tombstones = array("q")
        self._known_end: int | None = None

    def add(self, header: BatchHeader, chunk: bytes, at: int) -> int | None:
        """The batch at `chunk[at]`. Returns the offset of its first record that found no room."""
        found = keys_of(header, chunk, at)
        base = header.base_offset
        whole = found is not None and isinstance(found.deltas, range)
        if found is None or (is_whole(header) and not whole):
            self._note(self._odd, base)
        if found is None:
            return None
        if found.tombstones:
            self._note(self._tombstones, base)
        keys = found.keys if found.longest < DIGEST_SIZE else [key_digest(key) for key in found.keys]
        offsets = range(base, base + len(keys)) if whole else [base + delta for delta in found.deltas]
        if base < self._start or len(self._offsets) + len(keys) > self._limit:
            return self._add_each(keys, offsets)
        self._offsets.update(zip(keys, offsets, strict=True))
        return None

    def finish(self, end: int) -> KeyMap:
        known_end = end if self._known_end is None else self._known_end
        return KeyMap(self._offsets, self._start, end, known_end, self._odd, self._tombstones)

    def _add_each(self, keys: Iterable[bytes], offsets: Iterable[int]) -> int | None:
        for key, offset in zip(keys, offsets, strict=True):
            if offset < self._start:
                continue
            if len(self._offsets) >= self._limit and key not in self._offsets:
                return offset
            self._offsets[key] = offset
        return None

    def _note(self, batches: "array[int]", base_offset: int) -> None:
        if len(batches) < NOTED_MAX:
            batches.append(base_offset)
        elif self._known_end is None:
            self._known_end = base_offset


class LastOffsets:
    """The offsets of a key map in order: how much of a batch survives, told by its header alone."""

    def __init__(self, keys: KeyMap) -> None:
        self._keys = keys
        self._offsets = sorted(keys.offsets.values())

    def survivors(self, header: BatchHeader) -> int | None:
        """How many of its records are the last of their keys; None where only the records can tell."""
        keys, base, last = self._keys, header.base_offset, header.last_offset
        # With a delete horizon a record may have to go although it is its key's last.
        if base < keys.start or last >= keys.known_end or header.attributes & HAS_DELETE_HORIZON:
            return None
        if _contains(keys.odd, base):
            return None
        first = bisect_left(self._offsets, base)
        return bisect_right(self._offsets, last, first) - first

    def has_tombstones(self, header: BatchHeader) -> bool:
        """Whether the first pass saw some, in a batch of which it told the survivors."""
        return _contains(self._keys.tombstones, header.base_offset)

    def deltas(self, header: BatchHeader) -> list[int]:
        """Of the survivors, from the batch's base offset."""
        base = header.base_offset
        first = bisect_left(self._offsets, base)
        return [
            offset - base for offset in self._offsets[first : bisect_right(self._offsets, header.last_offset, first)]
        ]


def _contains(batches: "array[int]", base_offset: int) -> bool:
    slot = bisect_left(batches, base_offset)
    return slot < len(batches) and batches[slot] == base_offset
