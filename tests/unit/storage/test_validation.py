"""A table of bad batches and the error each gets, and the deep check with its recompression."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import TopicConfig
from tidelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompression,
)
from tidelog.storage.validation import check_batch, needs_preparation, prepare_batch
from tidelog.wire.compression import CODEC_NAMES, Codec
from tidelog.wire.record_batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    iter_records,
    pack_batch,
    read_header,
)

NOW = 1_700_000_000_000
DAY = 86_400_000
TOPIC = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))
RECORDS = [Record(0, NOW, b"k", b"v" * 50), Record(1, NOW + 5, b"l", None)]
GOOD = build_batch(RECORDS)


def forged(batch: bytes = GOOD, /, **fields: int) -> bytes:
    """`batch` with header fields changed and a checksum that is right for them."""
    return pack_batch(read_header(batch)._replace(**fields), batch[HEADER_SIZE:])


def stored(timestamp: int) -> bytes:
    return build_batch([Record(0, timestamp, b"k", b"v")])


def with_bytes(position: int, data: bytes) -> bytes:
    return GOOD[:position] + data + GOOD[position + len(data) :]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_a_good_batch_passes_and_its_header_comes_back(codec: Codec, buffer: type) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    assert check_batch(buffer(batch), TOPIC, NOW) == read_header(batch)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(b"", InvalidRecord, id="nothing"),
        pytest.param(GOOD[:10], InvalidRecord, id="less than a length"),
        pytest.param(GOOD[:40], InvalidRecord, id="less than a header"),
        pytest.param(GOOD[:-1], InvalidRecord, id="last byte missing"),
        pytest.param(GOOD + b"\x00", InvalidRecord, id="a byte too many"),
        pytest.param(GOOD + GOOD, InvalidRecord, id="two batches"),
        pytest.param(with_bytes(8, b"\x00\x00\x00\x05")[:40], CorruptMessage, id="short, senseless length"),
        pytest.param(with_bytes(8, b"\xff\xff\xff\xff"), CorruptMessage, id="negative length"),
        pytest.param(with_bytes(8, b"\x00\x00\x00\x14"), CorruptMessage, id="length less than a header"),
        pytest.param(with_bytes(8, b"\x7f\xff\xff\xff"), InvalidRecord, id="length beyond what came"),
        pytest.param(with_bytes(16, b"\x00"), InvalidRecord, id="magic 0"),
        pytest.param(with_bytes(16, b"\x01"), InvalidRecord, id="magic 1"),
        pytest.param(with_bytes(16, b"\x03"), CorruptMessage, id="magic 3"),
        pytest.param(with_bytes(16, b"\xff"), CorruptMessage, id="magic -1"),
        pytest.param(with_bytes(17, b"\x00\x00\x00\x00"), CorruptMessage, id="checksum"),
        pytest.param(with_bytes(len(GOOD) - 1, b"\xaa"), CorruptMessage, id="flipped record byte"),
        pytest.param(forged(base_offset=1), InvalidRecord, id="base offset"),
        pytest.param(forged(records_count=0, last_offset_delta=-1), InvalidRecord, id="no records"),
        pytest.param(forged(records_count=-1), InvalidRecord, id="negative count"),
        pytest.param(forged(records_count=1), InvalidRecord, id="count less than offsets"),
        pytest.param(forged(last_offset_delta=0), InvalidRecord, id="offsets less than count"),
        pytest.param(forged(records_count=1000, last_offset_delta=999), InvalidRecord, id="count beyond the bytes"),
        pytest.param(forged(attributes=5), UnsupportedCompression, id="codec 5"),
        pytest.param(forged(attributes=7), UnsupportedCompression, id="codec 7"),
        pytest.param(forged(attributes=CONTROL), InvalidRecord, id="control batch"),
        pytest.param(forged(attributes=TRANSACTIONAL), InvalidRecord, id="transactional without producer"),
        pytest.param(forged(attributes=LOG_APPEND_TIME), InvalidTimestamp, id="log append time from a client"),
        pytest.param(forged(producer_id=1, producer_epoch=0), InvalidRecord, id="no sequence"),
        pytest.param(forged(producer_id=1, base_sequence=0), InvalidRecord, id="no epoch"),
        pytest.param(stored(NOW + 3_600_001), InvalidTimestamp, id="an hour ahead"),
    ],
)
def test_bad_batches_get_kafkas_error(batch: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(error) as refused:
        check_batch(bytearray(batch), TOPIC, NOW)
    assert type(refused.value) is error


def test_timestamps_are_bounded_both_ways_and_only_for_create_time() -> None:
    strict = TopicConfig(message_timestamp_before_max_ms=DAY, message_timestamp_after_max_ms=DAY)
    append_time = TopicConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=DAY)
    for timestamp in (NOW - DAY, NOW + DAY, -1):
        assert check_batch(stored(timestamp), strict, NOW)
    for timestamp in (NOW - DAY - 1, NOW + DAY + 1, 0):
        with pytest.raises(InvalidTimestamp):
            check_batch(stored(timestamp), strict, NOW)
        assert check_batch(stored(timestamp), append_time, NOW)
    assert check_batch(stored(NOW + 3_600_000), TOPIC, NOW)
    assert check_batch(stored(0), TOPIC, NOW)


def test_size_is_checked_before_the_checksum_as_in_kafka() -> None:
    assert check_batch(GOOD, TopicConfig(max_message_bytes=len(GOOD)), NOW)
    with pytest.raises(MessageTooLarge, match=str(len(GOOD))):
        check_batch(with_bytes(17, b"\x00\x00\x00\x00"), TopicConfig(max_message_bytes=len(GOOD) - 1), NOW)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) * 8 - 1))
def test_any_flipped_bit_that_the_broker_does_not_overwrite_is_refused(bit: int) -> None:
    batch = bytearray(GOOD)
    batch[bit // 8] ^= 1 << bit % 8
    if 12 <= bit // 8 < 16:  # the leader epoch, which the broker assigns itself
        assert check_batch(batch, TOPIC, NOW)
    else:
        with pytest.raises(KafkaError):
            check_batch(batch, TOPIC, NOW)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120))
def test_random_bytes_are_refused_with_a_kafka_error(data: bytes) -> None:
    with pytest.raises(KafkaError):
        check_batch(data, TOPIC, NOW)


@pytest.mark.parametrize(
    ("config", "codec", "needed"),
    [
        (TOPIC, Codec.ZSTD, False),
        (COMPACTED, Codec.NONE, True),
        (TopicConfig(compression_type="zstd"), Codec.ZSTD, False),
        (TopicConfig(compression_type="zstd"), Codec.GZIP, True),
        (TopicConfig(compression_type="uncompressed"), Codec.NONE, False),
        (TopicConfig(compression_type="uncompressed"), Codec.LZ4, True),
    ],
)
def test_only_some_topics_look_inside(config: TopicConfig, codec: Codec, needed: bool) -> None:
    assert needs_preparation(read_header(build_batch(RECORDS, codec=codec)), config) is needed


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_recompression_keeps_everything_but_the_codec(source: Codec, target: str) -> None:
    batch = build_batch(
        RECORDS, codec=source, producer_id=5, producer_epoch=2, base_sequence=9, attributes=TRANSACTIONAL
    )
    config = TopicConfig(compression_type=target)
    prepared = prepare_batch(memoryview(batch), config)
    header = check_batch(prepared, config, NOW)
    assert list(iter_records(prepared)) == RECORDS
    assert header.codec == (source if target == "producer" else CODEC_NAMES[target])
    assert not needs_preparation(header, config)
    kept = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**kept) == read_header(batch)._replace(**kept)
    assert header.attributes & TRANSACTIONAL


def test_the_right_codec_means_the_same_bytes() -> None:
    batch = build_batch(RECORDS, codec=Codec.ZSTD)
    assert prepare_batch(batch, TopicConfig(compression_type="zstd", cleanup_policy=frozenset({"compact"}))) == batch


@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_refuse_a_record_without_key(codec: Codec) -> None:
    keyless = build_batch([RECORDS[0], Record(1, NOW, None, b"v")], codec=codec)
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        prepare_batch(keyless, COMPACTED)
    assert prepare_batch(keyless, TOPIC) == keyless


def test_records_that_contradict_their_header_are_invalid_not_corrupt() -> None:
    gap = build_batch([Record(0, NOW, b"k", b"v"), Record(2, NOW, b"k", b"v")])
    for batch in (
        forged(gap, records_count=2),
        forged(records_count=1, last_offset_delta=0),
        pack_batch(read_header(GOOD), GOOD[HEADER_SIZE:-1]),
        forged(build_batch(RECORDS, codec=Codec.GZIP), attributes=Codec.ZSTD),
    ):
        with pytest.raises(InvalidRecord):
            prepare_batch(batch, COMPACTED)


@pytest.mark.parametrize("config", [TopicConfig(compression_type="zstd"), COMPACTED])
def test_preparation_never_seals_over_damage(config: TopicConfig) -> None:
    for position in range(17, len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptMessage, match="checksum"):
            prepare_batch(damaged, config)
    with pytest.raises(InvalidRecord):
        prepare_batch(GOOD[:30], config)
    with pytest.raises(MessageTooLarge):
        prepare_batch(GOOD, TopicConfig(compression_type="zstd", max_message_bytes=len(GOOD) - 1))


def test_what_grows_past_the_limits_is_refused() -> None:
    packed = build_batch([Record(0, NOW, b"k", bytes(100_000))], codec=Codec.ZSTD)
    small = TopicConfig(compression_type="uncompressed", max_message_bytes=10_000)
    assert check_batch(packed, small, NOW)
    with pytest.raises(MessageTooLarge):
        prepare_batch(packed, small)
    with pytest.raises(InvalidRecord, match="expands"):
        prepare_batch(packed, TopicConfig(compression_type="lz4"), 50_000)


def test_a_worker_process_can_be_sent_the_work() -> None:
    function, config = pickle.loads(pickle.dumps((prepare_batch, COMPACTED)))
    assert function(GOOD, config) == GOOD
