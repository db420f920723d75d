"""Each codec: what it writes others read, what others write it reads, and nothing makes it allocate without bound."""

import gzip
import os
import subprocess
import sys
import zlib
from pathlib import Path
from time import process_time

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from kafka import codec as kafka_python_codec

from tidelog.errors import CorruptMessage, UnsupportedCompression
from tidelog.wire.compression import Codec, DecompressedTooLarge, compress, decompress

CODECS = list(Codec)
COMPRESSED = [codec for codec in CODECS if codec]
TEXT = b"the tide takes the log and the log takes the tide; " * 4000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 700], ids=["empty", "one", "text", "bytes"])
def test_round_trip_from_any_kind_of_buffer(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), 1 << 20) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge, match=str(len(TEXT) - 1)):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_anywhere_is_corrupt_or_a_shorter_prefix(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in range(0, len(packed), max(1, len(packed) // 300)):
        try:
            # Xerial blocks and gzip members stand alone, so a cut between two of them cannot be seen at this level.
            assert TEXT.startswith(decompress(codec, packed[:cut], 1 << 20))
        except CorruptMessage:
            continue


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("junk", [b"\x07", b"\xff" * 40, b"PK\x03\x04 not any of these"])
def test_what_was_never_compressed_is_corrupt(codec: Codec, junk: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decompress(codec, junk, 1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_named(codec: int) -> None:
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        decompress(codec, b"", 10)
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        compress(codec, b"")


def test_uncompressed_data_obeys_the_limit_too() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.NONE, b"four", 3)


def test_snappy_is_written_with_xerial_framing_and_read_with_and_without() -> None:
    assert compress(Codec.SNAPPY, TEXT).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_snappy_lengths_are_not_believed() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f" + b"a" * 50
    with pytest.raises(CorruptMessage, match="cannot hold"):
        decompress(Codec.SNAPPY, four_gigabytes, 1 << 40)
    for length in (-1, 1 << 30):
        framed = b"\x82SNAPPY\x00" + bytes(8) + length.to_bytes(4, "big", signed=True) + b"abc"
        with pytest.raises(CorruptMessage, match="does not fit"):
            decompress(Codec.SNAPPY, framed, 1 << 20)


def test_lz4_frames_have_what_java_insists_on() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not info["block_linked"]
    assert info["block_size"] == 64 << 10
    assert info["content_size"] == 0


def test_lz4_linked_blocks_of_other_clients_are_read() -> None:
    linked = lz4.frame.compress(TEXT, block_linked=True, store_size=True, content_checksum=True)
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT


def test_concatenated_streams_are_one_stream() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"
    assert decompress(Codec.LZ4, lz4.frame.compress(b"one ") + lz4.frame.compress(b"two"), 7) == b"one two"
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Codec.ZSTD, compress(4, b"one ") + skippable + compress(4, b"two"), 7) == b"one two"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("size", [0, 1, 7, 5000, 100_000])
def test_many_concatenated_streams_are_one_stream_wherever_they_are_cut(codec: Codec, size: int) -> None:
    pieces = [os.urandom(size) for _ in range(7)]
    whole = b"".join(compress(codec, piece) for piece in pieces)
    assert decompress(codec, whole, 7 * size) == b"".join(pieces)
    with pytest.raises(CorruptMessage):
        decompress(codec, whole[:-1], 7 * size)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_the_time_for_empty_streams_grows_with_their_number(codec: Codec) -> None:
    """Each is read for itself, and what is behind it was copied each time: eight times as many took 64 times as
    long."""
    empty = compress(codec, b"")

    def seconds(size: int) -> float:
        started = process_time()
        assert decompress(codec, empty * (size // len(empty))) == b""
        return process_time() - started

    few = min(seconds(1 << 17) for _ in range(3))
    assert min(seconds(1 << 20) for _ in range(3)) < 20 * few


def test_zstd_written_as_a_stream_without_a_content_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    assert decompress(Codec.ZSTD, bytes(stream.finish()), len(TEXT)) == TEXT


@pytest.mark.parametrize("level", [1, 9, 12])
def test_levels_are_the_codecs_own(level: int) -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        chosen = min(level, 9) if codec == Codec.GZIP else level
        assert decompress(codec, compress(codec, TEXT, chosen), len(TEXT)) == TEXT


def test_kafkas_default_lz4_level_is_the_fast_compressor() -> None:
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4"])
def test_kafka_python_and_this_read_each_other(name: str) -> None:
    codec = Codec[name.upper()]
    encode, decode = getattr(kafka_python_codec, f"{name}_encode"), getattr(kafka_python_codec, f"{name}_decode")
    if not getattr(kafka_python_codec, f"has_{name}")():
        pytest.fail(f"the oracle lacks {name}")
    assert decompress(codec, bytes(encode(TEXT)), len(TEXT)) == TEXT
    assert bytes(decode(compress(codec, TEXT))) == TEXT


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_and_this_read_each_other(name: str) -> None:
    codec = Codec[name.upper()]
    encode, decode = getattr(aiokafka_codec, f"{name}_encode"), getattr(aiokafka_codec, f"{name}_decode")
    assert decompress(codec, bytes(encode(TEXT)), len(TEXT)) == TEXT
    assert bytes(decode(compress(codec, TEXT))) == TEXT


BOMB = """
import sys
from tidelog.wire.compression import DecompressedTooLarge, decompress

def peak_kib():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

data = open(sys.argv[2], "rb").read()
before = peak_kib()
try:
    decompress(int(sys.argv[1]), data, 4 << 20)
except DecompressedTooLarge:
    print(peak_kib() - before)
"""


def _bomb(codec: Codec, size: int) -> bytes:
    if codec == Codec.GZIP:
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(stream.compress(bytes(1 << 20)) for _ in range(size >> 20)) + stream.flush()
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_costs_its_limit_and_not_its_size(codec: Codec, tmp_path: Path) -> None:
    """256 MiB of zeros under a limit of 4 MiB, in a process of its own so that its peak memory is its own."""
    path = tmp_path / "bomb"
    bomb = _bomb(codec, 256 << 20)
    path.write_bytes(bomb)
    if codec == Codec.ZSTD:
        assert len(bomb) < 9000
    run = subprocess.run([sys.executable, "-c", BOMB, str(int(codec)), path], capture_output=True, check=True)
    # Twice the limit for the pieces and their sum, and some for the decoder's own window.
    assert int(run.stdout) < 16 << 10
