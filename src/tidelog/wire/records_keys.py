"""The walks of compaction: the first pass wants the key and offset of every record, the second whole records, but few.

`scan_keys` is one loop over a batch, without a tuple per record, and two short cuts that it tries from time to time.

* A run of records that differ in nothing but the contents of their fields, as fixed-size events and a coordinator's
  commits do, is checked column by column: the same byte of every record, taken with one strided slice, must be what
  the record before the run says. By induction each of them then begins and ends where the loop would have found it.
* Records whose numbers take as many bytes as those of the record before are taken apart by one `unpack` each.

What it refuses is exactly what `scan_records` refuses: two walks that disagreed about a batch would lose records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.wire.records import RecordSpan, read_varint

RUN_MIN: Final = 8  # shorter runs cost more to find than to walk
_PROBE_STEP_MAX: Final = 256
_MORE_FOLLOW: Final = bytes(range(128, 256))  # of a varint, all but its last byte
_LAST: Final = bytes(range(128))
_ONE_BYTE_DELTAS: Final = 64
_TWO_BYTE_DELTAS: Final = 8192
_NO_LENGTH: Final = 1 << 40  # longer than any batch
_FIELD: Final = ("", "B", "H")  # of struct, by the bytes it takes
_FIELD_MAX: Final = 2
_MORE_FOLLOW_BITS: Final = (0, 0x80, 0x8080)  # of a varint of one and of two bytes, and what they are in it
_MORE_FOLLOW_SET: Final = (0, 0, 0x8000)


class RecordKeys(NamedTuple):
    keys: list[bytes]
    """Of the records that have one."""
    deltas: Sequence[int]
    """Their offsets, from the batch's base; a range where every record has a key and no offset is missing."""
    longest: int
    """Length of the longest key."""
    tombstones: bool
    """Whether a record without value is among them."""


def scan_keys(  # noqa: PLR0915 - one loop in line, as in `records`
    data: bytes, start: int, size: int, count: int, last_offset_delta: int
) -> RecordKeys:
    """`data[start:size]` is a decompressed payload of `count` records."""
    keys: list[bytes] = []
    gaps: list[int] | None = None
    step, p, done, delta, longest = 1, start, 0, 0, 0
    tombstones = False
    try:
        while done < count:
            for i in range(done, min(count, done + step)):
                start = p
                n = data[p]
                p += 1
                if n > 127:
                    if (m := data[p]) < 128:
                        n += m - 1 << 7
                        p += 1
                    else:
                        n, p = read_varint(data, p - 1)
                end = p + (n >> 1)
                if n & 1 or end > size:
                    raise CorruptMessage(f"record at byte {p} does not fit the batch")
                if data[p + 1] < 128:  # the timestamp, behind the attributes
                    p += 2
                else:
                    p = p + 3 if data[p + 2] < 128 else read_varint(data, p + 1)[1]
                delta = data[p]
                p += 1
                if delta > 127:
                    if (m := data[p]) < 128:
                        delta += m - 1 << 7
                        p += 1
                    else:
                        delta, p = read_varint(data, p - 1)
                if delta & 1 or (delta := delta >> 1) > last_offset_delta:
                    raise CorruptMessage(f"record at byte {p} has an offset outside the batch")
                n = data[p]
                p += 1
                if n > 127:
                    n, p = (n + (data[p] - 1 << 7), p + 1) if data[p] < 128 else read_varint(data, p - 1)
                if n & 1:
                    gaps = gaps if gaps is not None else [*range(i)]
                else:
                    keys.append(data[p : (p := p + (n >> 1))])
                    if n > longest:  # noqa: PLR1730 - a call costs as much as the key
                        longest = n
                    if gaps is not None:
                        gaps.append(delta)
                    elif delta != i:
                        gaps = [*range(i), delta]
                n = data[p]
                p += 1
                if n > 127:
                    if (m := data[p]) < 128:
                        n += m - 1 << 7
                        p += 1
                    else:
                        n, p = read_varint(data, p - 1)
                if n & 1:
                    tombstones = True
                else:
                    p += n >> 1
                if p >= end:  # the header count is at least one byte
                    raise CorruptMessage(f"record ending at byte {end} has fields that do not fit it")
                p = end
            done = min(count, done + step)
            left = min(count - done, last_offset_delta - delta, _deltas_alike(delta))
            if left < RUN_MIN:
                step = RUN_MIN
                continue
            run, p, longest = _alike(data, start, p, size, delta, left, longest)
            keys += run
            done += len(run)
            if gaps is not None:
                gaps += range(delta + 1, delta + 1 + len(run))
            step = 1 if len(run) >= RUN_MIN else min(4 * step, _PROBE_STEP_MAX)
    except IndexError:
        raise CorruptMessage("the batch ends inside a record") from None
    if p != size:
        raise CorruptMessage(f"{size - p} bytes follow the batch's last record")
    return RecordKeys(keys, range(count) if gaps is None else gaps, longest >> 1, tombstones)


