"""Columns of record batches against the slow reader of `tidelog.wire`, which is easy to believe."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tidelog.client.fetcher import Fetched
from tidelog.errors import CorruptMessage
from tidelog.spark.columns.batches import PORTION_BYTES, Unreadable
from tidelog.spark.columns.build import ROWS_MAX, TYPES, ColumnBuilder
from tidelog.wire.compression import Codec
from tidelog.wire.control import Marker, build_marker
from tidelog.wire.messages.data import AbortedTransaction
from tidelog.wire.record_batch import TRANSACTIONAL, Record, build_batch, pack_batch, patch, read_header

NOW = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIXED = [
    Record(0, NOW, b"key", b"value", (("name", b"content"), ("null", None))),
    Record(1, NOW - 5, None, None),
    Record(2, NOW + 90_000, b"", b"", (("", b""),)),
    Record(7, NOW, b"k" * 200, b"v" * 20_000),
    Record(9, -1, b"a", "ü".encode()),
]


def read(batches: bytes, columns=tuple(TYPES), *, first=0, until=1 << 40, aborted=(), read_committed=False):
    builder = ColumnBuilder(columns, topic="orders", partition=3, read_committed=read_committed)
    found = list(builder.read(Fetched.of(batches, tuple(aborted)), first, until))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == builder.schema
    return [row for batch in found for row in batch.to_pylist()]


def expected(record: Record, kind: int = 0) -> dict:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": kind,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


@pytest.mark.parametrize("codec", Codec)
def test_every_column_with_every_codec(codec):
    assert read(build_batch(MIXED, codec=codec)) == [expected(record) for record in MIXED]


def test_batches_of_several_codecs_and_timestamp_types_in_one_answer():
    parts, rows = [], []
    for turn, codec in enumerate((0, 4, 0, 3, 0, 0)):
        records = [Record(turn * 10 + i, NOW + i, b"%d" % i, b"x" * i) for i in range(5)]
        append_time = NOW + 99 if turn % 2 else None
        parts.append(build_batch(records, base_offset=turn * 10, codec=codec, append_time_ms=append_time))
        rows += [
            expected(record._replace(timestamp=append_time) if append_time else record, int(bool(append_time)))
            for record in records
        ]
    assert read(b"".join(parts)) == rows


def test_only_the_columns_asked_for_in_their_order():
    rows = read(build_batch(MIXED), ("offset", "key"))
    assert rows == [{"offset": record.offset, "key": record.key} for record in MIXED]
    assert list(rows[0]) == ["offset", "key"]


def test_a_schema_without_columns_still_counts():
    builder = ColumnBuilder((), topic="t", partition=0)
    assert sum(b.num_rows for b in builder.read(Fetched.of(build_batch(MIXED)), 0, 100)) == len(MIXED)


def test_an_unknown_column_is_refused():
    with pytest.raises(ValueError, match="no such column: nonsense"):
        ColumnBuilder(("nonsense",), topic="t", partition=0)


@pytest.mark.parametrize(
    ("first", "until", "offsets"), [(0, 100, [0, 1, 2, 7, 9]), (2, 8, [2, 7]), (3, 7, []), (9, 9, [])]
)
def test_a_slice_cuts_inside_batches(first, until, offsets):
    assert [row["offset"] for row in read(build_batch(MIXED), first=first, until=until)] == offsets


def test_many_rows_come_in_bounded_batches():
    count = 2 * ROWS_MAX + 10
    batch = build_batch(Record(i, NOW, None, None) for i in range(count))
    builder = ColumnBuilder(("offset", "topic"), topic="t", partition=0)
    found = list(builder.read(Fetched.of(batch), 0, count))
    assert [b.num_rows for b in found] == [ROWS_MAX, ROWS_MAX, 10]
    assert found[-1].to_pylist()[-1] == {"offset": count - 1, "topic": "t"}


def test_big_answers_are_worked_on_in_portions():
    batches = [build_batch([Record(i, NOW, None, bytes(PORTION_BYTES // 3))], base_offset=i) for i in range(8)]
    builder = ColumnBuilder(("offset", "value"), topic="t", partition=0)
    found = list(builder.read(Fetched.of(b"".join(batches)), 0, 100))
    assert len(found) > 2
    assert [row["offset"] for b in found for row in b.to_pylist()] == list(range(8))


def test_a_batch_that_unpacks_to_much_comes_in_pieces():
    records = [Record(i, NOW, b"k%d" % i, bytes(PORTION_BYTES // 2)) for i in range(16)]
    builder = ColumnBuilder(("offset", "key", "value"), topic="t", partition=0)
    found = list(builder.read(Fetched.of(build_batch(records, codec=Codec.ZSTD)), 0, 100))
    assert max(batch.nbytes for batch in found) < 2 * PORTION_BYTES
    assert [(row["offset"], row["key"]) for b in found for row in b.to_pylist()] == [(r.offset, r.key) for r in records]


def test_a_compacted_batch_without_records_is_nothing():
    header = read_header(build_batch(MIXED))._replace(records_count=0)
    assert read(pack_batch(header, b"") + build_batch([Record(10, NOW, b"k", b"v")], base_offset=10))[0]["offset"] == 10


def test_header_keys_that_are_no_text_stay_readable():
    batch = bytearray(build_batch([Record(0, NOW, b"k", b"v", (("ab", b"1"), ("cd", b"2")))]))
    batch[batch.index(b"ab")] = 0xFF
    header = read_header(batch)
    rows = read(pack_batch(header, bytes(batch[61:])))
    assert rows[0]["headers"] == [{"key": "\ufffdb", "value": b"1"}, {"key": "cd", "value": b"2"}]


def test_timestamps_beyond_what_spark_can_hold_become_its_limit():
    builder = ColumnBuilder(("timestamp",), topic="t", partition=0)
    records = [Record(0, 1 << 61, None, None), Record(1, -(1 << 61), None, None)]
    (batch,) = builder.read(Fetched.of(b"".join(build_batch([r], base_offset=r.offset) for r in records)), 0, 10)
    micros = batch.column(0).cast(pa.int64()).to_pylist()
    assert micros[0] > 2**62
    assert micros[1] < -(2**62)


# --- transactions -----------------------------------------------------------------------------------------------------


def data(offset: int, producer_id: int, count: int = 2) -> bytes:
    records = [Record(offset + i, NOW, None, b"%d" % producer_id) for i in range(count)]
    return build_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )


def marker(offset: int, producer_id: int, committed: bool) -> bytes:
    batch = build_marker(Marker(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW)
    patch(batch, base_offset=offset)
    return bytes(batch)


TRANSACTIONS = b"".join(
    (
        data(0, 1), data(2, 2), build_batch([Record(4, NOW, None, b"plain")], base_offset=4), data(5, 1),
        marker(7, 1, False), data(8, 1), marker(10, 2, True), marker(11, 1, True), data(12, 2), marker(14, 2, False),
    )
)  # fmt: skip
ABORTED = (AbortedTransaction(producer_id=2, first_offset=12), AbortedTransaction(producer_id=1, first_offset=0))


def test_aborted_transactions_are_hidden_from_read_committed():
    rows = read(TRANSACTIONS, ("offset",), aborted=ABORTED, read_committed=True)
    assert [row["offset"] for row in rows] == [2, 3, 4, 8, 9]


def test_markers_are_never_shown():
    rows = read(TRANSACTIONS, ("offset",), aborted=ABORTED)
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 13]


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_named_with_its_place():
    broken = bytearray(build_batch([r._replace(offset=r.offset + 40) for r in MIXED], base_offset=40))
    broken[-3] ^= 1
    with pytest.raises(Unreadable, match=r"topic orders, partition 3: the batch at offset 40 is corrupt: its checksum"):
        read(bytes(broken))


def test_records_that_do_not_fit_are_named_with_the_reason():
    good = build_batch(MIXED)
    with pytest.raises(Unreadable, match=r"offset 0 is corrupt: .*follow the batch's last record"):
        read(pack_batch(read_header(good), good[61:] + b"\0"))
    with pytest.raises(Unreadable, match="cannot hold 5000000 records"):
        read(pack_batch(read_header(good)._replace(records_count=5_000_000), good[61:]))
    with pytest.raises(Unreadable, match="base timestamp"):
        read(pack_batch(read_header(good)._replace(base_timestamp=1 << 62), good[61:]))


@pytest.mark.parametrize("change", [{"last_offset_delta": -1}, {"base_offset": 4}])
def test_batches_whose_offsets_go_back_are_refused(change):
    first, second = build_batch(MIXED), build_batch([Record(10, NOW, b"k", b"v")], base_offset=10)
    with pytest.raises(CorruptMessage, match="follows offset 9"):
        Fetched.of(first + pack_batch(read_header(second)._replace(**change), second[61:]))


def test_a_corrupt_batch_is_not_skipped_by_what_it_says_of_itself():
    broken = bytearray(build_batch(MIXED))
    broken[26] = 1  # last_offset_delta: all of it would lie before the slice
    with pytest.raises(Unreadable, match="checksum"):
        read(bytes(broken), first=5)


def test_an_unknown_codec_is_named():
    header = read_header(build_batch(MIXED))._replace(attributes=7)
    with pytest.raises(Unreadable, match="unknown compression codec 7"):
        read(pack_batch(header, b"whatever" * 10))
