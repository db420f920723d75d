"""The batch format byte by byte, and what is refused."""

import pytest

from tidelog.errors import CorruptMessage
from tidelog.wire.record_batch import (
    CONTROL,
    HEADER_SIZE,
    Record,
    build_batch,
    build_pairs,
    crc_of,
    iter_batches,
    iter_records,
    pack_batch,
    payload_of,
    read_header,
)
from tidelog.wire.records import encode_varint, scan_records, shift_timestamp

RECORD = Record(7, 1_000, b"k", b"v", (("h", b"1"), ("n", None)))


def test_a_batch_is_laid_out_as_kafka_does() -> None:
    batch = build_batch(
        [RECORD, Record(8, 1_070, None, None)],
        base_offset=7,
        producer_id=42,
        producer_epoch=3,
        base_sequence=5,
        leader_epoch=9,
    )
    assert batch[HEADER_SIZE:].hex(" ", -1) == (
        "1e 00 00 00 02 6b 02 76 04 02 68 02 31 02 6e 01"  # length, attributes, deltas, key, value, two headers
        " 0e 00 8c 01 02 01 01 00"  # a timestamp delta of 70 takes two bytes; null key, null value
    )
    header = read_header(batch)
    assert header._replace(crc=0) == (7, len(batch) - 12, 9, 2, 0, 0, 1, 1_000, 1_070, 42, 3, 5, 2)
    assert header.crc == crc_of(batch)
    assert (header.last_offset, header.size, header.codec) == (8, len(batch), 0)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
     (2047, "fe1f"), (2048, "8020"), (1 << 31, "8080808010"), (-(1 << 40), "ffffffffff3f")],
)  # fmt: skip
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_an_emptied_batch_has_a_header_and_no_records() -> None:
    header = read_header(build_batch([RECORD], base_offset=7))
    empty = pack_batch(header._replace(records_count=0), b"")
    assert len(empty) == HEADER_SIZE
    assert list(iter_records(empty)) == []
    assert read_header(empty).last_offset == 7


def test_control_records_are_records_too() -> None:
    marker = build_batch([Record(0, 5, b"\x00\x00\x00\x01", b"\x00" * 6)], attributes=CONTROL)
    assert [record.key for record in iter_records(marker)] == [b"\x00\x00\x00\x01"]


def test_header_keys_that_are_no_text_do_not_hide_the_record() -> None:
    batch = build_batch([Record(0, 0, b"k", b"v", (("h", b""),))])
    odd = pack_batch(read_header(batch), batch[HEADER_SIZE:].replace(b"h", b"\xff"))
    assert [record.headers for record in iter_records(odd)] == [(("�", b""),)]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("0a 00 00 00 01 01 00", "fields that do not fill"),  # length one short
        ("10 00 00 00 01 01 00", "does not fit"),  # length one over the end
        ("0f 00 00 00 01 01 00", "does not fit"),  # negative length
        ("0e 00 00 02 01 01 00 00", "offset outside"),  # offset delta 1 in a batch of one
        ("0e 00 00 01 01 01 00 00", "offset outside"),  # offset delta -1
        ("0e 00 00 00 7e 01 00 00", "ends inside|fill"),  # key longer than the record
        ("0c 00 00 00 01 01 01", "header count"),  # header count -1
        ("0c 00 00 00 01 01 7e", "header count"),  # more headers than bytes
        ("10 00 00 00 01 01 02 01 01", "header has no key"),
        ("0c 00 00 00 01 01 00 00", "follow the batch's last record"),
        ("ff ff ff ff ff ff ff ff ff ff 01", "longer than nine bytes"),
        ("0c 00 ff ff ff ff ff", "ends inside"),
    ],
)
def test_malformed_records_say_what_is_wrong(payload: str, why: str) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    with pytest.raises(CorruptMessage, match=why):
        list(iter_records(pack_batch(header, bytes.fromhex(payload))))


@pytest.mark.parametrize("count", [-1, 2, 1 << 30])
def test_a_count_the_bytes_cannot_hold_is_refused_before_reading(count: int) -> None:
    batch = build_batch([Record(0, 0, None, None)])
    header = read_header(batch)._replace(records_count=count)
    with pytest.raises(CorruptMessage, match="cannot hold"):
        payload_of(header, batch)


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 3])
def test_less_than_a_batch_is_corrupt_as_one_batch_and_nothing_as_a_stream(size: int) -> None:
    batch = build_batch([RECORD], base_offset=7)[:size]
    with pytest.raises(CorruptMessage):
        iter_records(batch)
    assert list(iter_batches(batch)) == []


@pytest.mark.parametrize(("position", "byte", "why"), [(16, 1, "magic"), (8, 0xFF, "less than a header")])
def test_a_stream_with_a_senseless_header_is_corrupt(position: int, byte: int, why: str) -> None:
    stream = bytearray(build_batch([RECORD], base_offset=7) * 2)
    stream[len(stream) // 2 + position] = byte
    with pytest.raises(CorruptMessage, match=why):
        list(iter_batches(stream))


def test_timestamps_beyond_any_calendar_are_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="base timestamp"):
        list(iter_records(build_batch([Record(0, (1 << 63) - 1, None, None)])))


def test_scanning_finds_the_same_records_without_copying_values() -> None:
    records = [RECORD._replace(offset=0), Record(2, 900, None, b"x" * 500), Record(3, 2_000, b"z" * 99, None)]
    batch = build_batch(records)
    payload = batch[HEADER_SIZE:]
    spans = list(scan_records(payload, 3, 3))
    assert [span[2:] for span in spans] == [
        (0, 0, b"k", True),
        (2, -100, None, True),
        (3, 1_000, b"z" * 99, False),
    ]
    assert b"".join(payload[start:end] for start, end, *_ in spans) == payload


@pytest.mark.parametrize("shift", [0, 1, -1, 10_000, -10_000, 1 << 40])
def test_shifting_a_timestamp_changes_nothing_else(shift: int) -> None:
    records = [Record(0, 1_000, b"k", b"v", (("h", None),)), Record(1, 5_000, None, b"x" * 300)]
    batch = build_batch(records)
    payload = batch[HEADER_SIZE:]
    shifted = b"".join(shift_timestamp(payload, start, end, shift) for start, end, *_ in scan_records(payload, 2, 1))
    read = list(iter_records(pack_batch(read_header(batch), shifted)))
    assert read == [record._replace(timestamp=record.timestamp + shift) for record in records]


@pytest.mark.parametrize("sizes", [(1, 0), (10, 30), (2047, 2047), (2048, 5), (70_000, 3)])
def test_pairs_make_the_same_batch_as_records(sizes: tuple[int, int]) -> None:
    key, value = b"k" * sizes[0], b"v" * sizes[1]
    pairs = [(key, value), (key, None), (b"other", value)] * 100
    records = [Record(offset, 1234, *pair) for offset, pair in enumerate(pairs)]
    assert build_pairs(pairs, 1234) == build_batch(records)
