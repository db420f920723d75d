"""Whatever can be in a record survives: through our own codec, and to and from two independent implementations."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from tidelog.wire.compression import Codec
from tidelog.wire.record_batch import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    crc_of,
    iter_batches,
    iter_records,
    patch,
    read_header,
)

NAMES = st.text(max_size=12)
BYTES = st.none() | st.binary(max_size=300)
BODIES = st.tuples(
    st.integers(0, 1 << 45), BYTES, BYTES, st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=80)), max_size=3)
)
BATCHES = st.lists(BODIES, min_size=1, max_size=12).map(
    lambda bodies: [
        Record(index, timestamp, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(bodies)
    ]
)
PEERS = [
    pytest.param(AiokafkaBuilder, AiokafkaBatch, set(Codec), id="aiokafka"),
    # Without the zstandard package kafka-python has no zstd.
    pytest.param(KafkaPythonBuilder, KafkaPythonBatch, set(Codec) - {Codec.ZSTD}, id="kafka-python"),
]


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.sampled_from(Codec), st.integers(0, 1 << 50))
def test_records_survive_building_and_reading(records: list[Record], codec: Codec, base_offset: int) -> None:
    placed = [record._replace(offset=record.offset + base_offset) for record in records]
    batch = build_batch(placed, base_offset=base_offset, codec=codec, leader_epoch=3)
    header = read_header(batch)
    assert list(iter_records(batch)) == placed
    assert header.crc == crc_of(batch)
    assert (header.size, header.codec, header.last_offset) == (len(batch), codec, placed[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.sampled_from(Codec), st.sets(st.integers(0, 11), min_size=1))
def test_gaps_left_by_compaction_keep_their_offsets(records: list[Record], codec: Codec, kept: set[int]) -> None:
    some = [record for record in records if record.offset in kept] or records
    assert list(iter_records(build_batch(some, codec=codec))) == some


@pytest.mark.parametrize(("builder", "_reader", "codecs"), PEERS)
@settings(max_examples=30, deadline=None)
@given(records=BATCHES, codec=st.sampled_from(Codec))
def test_batches_of_other_clients_are_read(
    builder: Callable[..., Any], _reader: object, codecs: set[Codec], records: list[Record], codec: Codec
) -> None:
    codec = codec if codec in codecs else Codec.GZIP
    built = builder(2, codec, 1, 77, 4, 1000, 1 << 20)
    for record in records:
        assert built.append(record.offset, record.timestamp, record.key, record.value, list(record.headers)) is not None
    batch = bytes(built.build())
    header = read_header(batch)
    assert list(iter_records(batch)) == records
    assert header.crc == crc_of(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 4, 1000)
    assert header.attributes & TRANSACTIONAL


@pytest.mark.parametrize(("_builder", "reader", "codecs"), PEERS)
@settings(max_examples=30, deadline=None)
@given(records=BATCHES, codec=st.sampled_from(Codec))
def test_other_clients_read_our_batches(
    _builder: object, reader: Callable[..., Any], codecs: set[Codec], records: list[Record], codec: Codec
) -> None:
    codec = codec if codec in codecs else Codec.LZ4
    theirs = reader(build_batch(records, codec=codec, producer_id=9, producer_epoch=1, base_sequence=0))
    assert theirs.validate_crc()
    assert theirs.producer_id == 9
    read = [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((name, content) for name, content in r.headers))
        for r in theirs
    ]
    assert read == records


@settings(max_examples=30, deadline=None)
@given(BATCHES, st.sampled_from(Codec), st.integers(0, 1 << 50), st.integers(0, 1 << 30), st.integers(0, 1 << 45))
def test_what_a_leader_assigns_is_patched_in_place(
    records: list[Record], codec: Codec, offset: int, epoch: int, append_time_ms: int
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    untouched = bytes(batch[17:])
    patch(batch, base_offset=offset, leader_epoch=epoch)
    assert batch[17:] == untouched
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (offset, epoch)
    patch(batch, append_time_ms=append_time_ms)
    assert crc_of(batch) == read_header(batch).crc
    assert read_header(batch).attributes & LOG_APPEND_TIME
    assert {record.timestamp for record in iter_records(batch)} == {append_time_ms}


@settings(max_examples=30, deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=4), st.data())
def test_a_buffer_yields_its_whole_batches_and_drops_a_partial_one(
    runs: list[list[Record]], data: st.DataObject
) -> None:
    batches = [build_batch(records) for records in runs]
    stream = b"".join(batches)
    cut = data.draw(st.integers(0, len(stream)))
    whole = [bytes(batch) for _, batch in iter_batches(stream[:cut])]
    assert whole == batches[: len(whole)]
    assert sum(map(len, whole)) <= cut < sum(map(len, batches[: len(whole) + 1])) or len(whole) == len(batches)