def pick_records(data: bytes, deltas: Iterable[int]) -> Iterator[RecordSpan]:
    """The records at these offset deltas, which rise, of a payload that `scan_keys` found to have no gap."""
    p = at = 0
    for delta in deltas:
        for _ in range(delta - at):
            n = data[p]
            if n < 128:
                p += 1 + (n >> 1)
            elif (m := data[p + 1]) < 128:
                p += 2 + (n + (m - 1 << 7) >> 1)
            else:
                n, p = read_varint(data, p)
                p += n >> 1
        n, body = read_varint(data, p)
        end = body + (n >> 1)
        timestamp, q = read_varint(data, body + 1)
        _, q = read_varint(data, q)
        n, q = read_varint(data, q)
        key = None if n & 1 else data[q : (q := q + (n >> 1))]
        yield p, end, delta, (timestamp >> 1) ^ -(timestamp & 1), key, not data[q] & 1
        p = end
        at = delta + 1


def _deltas_alike(delta: int) -> int:
    """How many offset deltas after this one take as many bytes."""
    return (_ONE_BYTE_DELTAS if delta < _ONE_BYTE_DELTAS else _TWO_BYTE_DELTAS) - delta - 1


class _Shape(NamedTuple):
    """Where the fields of a record are."""

    start: int
    body: int
    delta_at: int
    key_length_at: int
    key_at: int
    value_length_at: int
    value_at: int


def _alike(
    data: bytes, start: int, end: int, limit: int, delta: int, left: int, longest: int
) -> tuple[list[bytes], int, int]:
    """Keys of the records from `end` on that are built like the one before it, `data[start:end]`, with offsets that
    count on from its `delta`; where they end; and the longest key, as `scan_keys` counts it."""
    _, body = read_varint(data, start)
    _, delta_at = read_varint(data, body + 1)
    _, key_length_at = read_varint(data, delta_at)
    n, key_at = read_varint(data, key_length_at)
    if n & 1:  # null
        return [], end, longest
    value_length_at = key_at + (n >> 1)
    _, value_at = read_varint(data, value_length_at)
    shape = _Shape(start, body, delta_at, key_length_at, key_at, value_length_at, value_at)
    run = _run(data, shape, end, limit, delta, left)
    if run:
        return run, end + len(run) * (end - start), longest
    return _each_alike(data, shape, end, limit, delta, left, longest)


