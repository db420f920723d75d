"""The records every producer writes and every consumer must read back, byte for byte."""

from dataclasses import dataclass

BASE_TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Record):
    offset: int


_SHAPES = (
    Record(key=b"key", value=b"value"),
    Record(key=None, value=b"no key"),
    Record(key=b"tombstone", value=None),
    Record(key=b"empty value", value=b""),
    Record(key=b"", value=b"empty key"),
    Record(key=None, value=None),
    Record(key=b"headers", value=b"h", headers=(("a", b"1"), ("empty", b""), ("a", b"2"), ("bin", b"\xff\x80\x01"))),
    Record(key=b"null header", value=b"h", headers=(("null", None), ("naïve", "café".encode()))),
    Record(key=b"\xff\x00\x7f", value=bytes(range(256))),
    Record(key="schlüssel".encode(), value="日本 🚢\n\r\n".encode()),
    Record(key=b"compressible", value=b"ebb and flow " * 6000),
    *(Record(key=b"key-%d" % i, value=b"value-%d" % i * (i % 7)) for i in range(60)),
)

# Timestamps step back now and then, as those of many producers merged into one partition do.
RECORDS = tuple(
    Record(key=r.key, value=r.value, headers=r.headers, timestamp_ms=BASE_TIME_MS + i * 1000 - (i % 3) * 2500)
    for i, r in enumerate(_SHAPES)
)
