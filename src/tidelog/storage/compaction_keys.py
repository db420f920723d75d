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
UNSURE_MAX: Final = 1 << 16


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


class KeyMap(NamedTuple):
    """What the first pass found in [start, end)."""

    offsets: dict[bytes, int]
    start: int
    end: int
    sure_end: int
    """Up to here `unsure` has room for the batches that the offsets do not decide, by their base offsets."""
    unsure: "array[int]"


class KeyMapBuilder:
    """Filled batch by batch, in the order of the log."""

    def __init__(self, start: int, bytes_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._start = start
        self._limit = max(1, bytes_max // KEY_BYTES)
        self._unsure = array("q")
        self._sure_end: int | None = None

    def add(self, header: BatchHeader, chunk: bytes, at: int) -> int | None:
        """The batch at `chunk[at]`. Returns the offset of its first record that found no room."""
        found = keys_of(header, chunk, at)
        base = header.base_offset
        if found is None or found.tombstones:
            # Tombstones may have to go although they are their keys' last word, and what cannot be read has to stay.
            self._not_sure(base)
        if found is None:
            return None
        keys = found.keys if found.longest < DIGEST_SIZE else [key_digest(key) for key in found.keys]
        whole = isinstance(found.deltas, range)
        offsets = range(base, base + len(keys)) if whole else [base + delta for delta in found.deltas]
        if base < self._start or len(self._offsets) + len(keys) > self._limit:
            return self._add_each(keys, offsets)
        self._offsets.update(zip(keys, offsets, strict=True))
        return None

    def finish(self, end: int) -> KeyMap:
        sure_end = end if self._sure_end is None else self._sure_end
        return KeyMap(self._offsets, self._start, end, sure_end, self._unsure)

    def _add_each(self, keys: Iterable[bytes], offsets: Iterable[int]) -> int | None:
        for key, offset in zip(keys, offsets, strict=True):
            if offset < self._start:
                continue
            if len(self._offsets) >= self._limit and key not in self._offsets:
                return offset
            self._offsets[key] = offset
        return None

    def _not_sure(self, base_offset: int) -> None:
        if len(self._unsure) < UNSURE_MAX:
            self._unsure.append(base_offset)
        elif self._sure_end is None:
            self._sure_end = base_offset


class LastOffsets:
    """The offsets of a key map in order: how much of a batch survives, told by its header alone."""

    def __init__(self, keys: KeyMap) -> None:
        self._offsets = sorted(keys.offsets.values())
        self._start = keys.start
        self._end = keys.sure_end
        self._unsure = keys.unsure

    def survivors(self, header: BatchHeader) -> int | None:
        """How many of its records are the last of their keys; None where only the records can tell."""
        base, last = header.base_offset, header.last_offset
        if base < self._start or last >= self._end or header.attributes & HAS_DELETE_HORIZON:
            return None
        slot = bisect_left(self._unsure, base)
        if slot < len(self._unsure) and self._unsure[slot] == base:
            return None
        first = bisect_left(self._offsets, base)
        return bisect_right(self._offsets, last, first) - first
