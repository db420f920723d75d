"""Records inside a batch's payload: the walk that reads them and the code that writes them.

    length          varint   bytes after this field
    attributes      i8       unused
    timestamp_delta varlong  from the batch's base timestamp
    offset_delta    varint   from the batch's base offset
    key             varint length, bytes; -1 is null
    value           varint length, bytes; -1 is null, a tombstone in a compacted topic
    headers         varint count, then for each: varint length and key, varint length (-1 is null) and value

Varints are zigzag encoded. The reading loops repeat the one- and two-byte case in line because a call per field would
double their time; `IndexError` is their bounds check, and every malformed input ends as CorruptMessage.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP_SPAN: Final = 1 << 62  # base and delta each stay below, so their sum is an i64


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(  # noqa: PLR0915 - one loop in line, see above
    data: bytes,
    count: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time_ms: int | None,
) -> Iterator[Record]:
    """`data` is a decompressed payload. With `append_time_ms` (LogAppendTime) every record has that timestamp."""
    if not -_TIMESTAMP_SPAN < base_timestamp < _TIMESTAMP_SPAN:
        raise CorruptMessage(f"base timestamp {base_timestamp} is out of range")
    p, size, new = 0, len(data), tuple.__new__
    try:
        for _ in range(count):
            n = data[p]
            p += 1
            if n > 127:
                m = data[p]
                if m < 128:
                    n += m - 1 << 7
                    p += 1
                else:
                    n, p = read_varint(data, p - 1)
            end = p + (n >> 1)
            if n & 1 or end > size:
                raise CorruptMessage(f"record at byte {p} does not fit the batch")
            n = data[p + 1]  # behind the attributes
            p += 2
            if n > 127:
                n, p = (n + (data[p] - 1 << 7), p + 1) if data[p] < 128 else read_varint(data, p - 1)
            timestamp = append_time_ms if append_time_ms is not None else base_timestamp + ((n >> 1) ^ -(n & 1))
            delta = data[p]
            p += 1
            if delta > 127:
                m = data[p]
                if m < 128:
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
                key = None
            else:
                key = data[p : (p := p + (n >> 1))]
            n = data[p]
            p += 1
            if n > 127:
                m = data[p]
                if m < 128:
                    n += m - 1 << 7
                    p += 1
                else:
                    n, p = read_varint(data, p - 1)
            if n & 1:
                value = None
            else:
                value = data[p : (p := p + (n >> 1))]
            headers: Headers = ()
            if data[p]:
                headers, p = _headers(data, p)
            else:
                p += 1
            if p != end:
                raise CorruptMessage(f"record ending at byte {end} has fields that do not fill it")
            yield new(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptMessage("the batch ends inside a record") from None
    if p != size:
        raise CorruptMessage(f"{size - p} bytes follow the batch's last record")


RecordSpan = tuple[int, int, int, int, bytes | None, bool]
"""start, end, offset delta, timestamp delta, key, has value: where a record lies in a payload, and what compaction and
validation ask about it. A bare tuple, because naming the fields would cost a fifth of the walk."""


def scan_records(  # noqa: PLR0915 - as above
    data: bytes, count: int, last_offset_delta: int
) -> Iterator[RecordSpan]:
    """The cheap walk: values and headers are stepped over, not copied."""
    p, size = 0, len(data)
    try:
        for _ in range(count):
            start = p
            n = data[p]
            p += 1
            if n > 127:
                m = data[p]
                if m < 128:
                    n += m - 1 << 7
                    p += 1
                else:
                    n, p = read_varint(data, p - 1)
            end = p + (n >> 1)
            if n & 1 or end > size:
                raise CorruptMessage(f"record at byte {p} does not fit the batch")
            n = data[p + 1]  # behind the attributes
            p += 2
            if n > 127:
                n, p = (n + (data[p] - 1 << 7), p + 1) if data[p] < 128 else read_varint(data, p - 1)
            timestamp = (n >> 1) ^ -(n & 1)
            delta = data[p]
            p += 1
            if delta > 127:
                m = data[p]
                if m < 128:
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
                key = None
            else:
                key = data[p : (p := p + (n >> 1))]
            n = data[p]
            p += 1
            if n > 127:
                m = data[p]
                if m < 128:
                    n += m - 1 << 7
                    p += 1
                else:
                    n, p = read_varint(data, p - 1)
            has_value = not n & 1
            if has_value:
                p += n >> 1
            if p >= end:  # the header count is at least one byte
                raise CorruptMessage(f"record ending at byte {end} has fields that do not fit it")
            p = end
            yield start, end, delta, timestamp, key, has_value
    except IndexError:
        raise CorruptMessage("the batch ends inside a record") from None
    if p != size:
        raise CorruptMessage(f"{size - p} bytes follow the batch's last record")


def shift_timestamp(data: bytes, start: int, end: int, shift: int) -> bytes:
    """The record at `start:end`, already scanned, with `shift` added to its timestamp delta."""
    _, p = read_varint(data, start)
    n, rest = read_varint(data, p + 1)
    body = data[p : p + 1] + encode_varint(((n >> 1) ^ -(n & 1)) + shift) + data[rest:end]
    return encode_varint(len(body)) + body


def encode_pairs(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytearray:
    """Records of one moment with keys and without headers, as a coordinator writes them: the payload of their batch."""
    payload = bytearray()
    small = _SMALL
    for delta, (key, value) in enumerate(pairs):
        try:
            start = b"\0\0" + small[delta] + small[len(key)] + key
            rest = b"\1\0" if value is None else small[len(value)] + value + b"\0"
            payload += small[len(start) + len(rest)]
            payload += start
            payload += rest
        except IndexError:  # a number that takes more than two bytes
            append_record(payload, Record(delta, 0, key, value), delta, 0)
    return payload


def append_record(payload: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    key, value, headers = record.key, record.value, record.headers
    if key is not None and value is not None and not headers and timestamp_delta >= 0:
        try:  # all numbers small: what coordinators write thousands of times a second
            lengths = _SMALL[len(key)], _SMALL[len(value)]
            body = b"".join(
                (b"\0", _SMALL[timestamp_delta], _SMALL[offset_delta], lengths[0], key, lengths[1], value, b"\0")
            )
            payload += _SMALL[len(body)] + body
            return
        except IndexError:
            pass
    parts = [
        b"\x00",
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        *((_NULL,) if key is None else (encode_varint(len(key)), key)),
        *((_NULL,) if value is None else (encode_varint(len(value)), value)),
        encode_varint(len(headers)),
    ]
    for name, content in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (encode_varint(len(content)), content)
    body = b"".join(parts)
    payload += encode_varint(len(body))
    payload += body


def small_varints(start: int, stop: int) -> tuple[bytes, ...]:
    """Those of all numbers from `start` to `stop`, which is at most SMALL_VARINTS."""
    return _SMALL[start:stop]


def encode_varint(value: int) -> bytes:
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    return _encode_zigzag(value << 1 if value >= 0 else (-value << 1) - 1)


def _encode_zigzag(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


SMALL_VARINTS: Final = 2048
"""Numbers below it, as varints, are at hand: in one byte up to `ONE_BYTE_VARINTS`, in two behind it."""
ONE_BYTE_VARINTS: Final = 64
_SMALL: Final = tuple(_encode_zigzag(value << 1) for value in range(SMALL_VARINTS))
_NULL: Final = _encode_zigzag(1)


def read_varint(data: bytes, p: int) -> tuple[int, int]:
    """The zigzag bits as they stand, and the position after them."""
    n = data[p]
    if n < 128:
        return n, p + 1
    m = data[p + 1]
    if m < 128:
        return n & 127 | m << 7, p + 2
    n = n & 127 | (m & 127) << 7
    p += 2
    for shift in range(14, 63, 7):
        m = data[p]
        p += 1
        n |= (m & 127) << shift
        if m < 128:
            return n, p
    # Ten bytes could be written, but only for numbers no record has; nine keep base plus delta an i64.
    raise CorruptMessage("a varint is longer than nine bytes")


def _headers(data: bytes, p: int) -> tuple[Headers, int]:
    n, p = read_varint(data, p)
    if n & 1 or n >> 1 > len(data) - p:
        raise CorruptMessage("a record's header count does not fit it")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(n >> 1):
        n, p = read_varint(data, p)
        if n & 1:
            raise CorruptMessage("a header has no key")
        # Clients treat header keys as text; bytes that are none must not make the record unreadable.
        name = data[p : p + (n >> 1)].decode(errors="replace")
        p += n >> 1
        n, p = read_varint(data, p)
        if n & 1:
            headers.append((name, None))
        else:
            headers.append((name, data[p : p + (n >> 1)]))
            p += n >> 1
    return tuple(headers), p