def _run(data: bytes, shape: _Shape, end: int, limit: int, delta: int, left: int) -> list[bytes]:
    """Of records of the same size."""
    start, body, delta_at, key_length_at, key_at, value_length_at, value_at = shape
    size = end - start
    left = min(left, (limit - end) // size)
    if left < RUN_MIN or data[start : start + 2] != data[end : end + 2]:
        return []
    same = (*range(start, body), *range(key_length_at, key_at), *range(value_length_at, value_at))
    columns = [(at, data[at : at + 1]) for at in same]
    columns += [(at, _MORE_FOLLOW) for at in range(body + 1, delta_at - 1)]
    columns.append((delta_at - 1, _LAST))
    for at, allowed in columns:
        column = data[at + size : at + size * left + 1 : size]
        left = len(column) - len(column.lstrip(allowed))
        if left < RUN_MIN:
            return []
    for at, deltas in zip(range(delta_at, key_length_at), _delta_columns(), strict=False):
        if data[at + size : at + size * left + 1 : size] != deltas[delta + 1 : delta + 1 + left]:
            return []
    length = value_length_at - key_at
    return [data[at : at + length] for at in range(key_at + size, key_at + size * left + 1, size)]


def _each_alike(
    data: bytes, shape: _Shape, p: int, limit: int, delta: int, left: int, longest: int
) -> tuple[list[bytes], int, int]:
    """Of records of any size, as long as every number takes as many bytes as it did, and the key's length one."""
    start, body, delta_at, key_length_at, key_at, value_length_at, value_at = shape
    widths = body - start, delta_at - body - 1, key_length_at - delta_at, value_at - value_length_at
    keys: list[bytes] = []
    if max(widths) > _FIELD_MAX or key_at - key_length_at > 1:
        return keys, p, longest
    head, value_length = _layouts(*widths)
    sizes, value_sizes = _lengths(widths[0]), _lengths(widths[3])
    bits, expected_bits = _MORE_FOLLOW_BITS[widths[1]], _MORE_FOLLOW_SET[widths[1]]
    before_key, before_body, value_width = key_at - start, widths[0], widths[3]
    try:
        for expected in _delta_numbers()[delta + 1 : delta + 1 + left]:
            size, timestamp, found, n = head(data, p)
            q = p + before_key
            key = data[q : (q := q + (n >> 1))]
            end = p + before_body + sizes[size]
            if (
                found != expected
                or n & 129  # null, or a length of two bytes
                or timestamp & bits != expected_bits
                or q + value_width + value_sizes[value_length(data, q)[0]] >= end
                or end > limit
            ):
                break
            keys.append(key)
            if n > longest:  # noqa: PLR1730 - as above
                longest = n
            p = end
    except struct_error:
        pass  # the last records of a chunk: the loop will see to them
    return keys, p, longest


Unpack = Callable[[bytes, int], tuple[int, ...]]


@cache
def _layouts(size: int, timestamp: int, delta: int, value_size: int) -> tuple[Unpack, Unpack]:
    """Of a record as far as the length of its key, and of the length of its value, by the bytes each number takes."""
    head = Struct(f">{_FIELD[size]}x{_FIELD[timestamp]}{_FIELD[delta]}B")
    return head.unpack_from, Struct(f">{_FIELD[value_size]}").unpack_from


@cache
def _lengths(width: int) -> list[int]:
    """The length that a varint of one or two bytes, read as a plain number, stands for."""
    if width == 1:
        return [_NO_LENGTH if n & 129 else n >> 1 for n in range(256)]
    lengths = [_NO_LENGTH] * (1 << 16)
    for first in range(128, 256, 2):
        low = (first & 127) >> 1
        lengths[first << 8 : (first << 8) + 128] = range(low, low + 128 * 64, 64)
    return lengths


@cache
def _delta_columns() -> tuple[bytes, bytes]:
    """First and second byte of every offset delta up to two bytes."""
    two = [delta << 1 & 127 | 128 for delta in range(_ONE_BYTE_DELTAS, _TWO_BYTE_DELTAS)]
    return bytes([*range(0, 128, 2), *two]), bytes([delta >> 6 for delta in range(_TWO_BYTE_DELTAS)])


@cache
def _delta_numbers() -> list[int]:
    """The same deltas, each read as a plain number."""
    columns = [*zip(*_delta_columns(), strict=True)]
    return [*range(0, 128, 2), *(first << 8 | second for first, second in columns[_ONE_BYTE_DELTAS:])]
