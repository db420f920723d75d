"""The compiled walk over records. Whatever the bytes, it stays within them and within what it was given to fill.

`walk` reads every record of several batches in one buffer and notes where its parts lie; `gather` copies parts into the
contiguous form Arrow wants; `walk_headers` goes through record headers, for those who want them. The layout of a record
is told in `tidelog.wire.records`, whose slow reader accepts and refuses the same bytes.
"""

from typing import Any

from tidelog.spark.columns.compiled import (
    BYTES,
    BYTES_OUT,
    I32,
    I64,
    TABLE,
    Number,
    Pair,
    compiled,
    copy_bytes,
    inlined,
    types,
)

# Columns of the table of batches that `walk` is given.
PLACE, SIZE, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIME, APPEND_TIME, HAS_APPEND_TIME = range(8)
TABLE_WIDTH = 8

# Columns of what `walk` notes per record.
OFFSET, TIME, KEY_AT, KEY_LENGTH, VALUE_AT, VALUE_LENGTH, HEADERS_AT, HEADERS_COUNT = range(8)
NOTES_WIDTH = 8

Array = Any


@inlined
def _varint(data: Array, p: int, end: int) -> tuple[int, int]:
    """The zigzag bits as they stand and the position after them; position -1 if they do not end before `end`."""
    if p >= end:
        return 0, -1
    n = types.int64(data[p])
    p += 1
    if n < 128:
        return n, p
    n &= 127
    shift = 7
    while shift < 63:
        if p >= end:
            return 0, -1
        byte = types.int64(data[p])
        p += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, p
        shift += 7
    return 0, -1


@inlined
def _skip_headers(data: Array, p: int, end: int, count: int) -> int:
    for _ in range(count):
        n, p = _varint(data, p, end)
        if p < 0 or n & 1 or n >> 1 > end - p:
            return -1
        p += n >> 1
        n, p = _varint(data, p, end)
        if p < 0:
            return -1
        if not n & 1:
            if n >> 1 > end - p:
                return -1
            p += n >> 1
    return p


@inlined
def _record(data: Array, p: int, stop: int, batch: tuple[int, int, int, int, int], notes: Array, row: int) -> int:
    """Notes the record at `p`; where the next begins, or -1 if this is none.

    What it needs of its batch comes by value, and the note is written at the end: in between nothing is stored that the
    compiler would have to take for a change of what it reads. That halves the time.
    """
    base_offset, last_delta, base_time, append_time, has_append_time = batch
    n, p = _varint(data, p, stop)
    if p < 0 or n & 1 or n >> 1 > stop - p:
        return -1
    end = p + (n >> 1)
    p += 1  # attributes
    n, p = _varint(data, p, end)
    if p < 0:
        return -1
    time = append_time if has_append_time else base_time + ((n >> 1) ^ -(n & 1))
    delta, p = _varint(data, p, end)
    if p < 0 or delta & 1 or delta >> 1 > last_delta:
        return -1
    n, key_at = _varint(data, p, end)
    key_length = -1 if n & 1 else n >> 1
    if key_at < 0 or key_length > end - key_at:
        return -1
    n, value_at = _varint(data, key_at + max(key_length, 0), end)
    value_length = -1 if n & 1 else n >> 1
    if value_at < 0 or value_length > end - value_at:
        return -1
    n, p = _varint(data, value_at + max(value_length, 0), end)
    if p < 0 or n & 1 or n >> 1 > end - p:
        return -1
    notes[row, OFFSET], notes[row, TIME] = base_offset + (delta >> 1), time
    notes[row, KEY_AT], notes[row, KEY_LENGTH] = key_at, key_length
    notes[row, VALUE_AT], notes[row, VALUE_LENGTH] = value_at, value_length
    notes[row, HEADERS_AT], notes[row, HEADERS_COUNT] = p, n >> 1
    if n:
        p = _skip_headers(data, p, end, n >> 1)
    return end if p == end else -1


@compiled(Pair(BYTES, TABLE, Number, Number, TABLE))
def walk(data: Array, batches: Array, first: int, until: int, notes: Array) -> tuple[int, int]:
    """Notes every record whose offset is in [first, until). Returns how many, and the batch that is malformed or -1."""
    rows = 0
    for b in range(len(batches)):
        p = batches[b, PLACE]
        end = p + batches[b, SIZE]
        if p < 0 or batches[b, SIZE] < 0 or end > len(data):
            return rows, b
        batch = (
            batches[b, BASE_OFFSET],
            batches[b, LAST_DELTA],
            batches[b, BASE_TIME],
            batches[b, APPEND_TIME],
            batches[b, HAS_APPEND_TIME],
        )
        for _ in range(batches[b, COUNT]):
            if rows >= len(notes):
                return rows, b
            p = _record(data, p, end, batch, notes, rows)
            if p < 0:
                return rows, b
            if first <= notes[rows, OFFSET] < until:
                rows += 1
        if p != end:
            return rows, b
    return rows, -1


@compiled(Pair(TABLE, Number, Number))
def measure(notes: Array, rows: int, length_column: int) -> tuple[int, int]:
    """Bytes of all parts of one kind, and how many are null."""
    total = 0
    nulls = 0
    for row in range(rows):
        length = notes[row, length_column]
        if length < 0:
            nulls += 1
        else:
            total += length
    return total, nulls


@compiled(types.boolean(BYTES, TABLE, Number, Number, I32, BYTES_OUT, BYTES_OUT))
def gather(data: Array, notes: Array, rows: int, place: int, ends: Array, into: Array, valid: Array) -> bool:
    """Copies the parts noted in column `place` one behind the other; `valid` gets a byte per row unless it is empty.

    False, with nothing written outside, when the buffers do not fit what is noted.
    """
    if len(ends) <= rows or len(notes) < rows or (len(valid) and len(valid) < rows):
        return False
    filled = 0
    ends[0] = 0
    for row in range(rows):
        length = notes[row, place + 1]
        if length > 0:
            at = notes[row, place]
            if at < 0 or length > len(data) - at or length > len(into) - filled:
                return False
            copy_bytes(into, filled, data, at, length)
            filled += length
        if len(valid):
            valid[row] = length >= 0
        ends[row + 1] = filled
    return True


@compiled(types.boolean(BYTES, TABLE, Number, TABLE))
def walk_headers(data: Array, notes: Array, rows: int, headers: Array) -> bool:
    """For every header of every noted record: key position and length, value position and length (-1 is null)."""
    h = 0
    end = len(data)
    for row in range(rows):
        p = notes[row, HEADERS_AT]
        for _ in range(notes[row, HEADERS_COUNT]):
            if h >= len(headers) or p < 0:
                return False
            for place in (0, 2):
                n, p = _varint(data, p, end)
                length = -1 if n & 1 else n >> 1
                if p < 0 or length > end - p:
                    return False
                headers[h, place] = p
                headers[h, place + 1] = length
                if length > 0:
                    p += length
            h += 1
    return True


@compiled(types.void(TABLE, Number, Number, Number, I64))
def column(notes: Array, rows: int, which: int, factor: int, into: Array) -> None:
    """One noted number per row, times `factor`; what would not fit an i64 becomes its limit."""
    highest = 9223372036854775807 // factor
    for row in range(rows):
        number = notes[row, which]
        if number > highest:
            number = highest
        elif number < -highest:
            number = -highest
        into[row] = number * factor
