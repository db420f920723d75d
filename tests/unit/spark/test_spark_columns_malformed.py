"""Bytes from anywhere: the compiled walk accepts and refuses exactly what the slow reader does, and stays in bounds."""

import random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelog.client.fetcher import Fetched
from tidelog.errors import CorruptMessage
from tidelog.spark.columns import kernel
from tidelog.spark.columns.build import TYPES, ColumnBuilder
from tidelog.wire.compression import Codec
from tidelog.wire.record_batch import Record, build_batch, iter_records, pack_batch, read_header
from tidelog.wire.records import decode_records

SAMPLE = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 9, (("name", b"content"), ("null", None))),
    Record(1, 1_700_000_000_900, None, None),
    Record(2, 1_600_000_000_000, b"", b"", (("", b""),)),
    Record(3, 1_700_000_000_000, b"k" * 70, b"v" * 300),
]
EDITS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=5)
BUILDER = ColumnBuilder(tuple(TYPES), topic="t", partition=0)
GUARD = 0xAB


def slow(batch: bytes) -> list[Record] | None:
    try:
        return list(iter_records(batch))
    except CorruptMessage:
        return None


def fast(batch: bytes) -> list[tuple] | None:
    try:
        found = list(BUILDER.read(Fetched.of(batch), -(1 << 62), 1 << 62))
    except CorruptMessage:
        return None
    for made in found:
        made.validate(full=True)
    columns = ("offset", "key", "value", "headers")
    return [tuple(row[name] for name in columns) for made in found for row in made.select(columns).to_pylist()]


def same(batch: bytes) -> None:
    told = slow(batch)
    plain = None if told is None else [
        (r.offset, r.key, r.value, [{"key": k, "value": v} for k, v in r.headers] or None) for r in told
    ]  # fmt: skip
    assert fast(batch) == plain


def edited(payload: bytes, edits: list[tuple[int, int]]) -> bytes:
    changed = bytearray(payload)
    for position, byte in edits:
        changed[position % len(changed)] = byte
    return bytes(changed)


@settings(max_examples=400, deadline=None)
@given(EDITS)
@example([(0, 255), (1, 255), (2, 255)])
def test_edited_records_under_a_checksum_that_holds(edits):
    batch = build_batch(SAMPLE)
    same(pack_batch(read_header(batch), edited(batch[61:], edits)))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 600), st.integers(-2, 6), st.integers(0, 9))
def test_cut_or_padded_records_and_other_counts(size, count, last_delta):
    batch = build_batch(SAMPLE)
    header = read_header(batch)._replace(records_count=len(SAMPLE) + count, last_offset_delta=last_delta)
    payload = (batch[61:] + bytes(200))[:size]
    if header.records_count:  # a batch without records is stepped over, whatever lies in it
        same(pack_batch(header, payload))


@settings(max_examples=150, deadline=None)
@given(EDITS, st.sampled_from([codec for codec in Codec if codec]))
def test_edited_compressed_records(edits, codec):
    batch = build_batch(SAMPLE, codec=codec)
    same(pack_batch(read_header(batch), edited(batch[61:], edits)))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=120), st.integers(0, 20), st.integers(-1, 1 << 31), st.integers(0, 1 << 30))
def test_random_payloads_never_lead_outside(data, count, last_delta, seed):
    """The walk is given the middle of a buffer and an array with guards around the part it may fill."""
    around = random.Random(seed).randbytes(64)
    buffer = np.frombuffer(around + data + around, np.uint8)
    table = np.array([[len(around), len(data), count, 5, last_delta, 0, 0, 0]], np.int64)
    room = np.full((count + 4, kernel.NOTES_WIDTH), GUARD, np.int64)
    notes = room[2 : 2 + count]
    rows, broken = kernel.walk(buffer, table, 0, 1 << 62, notes)
    assert (room[:2] == GUARD).all()
    assert (room[2 + count :] == GUARD).all()
    try:
        told = list(
            decode_records(
                data, count, base_offset=5, last_offset_delta=last_delta, base_timestamp=0, append_time_ms=None
            )
        )
    except CorruptMessage:
        assert broken == 0
        return
    assert (rows, broken) == (count, -1)
    for note, record in zip(notes, told, strict=True):
        for place, part in ((kernel.KEY_AT, record.key), (kernel.VALUE_AT, record.value)):
            at, length = int(note[place]), int(note[place + 1])
            assert length == (-1 if part is None else len(part))
            assert part is None or buffer[at : at + length].tobytes() == part


def test_kernels_refuse_buffers_that_do_not_fit():
    data = np.frombuffer(b"0123456789", np.uint8)
    notes = np.array([[0, 0, 4, 8, 0, -1, 0, 0]], np.int64)  # a key of eight bytes at byte 4
    ends, into, valid = np.empty(2, np.int32), np.empty(8, np.uint8), np.empty(0, np.uint8)
    assert not kernel.gather(data, notes, 1, kernel.KEY_AT, ends, into, valid)
    notes[0, kernel.KEY_AT] = 1
    assert kernel.gather(data, notes, 1, kernel.KEY_AT, ends, into, valid)
    assert into.tobytes() == b"12345678"
    assert not kernel.gather(data, notes, 1, kernel.KEY_AT, ends, np.empty(7, np.uint8), valid)
    assert not kernel.gather(data, notes, 1, kernel.KEY_AT, np.empty(1, np.int32), into, valid)
    assert not kernel.gather(data, notes, 2, kernel.KEY_AT, np.empty(3, np.int32), into, valid)
    outside = np.array([[8, 5, 1, 0, 0, 0, 0, 0]], np.int64)
    assert kernel.walk(data, outside, 0, 10, np.empty((1, 8), np.int64)) == (0, 0)
    headers = np.array([[0, 0, 0, 0, 0, 0, 9, 3]], np.int64)
    assert not kernel.walk_headers(data, headers, 1, np.empty((3, 4), np.int64))
    assert not kernel.walk_headers(data, headers, 1, np.empty((0, 4), np.int64))
