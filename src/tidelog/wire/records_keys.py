"""The walk of compaction's first pass: the key and the offset of every record, nothing else of it.

One loop without a tuple per record. Where records follow one another that differ in nothing but the contents of their
fields, as fixed-size events and a coordinator's commits do, a whole run of them is checked column by column: the same
byte of every record, taken with one strided slice, must be what the first record of the run says. By induction each
of them then begins and ends where the loop would have found it.

What it refuses is exactly what `scan_records` refuses: two walks that disagreed about a batch would lose records.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.wire.records import read_varint

RUN_MIN: Final = 8  # shorter runs cost more to find than to walk
_PROBE_STEP_MAX: Final = 1024
_MORE_FOLLOW: Final = bytes(range(128, 256))  # of a varint, all but its last byte
_LAST: Final = bytes(range(128))
_ONE_BYTE_DELTAS: Final = 64
_TWO_BYTE_DELTAS: Final = 8192
_DELTA_FIRST: Final = bytes(delta << 1 & 127 | (128 if delta >= _ONE_BYTE_DELTAS else 0) for delta in range(8192))
_DELTA_SECOND: Final = bytes(delta >> 6 for delta in range(8192))


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
            run = _run(data, start, p, size, delta, count - done)
            keys += run
            p += len(run) * (p - start)
            done += len(run)
            if gaps is not None:
                gaps += range(delta + 1, delta + 1 + len(run))
            step = 1 if run else min(4 * step, _PROBE_STEP_MAX)
    except IndexError:
        raise CorruptMessage("the batch ends inside a record") from None
    if p != size:
        raise CorruptMessage(f"{size - p} bytes follow the batch's last record")
    return RecordKeys(keys, range(count) if gaps is None else gaps, longest >> 1, tombstones)


def _run(data: bytes, start: int, end: int, limit: int, delta: int, left: int) -> list[bytes]:
    """Keys of the records from `end` on that are built like the one before it, `data[start:end]`, with offsets that
    count on from its `delta`; empty where it takes more than a look to tell."""
    size = end - start
    left = min(
        left, (limit - end) // size, (_ONE_BYTE_DELTAS if delta < _ONE_BYTE_DELTAS else _TWO_BYTE_DELTAS) - delta - 1
    )
    if left < RUN_MIN or data[start : start + 2] != data[end : end + 2]:
        return []
    body = read_varint(data, start)[1]
    delta_at = read_varint(data, body + 1)[1]
    key_length_at = read_varint(data, delta_at)[1]
    n, key_at = read_varint(data, key_length_at)
    if n & 1:
        return []
    value_length_at = key_at + (n >> 1)
    value_at = read_varint(data, value_length_at)[1]
    columns = [(at, data[at : at + 1]) for at in (*range(start, body), *range(key_length_at, key_at))]
    columns += [(at, data[at : at + 1]) for at in range(value_length_at, value_at)]
    columns += [(at, _MORE_FOLLOW) for at in range(body + 1, delta_at - 1)]
    columns.append((delta_at - 1, _LAST))
    for at, allowed in columns:
        column = data[at + size : at + size * left + 1 : size]
        left = len(column) - len(column.lstrip(allowed))
        if left < RUN_MIN:
            return []
    expected = slice(delta + 1, delta + 1 + left)
    stop = delta_at + size * left + 1
    if data[delta_at + size : stop : size] != _DELTA_FIRST[expected]:
        return []
    if delta >= _ONE_BYTE_DELTAS and data[delta_at + 1 + size : stop + 1 : size] != _DELTA_SECOND[expected]:
        return []
    length = n >> 1
    return [data[at : at + length] for at in range(key_at + size, key_at + size * left + 1, size)]
