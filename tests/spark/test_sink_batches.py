"""Rows to record batches: what the kernels write is read back by the slow decoder, and lies where Java would put it."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.partitioning import partition_for
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.sink.batches import Batch, BatchMaker, chunks
from tidelog.spark.sink.columns import InvalidRow, open_rows
from tidelog.spark.sink.schema import check_schema
from tidelog.wire.record_batch import TRANSACTIONAL, crc_of, iter_records, read_header

PARTITIONS = {"a": 3, "b": 1, "c": 7}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
row = st.tuples(
    st.sampled_from(sorted(PARTITIONS)),
    blobs,
    blobs,
    headers,
    st.none() | st.just(0),
    st.none() | st.integers(min_value=0, max_value=2 * NOW),
)


def maker(batch_bytes: int = 600, bytes_max: int = 1 << 20, codec: int = 0, topic: str | None = None) -> BatchMaker:
    return BatchMaker(
        producer_id=7,
        producer_epoch=2,
        transactional=True,
        codec=codec,
        batch_bytes=batch_bytes,
        bytes_max=bytes_max,
        topic=topic,
        partitions_of=lambda name: PARTITIONS[name],
        turn=5,
    )


def frame(rows: list[tuple]) -> pa.RecordBatch:
    topics, keys, values, lists, partitions, times = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "topic": pa.array(topics, pa.string()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(
                [None if each is None else [{"key": k, "value": v} for k, v in each] for each in lists], HEADERS
            ),
            "partition": pa.array(partitions, pa.int32()),
            "timestamp": pa.array([None if each is None else each * 1000 for each in times], pa.timestamp("us", "UTC")),
        }
    )


def read(batches: list[Batch]) -> dict[tuple[str, int], list[tuple]]:
    """What each partition would hold; every batch is looked at as a broker would."""
    found: dict[tuple[str, int], list[tuple]] = {}
    for batch in batches:
        header = read_header(batch.data)
        records = list(iter_records(batch.data))
        held = found.setdefault(batch.partition, [])
        assert header.crc == crc_of(batch.data)
        assert (header.producer_id, header.producer_epoch) == (7, 2)
        assert header.attributes & TRANSACTIONAL
        assert header.base_sequence == batch.sequence == len(held)
        assert len(records) == header.records_count == batch.rows == header.last_offset_delta + 1
        assert header.max_timestamp == max(record.timestamp for record in records)
        held += [(r.key, r.value, r.headers, r.timestamp) for r in records]
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(row, min_size=1, max_size=60), st.integers(min_value=1, max_value=60), st.sampled_from([0, 1, 3, 4]))
def test_every_row_is_a_record_of_its_partition_in_its_order(rows: list[tuple], cut: int, codec: int) -> None:
    whole = frame(rows)
    made = maker(codec=codec)
    batches: list[Batch] = []
    for start in range(0, len(rows), cut):  # slices: arrays that do not begin at 0
        batches += made.make(open_rows([whole.slice(start, cut)], None, NOW))
    expected: dict[tuple[str, int], list[tuple]] = {}
    for number, (topic, key, value, lists, partition, time) in enumerate(rows):
        count = PARTITIONS[topic]
        turn = (5 + number // cut) % count
        at = partition if partition is not None else partition_for(key, count) if key is not None else turn
        record = key, value, tuple((k, v) for k, v in lists or ()), NOW if time is None else time
        expected.setdefault((topic, at), []).append(record)
    assert read(batches) == expected


def test_batches_are_filled_to_their_size_and_no_further() -> None:
    rows = frame([("b", b"k", b"v" * 90, None, None, 1)] * 100)
    batches = list(maker(batch_bytes=1000).make(open_rows([rows], None, NOW)))
    assert all(len(batch.data) <= 1000 for batch in batches)
    assert all(len(batch.data) > 850 for batch in batches[:-1])
    assert sum(batch.rows for batch in batches) == 100


def test_a_record_bigger_than_a_batch_goes_alone_and_one_bigger_than_a_request_is_refused() -> None:
    rows = frame([("b", None, b"v" * size, None, None, 1) for size in (10, 5000, 10)])
    assert [batch.rows for batch in maker().make(open_rows([rows], None, NOW))] == [1, 1, 1]
    with pytest.raises(
        InvalidRow, match=r"a record for b-0 takes \d+ bytes, more than kafka.max.request.size \(4000\)"
    ):
        list(maker(bytes_max=4000).make(open_rows([rows], None, NOW)))


def test_the_topic_option_overrides_the_column_and_a_null_topic_is_named() -> None:
    rows = frame([("a", b"k", b"v", None, None, 1)])
    (batch,) = maker(topic="c").make(open_rows([rows], "c", NOW))
    assert batch.partition.topic == "c"
    rows = rows.set_column(0, "topic", pa.array([None], pa.string()))
    with pytest.raises(InvalidRow, match="null topic present in the data"):
        open_rows([rows], None, NOW)


def test_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    for wrong in (3, -2):
        rows = frame([("a", b"k", b"v", None, 2, 1), ("a", b"k", b"v", None, wrong, 1)])
        with pytest.raises(InvalidRow, match=f"partition {wrong} present in the data; topic a has partitions 0..2"):
            list(maker().make(open_rows([rows], None, NOW)))


def test_a_header_without_a_key_is_refused() -> None:
    rows = frame([("a", b"k", b"v", [(None, b"x")], None, 1)])
    with pytest.raises(InvalidRow, match="null header"):
        open_rows([rows], None, NOW)


def test_strings_are_written_as_utf8() -> None:
    rows = pa.record_batch({"key": ["schlüssel", None], "value": [None, "日本"]})
    (batch,) = maker(topic="b").make(open_rows([rows], "b", NOW))
    assert [(r.key, r.value) for r in iter_records(batch.data)] == [
        ("schlüssel".encode(), None),
        (None, "日本".encode()),
    ]


def test_sequences_go_on_at_zero_behind_the_highest() -> None:
    made = maker(topic="b")
    rows = open_rows([frame([("b", b"k", b"v", None, None, 1)] * 3)], "b", NOW)
    (first,) = made.make(rows)
    made._sequences[first.partition] = 2**31 - 2
    (last,) = made.make(rows)
    (after,) = made.make(rows)
    assert (last.sequence, last.last_sequence, after.sequence) == (2**31 - 2, 0, 1)


def test_small_arrow_batches_are_encoded_together_and_a_huge_one_in_pieces() -> None:
    small = pa.record_batch({"value": [b"x" * 100] * 1000})
    assert [len(held) for held in chunks(iter([small] * 100))] == [81, 19]
    huge = pa.record_batch({"value": [b"x" * 100_000] * 400})
    pieces = list(chunks(iter([huge])))
    assert sum(each.num_rows for held in pieces for each in held) == 400
    assert max(sum(each.nbytes for each in held) for held in pieces) < 20 << 20
    assert list(chunks(iter([small.slice(0, 0)]))) == []


HEADER_LIST = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"value": StringType()}, None, "topic option required when no 'topic' attribute is present"),
        ({"key": StringType()}, "t", "Required attribute 'value' not found"),
        ({"value": IntegerType()}, "t", "value attribute type must be a string or binary, not int"),
        ({"value": StringType(), "key": LongType()}, "t", "key attribute type must be a string or binary, not bigint"),
        ({"value": StringType(), "topic": BinaryType()}, None, "topic attribute type must be a string, not binary"),
        ({"value": StringType(), "partition": LongType()}, "t", "partition attribute type must be an integer"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, "t", "headers attribute type must be array"),
        ({"value": StringType(), "timestamp": LongType()}, "t", "timestamp attribute type must be a timestamp"),
        ({"value": StringType(), "amount": LongType()}, "t", "the tidelog sink has no column amount"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused_while_planning(
    columns: dict[str, DataType], topic: str | None, says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):
        check_schema(schema(**columns), topic)


def test_every_column_of_sparks_sink_is_taken() -> None:
    columns = {"key": BinaryType(), "value": StringType(), "topic": StringType(), "partition": IntegerType()}
    check_schema(schema(**columns, headers=HEADER_LIST, timestamp=TimestampType()), None)
