"""Produce as a client meets it: acks, refusals that store nothing, timestamps, recompression, limits."""

import struct

import cramjam
import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.compression import Codec
from tidelog.wire.messages.data import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.record_batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    build_batch,
    crc_of,
    iter_batches,
    pack_batch,
    read_header,
)
from tidelog.wire.records import Record

from . import kit

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_what_coordinators_write_to_is_closed_to_others(topic: str, policy: str) -> None:
    """One stray record, and after the next start no group of that partition would find its coordinator."""
    with Broker() as broker, kit.connect(broker) as connection:
        kit.create_topic(connection, topic, cleanup_policy=policy)
        refused = kit.produce(connection, topic, kit.batch_of(b"stray"))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert kit.read_all(connection, topic) == []


class TestAcks:
    def test_none_one_all(self, connection: Connection) -> None:
        kit.create_topic(connection, "acks")
        for acks in (0, 1, -1):
            answer = kit.produce(connection, "acks", kit.batch_of(b"%d" % acks), acks=acks)
            assert answer is None if acks == 0 else answer.error_code == 0
        kit.eventually(lambda: kit.offset_at(connection, "acks", kit.LATEST) == 3, "all are visible")
        assert kit.values(kit.read_all(connection, "acks")) == [b"0", b"1", b"-1"]

    def test_others_are_refused(self, connection: Connection) -> None:
        kit.create_topic(connection, "odd")
        for acks in (2, -2, 77):
            answer = kit.produce(connection, "odd", kit.batch_of(b"x"), acks=acks)
            assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert kit.read_all(connection, "odd") == []

    def test_too_few_replicas(self, connection: Connection) -> None:
        kit.create_topic(connection, "lonely", min_insync_replicas=2)
        assert kit.produce(connection, "lonely", kit.batch_of(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert kit.produce(connection, "lonely", kit.batch_of(b"x"), acks=1).error_code == 0

    def test_with_none_an_error_closes_the_connection(self, broker: Broker, connection: Connection) -> None:
        """It is the only way to tell somebody who does not listen."""
        kit.create_topic(connection, "deaf")
        for topic, batch in (("absent", kit.batch_of(b"x")), ("deaf", b"garbage")):
            with kit.connect(broker) as unheard:
                unheard.send(kit.produce_request(topic, batch, acks=0), kit.NAMES)
                with pytest.raises(ConnectionError):
                    unheard.recv_frame()

    def test_one_bad_partition_does_not_spoil_the_others(self, connection: Connection) -> None:
        kit.create_topic(connection, "mixed", 3)
        good = kit.batch_of(b"x")
        data = tuple(
            PartitionProduceData(index=index, records=memoryview(batch) if batch is not None else None)
            for index, batch in ((0, good), (1, b"garbage"), (2, good), (9, good), (0, None))
        )
        topics = (
            TopicProduceData(name="mixed", partition_data=data),
            TopicProduceData(name="absent", partition_data=data[:1]),
        )
        answer = connection.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), kit.NAMES)
        first, second = answer.responses
        codes = [each.error_code for each in first.partition_responses]
        assert codes[0] == codes[2] == 0
        assert codes[1] != 0
        assert codes[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes[4] != 0
        assert second.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def resealed(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a checksum that fits them."""
    header = read_header(batch)
    return pack_batch(header._replace(**fields), batch[61:])


def with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def bad_batches() -> dict[str, tuple[bytes, ErrorCode]]:
    good = kit.batch_of((b"k", b"value"), (b"k", b"value"))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old = bytearray(good)
    old[16] = 1
    soon = kit.now_ms() + 3 * 3_600_000
    idempotent = kit.batch_of(b"x", producer=(5, 0, 0))
    return {
        "nothing": (b"", ErrorCode.INVALID_RECORD),
        "garbage": (b"\xff" * 100, ErrorCode.CORRUPT_MESSAGE),
        "half a batch": (good[: len(good) // 2], ErrorCode.INVALID_RECORD),
        "a flipped bit": (bytes(flipped), ErrorCode.CORRUPT_MESSAGE),
        "an old format": (bytes(old), ErrorCode.INVALID_RECORD),
        "two batches": (good + good, ErrorCode.INVALID_RECORD),
        "a negative length": (with_length(good, -5), ErrorCode.CORRUPT_MESSAGE),
        "an absurd length": (with_length(good, 2**31 - 1), ErrorCode.INVALID_RECORD),
        "more records than bytes": (resealed(good, records_count=10**6), ErrorCode.INVALID_RECORD),
        "a wrong count": (resealed(good, records_count=1), ErrorCode.INVALID_RECORD),
        "no records": (resealed(good, records_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        "an unknown codec": (resealed(good, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "a control batch": (resealed(good, attributes=CONTROL), ErrorCode.INVALID_RECORD),
        "a transaction without a producer": (resealed(good, attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD),
        "the broker's clock": (resealed(good, attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        "the far future": (kit.batch_of(b"x", timestamp=soon), ErrorCode.INVALID_TIMESTAMP),
        "a base offset": (struct.pack(">q", 7) + good[8:], ErrorCode.INVALID_RECORD),
        "a producer without a sequence": (resealed(idempotent, base_sequence=-1), ErrorCode.INVALID_RECORD),
        "a producer without an epoch": (resealed(idempotent, producer_epoch=-1), ErrorCode.INVALID_RECORD),
    }


@pytest.mark.parametrize("compacted", [False, True])
def test_a_bad_batch_is_refused_and_nothing_is_stored(connection: Connection, compacted: bool) -> None:
    topic = f"bad-{compacted}"
    kit.create_topic(connection, topic, cleanup_policy="compact" if compacted else "delete")
    for name, (batch, code) in bad_batches().items():
        answer = kit.produce(connection, topic, batch)
        assert ErrorCode(answer.error_code) == code, name
        assert answer.base_offset == -1
        assert answer.error_message, name
    assert kit.offset_at(connection, topic, kit.LATEST) == 0
    assert kit.store(connection, topic, (b"k", b"fine")) == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_a_lie_inside_the_records_is_found_where_records_are_looked_at(connection: Connection, codec: Codec) -> None:
    """Wrong inside a valid checksum: broken compression, or records that are not what the header says."""
    topic = f"lies-{codec.name.lower()}"
    kit.create_topic(connection, topic, cleanup_policy="compact")
    batch = kit.batch_of((b"k", b"v" * 100), (b"l", b"w" * 100), codec=codec)
    broken = pack_batch(read_header(batch), batch[61:-20])
    gap = build_batch([Record(0, 1, b"k", b"v", ()), Record(2, 1, b"k", b"v", ())], codec=codec)
    for lie in (broken, resealed(gap, last_offset_delta=1)):
        assert kit.produce(connection, topic, lie).error_code == ErrorCode.INVALID_RECORD
    assert kit.read_all(connection, topic) == []


class TestTimestamps:
    def test_log_append_time(self, connection: Connection) -> None:
        kit.create_topic(connection, "stamped", message_timestamp_type="LogAppendTime")
        before = kit.now_ms()
        for codec in Codec:
            answer = kit.produce(connection, "stamped", kit.batch_of(b"x", b"y", timestamp=5, codec=codec))
            assert before <= answer.log_append_time_ms <= kit.now_ms()
        records = kit.fetch(connection, "stamped", 0).records
        for header, batch in iter_batches(records):
            assert header.attributes & LOG_APPEND_TIME
            assert header.crc == crc_of(batch)
        assert all(before <= each.timestamp <= kit.now_ms() for each in kit.records_in(records))

    def test_create_time(self, connection: Connection) -> None:
        kit.create_topic(connection, "own", message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
        now = kit.now_ms()
        for timestamp, code in ((now, 0), (now - 60_000, 32), (now + 60_000, 32), (-1, 0)):
            answer = kit.produce(connection, "own", kit.batch_of(b"x", timestamp=timestamp))
            assert (answer.error_code, answer.log_append_time_ms) == (code, -1), timestamp
        assert [each.timestamp for each in kit.read_all(connection, "own")] == [now, -1]


class TestCompressionType:
    @pytest.mark.parametrize("target", CODECS)
    def test_every_codec_becomes_the_topics_own(self, connection: Connection, target: str) -> None:
        kit.create_topic(connection, f"as-{target}", compression_type=target)
        pairs = [(b"k%d" % number, b"value " * 50) for number in range(20)]
        # Small ones are recompressed in the broker, big ones in its worker process.
        for codec in Codec:
            kit.store(connection, f"as-{target}", *pairs, codec=codec)
            kit.store(connection, f"as-{target}", (b"big", bytes(range(256)) * 400), codec=codec)
        records = kit.fetch(connection, f"as-{target}", 0).records
        stored: list[BatchHeader] = [header for header, _ in iter_batches(records)]
        assert {header.codec for header in stored} == {CODECS.index(target)}
        assert len(stored) == 2 * len(Codec)
        assert all(header.crc == crc_of(batch) for header, batch in iter_batches(records))
        found = [(each.key, each.value) for each in kit.records_in(records)]
        assert found == [*pairs, (b"big", bytes(range(256)) * 400)] * len(Codec)

    def test_producer_keeps_the_bytes(self, connection: Connection) -> None:
        kit.create_topic(connection, "kept")
        for codec in Codec:
            batch = kit.batch_of(b"value " * 50, codec=codec)
            base = kit.produce(connection, "kept", batch).base_offset
            stored = bytes(kit.fetch(connection, "kept", base).records)
            assert stored[16:] == batch[16:], "only offset, length and epoch may differ"

    def test_sequences_survive_recompression(self, connection: Connection) -> None:
        kit.create_topic(connection, "seq", compression_type="zstd")
        producer = kit.new_producer_id(connection)
        batch = kit.batch_of(b"x" * 50_000, b"y" * 50_000, producer=(producer, 0, 0), codec=1)
        offsets = [kit.produce(connection, "seq", batch).base_offset for _ in range(2)]
        assert offsets == [0, 0]
        following = kit.batch_of(b"z", producer=(producer, 0, 2))
        assert kit.produce(connection, "seq", following).base_offset == 2


class TestSize:
    def test_max_message_bytes(self, connection: Connection) -> None:
        exact = kit.batch_of(b"x" * 1000)
        kit.create_topic(connection, "size", max_message_bytes=len(exact))
        assert kit.produce(connection, "size", exact).error_code == 0
        answer = kit.produce(connection, "size", kit.batch_of(b"x" * 1001))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert str(len(exact)) in answer.error_message
        assert kit.alter_config(connection, kit.TOPIC, "size", {"max.message.bytes": "5000"}).error_code == 0
        assert kit.produce(connection, "size", kit.batch_of(b"x" * 1001)).error_code == 0

    def test_recompression_counts(self, connection: Connection) -> None:
        """What is stored must fit, too: otherwise nobody could fetch it."""
        kit.create_topic(connection, "grown", compression_type="uncompressed", max_message_bytes=5000)
        small = kit.batch_of(b"x" * 20_000, codec=4)
        assert len(small) < 5000
        assert kit.produce(connection, "grown", small).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert kit.read_all(connection, "grown") == []

    def test_a_decompression_bomb(self, broker: Broker, connection: Connection) -> None:
        """A few kilobytes that mean 200 MiB: refused, and soon enough for everybody else."""
        kit.create_topic(connection, "bomb", cleanup_policy="compact")
        header = read_header(kit.batch_of((b"k", b"v")))
        for codec, squeezed in (
            (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(200 << 20)))),
            (Codec.GZIP, bytes(cramjam.gzip.compress(bytes(200 << 20)))),
        ):
            bomb = pack_batch(header._replace(attributes=codec), squeezed)
            assert kit.produce(connection, "bomb", bomb).error_code == ErrorCode.INVALID_RECORD
        assert kit.read_all(connection, "bomb") == []


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_writes_the_same(connection: Connection, version: int) -> None:
    name = f"written-{version}"
    topic_id = kit.create_topic(connection, name)
    topic = topic_id if version >= kit.IDS else name
    answer = connection.call(kit.produce_request(topic, kit.batch_of(b"x", b"y")), version)
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset, partition.log_append_time_ms) == (0, 0, -1)
    assert kit.values(kit.read_all(connection, name)) == [b"x", b"y"]
