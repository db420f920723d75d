"""Bytes from anywhere end as records or as CorruptMessage: no other error, no endless loop, no absurd allocation."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage, InvalidRecord, KafkaError
from tidelog.storage.validation import prepare_batch
from tidelog.wire.compression import Codec, compress, decompress
from tidelog.wire.record_batch import Record, build_batch, iter_batches, iter_records, pack_batch, read_header
from tidelog.wire.records import decode_records, scan_records

LIMIT = 1 << 20
SAMPLE = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 40, (("name", b"content"), ("null", None))),
    Record(1, 1_700_000_000_900, None, None),
    Record(2, 1_600_000_000_000, b"", b"", (("", b""),)),
    Record(3, 1_700_000_000_000, b"k" * 200, b"v" * 20_000),
]
EDITS = st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 255)), min_size=1, max_size=4)


def edited(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, byte in edits:
        changed[position % len(changed)] = byte
    return bytes(changed)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(-1, 50), st.integers(-1, 1 << 31))
def test_random_payloads(data: bytes, count: int, last: int) -> None:
    with suppress(CorruptMessage):
        for record in decode_records(
            data, count, base_offset=5, last_offset_delta=last, base_timestamp=0, append_time_ms=None
        ):
            assert 5 <= record.offset <= 5 + last
            assert -(1 << 63) <= record.timestamp < 1 << 63
    with suppress(CorruptMessage):
        for start, end, delta, *_ in scan_records(data, count, last):
            assert 0 <= start < end <= len(data)
            assert 0 <= delta <= last


@settings(max_examples=300, deadline=None)
@given(EDITS)
def test_edited_records_under_a_checksum_that_still_holds(edits: list[tuple[int, int]]) -> None:
    batch = build_batch(SAMPLE)
    forged = pack_batch(read_header(batch), edited(batch[61:], edits))
    with suppress(CorruptMessage):
        assert len(list(iter_records(forged))) == len(SAMPLE)
    with suppress(InvalidRecord):
        assert prepare_batch(forged, TopicConfig(cleanup_policy=frozenset({"delete"}))) == forged


@settings(max_examples=200, deadline=None)
@given(EDITS, st.sampled_from(Codec))
def test_edited_batches(edits: list[tuple[int, int]], codec: Codec) -> None:
    broken = edited(build_batch(SAMPLE, codec=codec), edits)
    with suppress(CorruptMessage):
        list(iter_records(broken, LIMIT))
    with suppress(CorruptMessage):
        list(iter_batches(broken))
    with suppress(KafkaError):
        prepare_batch(broken, TopicConfig(compression_type="lz4"), LIMIT)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(Codec), st.binary(max_size=2000), EDITS)
def test_edited_compressed_data_is_corrupt_or_bounded(codec: Codec, data: bytes, edits: list[tuple[int, int]]) -> None:
    with suppress(CorruptMessage):
        assert len(decompress(codec, edited(compress(codec, data) or b"x", edits), LIMIT)) <= LIMIT


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(Codec), st.binary(max_size=300))
def test_random_bytes_as_compressed_data(codec: Codec, data: bytes) -> None:
    for magic in (
        b"",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01",
        b"\x28\xb5\x2f\xfd",
        b"\x04\x22\x4d\x18",
        b"\x1f\x8b\x08\x00",
    ):
        with suppress(CorruptMessage):
            assert len(decompress(codec, magic + data, LIMIT)) <= LIMIT
