"""The five codecs of a record batch, with output bounded while it is produced.

A compressed batch says nothing true about its size, so `decompress` never trusts a declared length: it stops as soon as
more than `limit` bytes would come out, having allocated no more than that plus one chunk.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
import lz4.frame

from tidelog.errors import CorruptMessage, UnsupportedCompression

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_MAX: Final = 128 << 20
"""What one batch may expand to unless the caller says otherwise. Producers bound a batch by its uncompressed size, a
mebibyte or so by default, and only an absurd ratio reaches this."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Values of `compression.type` that name a codec; `producer` names none."""


class DecompressedTooLarge(CorruptMessage):
    """More came out of a batch than the limit allows: a bomb, or a setting that is too tight."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"batch expands to more than {limit} bytes")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` is the codec's own scale; None is Kafka's default for it."""
    if codec == Codec.NONE:
        return bytes(data)
    write = _COMPRESS.get(codec)
    if write is None:
        raise UnsupportedCompression(f"unknown compression codec {codec}")
    return write(data, level)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_MAX) -> bytes:
    """Raises CorruptMessage for broken data and its subclass DecompressedTooLarge past `limit`."""
    if codec == Codec.NONE:
        if len(data) > limit:
            raise DecompressedTooLarge(limit)
        return bytes(data)
    read = _DECOMPRESS.get(codec)
    if read is None:
        raise UnsupportedCompression(f"unknown compression codec {codec}")
    return read(data, limit)


_PIECE: Final = 16 << 10
"""Given at once to whoever reads one of many concatenated streams. It copies what is behind its end, each time: with
all the rest, a megabyte of empty streams is copied for seconds."""


# --- gzip -------------------------------------------------------------------------------------------------------------

_GZIP_WRAPPER: Final = 31  # zlib's window bits with a gzip header


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WRAPPER)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    chunks: list[bytes] = []
    total = position = 0
    at_once = len(view)
    while True:  # one turn per gzip member: writers may concatenate them
        stream = zlib.decompressobj(_GZIP_WRAPPER)
        while not stream.eof:
            piece = view[position : position + at_once]
            if not piece:
                raise CorruptMessage("gzip: data ends inside a member")
            try:
                chunk = stream.decompress(piece, limit - total + 1)
            except zlib.error as error:
                raise CorruptMessage(f"gzip: {error}") from None
            total += len(chunk)
            if total > limit:
                raise DecompressedTooLarge(limit)
            chunks.append(chunk)
            position += len(piece)
        position -= len(stream.unused_data)
        if position == len(view):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        at_once = _PIECE


# --- snappy -----------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, lowest compatible version
_XERIAL_BLOCK: Final = 32 << 10  # what Java's stream writes; its reader takes any size
_BLOCK_LENGTH: Final = Struct(">i")
_SNAPPY_EXPANSION_MAX: Final = 22  # the densest element is three bytes for sixty-four


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    # Java reads only xerial's framing, librdkafka reads both: so always frame.
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit, limit)
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptMessage("snappy: data ends inside the xerial header")
    chunks: list[bytes] = []
    remaining = limit
    while position < len(view):
        start = position + _BLOCK_LENGTH.size
        if start > len(view):
            raise CorruptMessage("snappy: data ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        if length < 0 or start + length > len(view):
            raise CorruptMessage(f"snappy: block of {length} bytes does not fit the data")
        chunk = _snappy_block(view[start : start + length], remaining, limit)
        chunks.append(chunk)
        remaining -= len(chunk)
        position = start + length
    return b"".join(chunks)


def _snappy_block(block: memoryview, remaining: int, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_EXPANSION_MAX:
            raise CorruptMessage(f"snappy: {len(block)} bytes cannot hold {size}")
        if size > remaining:
            raise DecompressedTooLarge(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(str(error)) from None


# --- lz4 --------------------------------------------------------------------------------------------------------------

_LZ4_KAFKA_DEFAULT: Final = 9  # on Kafka's scale this means the fast compressor, not high compression
_LZ4_CHUNK: Final = 64 << 10


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    # Java refuses linked blocks, and never expects a content size it did not ask for.
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_KAFKA_DEFAULT) else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _lz4_decompress(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    chunks: list[bytes] = []
    total = position = 0
    at_once = len(view)
    # The library allocates what it may return, so ask for pieces in proportion to what really arrived.
    most = max(_LZ4_CHUNK, 4 * len(view))
    while position < len(view):
        stream = lz4.frame.LZ4FrameDecompressor()
        while not stream.eof:
            piece = view[position : position + at_once] if stream.needs_input else view[:0]
            if stream.needs_input and not piece:
                raise CorruptMessage("lz4: data ends inside a frame")
            try:
                chunk = stream.decompress(piece, max_length=min(most, limit - total + 1))
            except (RuntimeError, EOFError) as error:
                raise CorruptMessage(f"lz4: {error}") from None
            total += len(chunk)
            if total > limit:
                raise DecompressedTooLarge(limit)
            chunks.append(chunk)
            position += len(piece)
        position -= len(stream.unused_data or b"")
        at_once = _PIECE
        most = max(_LZ4_CHUNK, 4 * _PIECE)
    if not chunks:
        raise CorruptMessage("lz4: no frame")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


# --- zstd -------------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 << 10
_ZSTD_DEFAULT_LEVEL: Final = 3


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def _zstd_decompress(data: Buffer, limit: int) -> bytes:
    # A one-shot call with a maximum still expands everything first; writing into a buffer of fixed size stops when it
    # is full. The frame's structure gives a size that surely suffices.
    bound = _zstd_bound(memoryview(data))
    output = bytearray(min(bound, limit))
    try:
        size = cramjam.zstd.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if bound > limit and "whole buffer" in str(error):
            raise DecompressedTooLarge(limit) from None
        raise CorruptMessage(f"zstd: {error}") from None
    return bytes(memoryview(output)[:size])


def _zstd_bound(view: memoryview) -> int:
    """The most that can come out: every block says its size or is at most 128 KiB."""
    position, bound, end = 0, 0, len(view)
    if end == 0:
        raise CorruptMessage("zstd: no frame")
    while position < end:
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC or position + 5 > end:
            raise CorruptMessage("zstd: not a frame")
        descriptor = view[position + 4]
        single_segment = descriptor >> 5 & 1
        position += 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        position += (single_segment, 2, 4, 8)[descriptor >> 6]
        last = 0
        while not last:
            if position + 3 > end:
                raise CorruptMessage("zstd: data ends inside a frame")
            block = int.from_bytes(view[position : position + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            bound += size if kind < 2 else _ZSTD_BLOCK_MAX
            position += 3 + (1 if kind == 1 else size)  # an RLE block stores its one byte
        position += 4 * (descriptor >> 2 & 1)
    if position > end:
        raise CorruptMessage("zstd: data ends inside a frame")
    return bound


_COMPRESS: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
