"""The compiled way from columns to records: which partition each row goes to, and the bytes it becomes there.

The layout of a record is told in `tidelog.wire.records`, the hash in `tidelog.partitioning`; tests hold both against
these. Columns of bytes are an array of places (one more than there are rows), the bytes, and a byte per row that says
whether it is there; that last array is empty where no row is null.
"""

from typing import Any, Final

import numpy as np
from numba.core import types

from tidelog.spark.columns.compiled import BYTES, BYTES_OUT, I64, Number, compiled, copy_bytes, inlined

PLACES: Final = types.Array(types.int64, 1, "C", readonly=True)
NOT_GIVEN: Final = -1

# What `encode` reports.
ROWS, SIZE, TIME_MAX, NEEDED = range(4)
REPORT_WIDTH: Final = 4

Array = Any


@inlined
def _hash(data: Array, start: int, end: int) -> int:
    """Kafka's murmur2 with the sign bit cleared."""
    m = np.uint32(0x5BD1E995)
    length = end - start
    h = np.uint32(0x9747B28C) ^ np.uint32(length)
    p = start
    while p + 4 <= end:
        k = (
            np.uint32(data[p])
            | (np.uint32(data[p + 1]) << np.uint32(8))
            | (np.uint32(data[p + 2]) << np.uint32(16))
            | (np.uint32(data[p + 3]) << np.uint32(24))
        )
        k = np.uint32(k * m)
        k = np.uint32((k ^ (k >> np.uint32(24))) * m)
        h = np.uint32(h * m) ^ k
        p += 4
    if p < end:
        shift = np.uint32(0)
        while p < end:
            h = h ^ (np.uint32(data[p]) << shift)
            shift += np.uint32(8)
            p += 1
        h = np.uint32(h * m)
    h = np.uint32((h ^ (h >> np.uint32(13))) * m)
    h = h ^ (h >> np.uint32(15))
    hashed: Any = h & np.uint32(0x7FFFFFFF)
    result: int = types.int64(hashed)
    return result


@compiled(Number(Number, PLACES, BYTES, BYTES, PLACES, PLACES, PLACES, PLACES, PLACES, I64))
def place(
    rows: int,
    key_at: Array,
    keys: Array,
    key_valid: Array,
    given: Array,
    topic_of: Array,
    base_of: Array,
    count_of: Array,
    keyless_of: Array,
    into: Array,
) -> int:
    """The slot of every row: the base of its topic plus its partition. Returns the row whose given partition its topic
    does not have, or -1.

    `given` is NOT_GIVEN for rows whose key decides, `topic_of` is empty when there is one topic only.
    """
    for row in range(rows):
        topic = topic_of[row] if len(topic_of) else 0
        count = count_of[topic]
        partition = given[row] if len(given) else NOT_GIVEN
        if partition == NOT_GIVEN:
            if len(key_at) and (len(key_valid) == 0 or key_valid[row]):
                partition = _hash(keys, key_at[row], key_at[row + 1]) % count
            else:
                partition = keyless_of[topic]
        elif partition < 0 or partition >= count:
            return row
        into[row] = base_of[topic] + partition
    return -1


@compiled(types.void(I64, I64, I64))
def sort_rows(slots: Array, starts: Array, order: Array) -> None:
    """Rows by slot, those of one slot in the order they came; `starts` gets where each slot's rows begin in `order`."""
    starts[:] = 0
    for row in range(len(slots)):
        starts[slots[row] + 1] += 1
    for slot in range(1, len(starts)):
        starts[slot] += starts[slot - 1]
    filled = starts[: len(starts) - 1].copy()
    for row in range(len(slots)):
        slot = slots[row]
        order[filled[slot]] = row
        filled[slot] += 1


@inlined
def _varint_size(number: int) -> int:
    n = (number << 1) ^ (number >> 63)
    size = 1
    while n >= 128 or n < 0:
        n = (n >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@inlined
def _put_varint(out: Array, p: int, number: int) -> int:
    n = (number << 1) ^ (number >> 63)
    while n >= 128 or n < 0:
        out[p] = (n & 127) | 128
        n = (n >> 7) & 0x01FFFFFFFFFFFFFF
        p += 1
    out[p] = n
    return p + 1


@inlined
def _length(at: Array, valid: Array, row: int) -> int:
    """-1 is null."""
    if len(at) == 0 or (len(valid) and not valid[row]):
        return -1
    length: int = at[row + 1] - at[row]
    return length


@inlined
def _part_size(length: int) -> int:
    return _varint_size(length) + (length if length > 0 else 0)


@inlined
def _put_part(out: Array, p: int, data: Array, at: Array, row: int, length: int) -> int:
    p = _put_varint(out, p, length)
    if length > 0:
        copy_bytes(out, p, data, at[row], length)
        p += length
    return p


_COLUMN = (PLACES, BYTES, BYTES)


@compiled(
    types.void(PLACES, PLACES, Number, Number, *_COLUMN, *_COLUMN, PLACES, PLACES, *_COLUMN, *_COLUMN, BYTES_OUT, I64)
)
def encode(
    order: Array, times: Array, base_time: int, limit: int,
    key_at: Array, keys: Array, key_valid: Array,
    value_at: Array, values: Array, value_valid: Array,
    header_from: Array, header_until: Array,
    name_at: Array, names: Array, name_valid: Array,
    content_at: Array, contents: Array, content_valid: Array,
    out: Array, report: Array,
) -> None:  # fmt: skip
    """Writes records of the rows in `order` until they are all written or `limit` bytes would be passed; a first record
    that is bigger is written alone if `out` holds it. `report` gets rows written, bytes written, the highest timestamp,
    and the bytes that `out` would have had to hold.

    `times` is one number for all rows or one for each.
    """
    p = 0
    done = 0
    time_max = base_time
    needed = 0
    for i in range(len(order)):
        row = order[i]
        time = times[row] if len(times) > 1 else times[0]
        key = _length(key_at, key_valid, row)
        value = _length(value_at, value_valid, row)
        size = 1 + _varint_size(time - base_time) + _varint_size(i) + _part_size(key) + _part_size(value)
        headers = 0
        if len(header_from):
            headers = header_until[row] - header_from[row]
            for h in range(header_from[row], header_until[row]):
                size += _part_size(_length(name_at, name_valid, h)) + _part_size(_length(content_at, content_valid, h))
        size += _varint_size(headers)
        whole = size + _varint_size(size)
        if p + whole > len(out) or (i > 0 and p + whole > limit):
            needed = whole
            break
        p = _put_varint(out, p, size)
        out[p] = 0
        p = _put_varint(out, p + 1, time - base_time)
        p = _put_varint(out, p, i)
        p = _put_part(out, p, keys, key_at, row, key)
        p = _put_part(out, p, values, value_at, row, value)
        p = _put_varint(out, p, headers)
        if headers > 0:
            for h in range(header_from[row], header_until[row]):
                p = _put_part(out, p, names, name_at, h, _length(name_at, name_valid, h))
                p = _put_part(out, p, contents, content_at, h, _length(content_at, content_valid, h))
        time_max = max(time_max, time)
        done += 1
    report[ROWS] = done
    report[SIZE] = p
    report[TIME_MAX] = time_max
    report[NEEDED] = needed
