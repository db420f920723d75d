"""Going through a log file from batch to batch, by their headers alone."""

from collections.abc import Iterator
from typing import Final

from tidelog.errors import CorruptMessage
from tidelog.storage.disk import File
from tidelog.wire.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header

WALK_CHUNK: Final = 65536


def walk(file: File, position: int, end: int, chunk: int = WALK_CHUNK) -> Iterator[tuple[int, BatchHeader]]:
    """Headers from `position` on, skipping over the records. Raises CorruptMessage where no batch can be."""
    buffer = b""
    start = position
    while position < end:
        if position + HEADER_SIZE > start + len(buffer):
            buffer = file.read(position, min(chunk, end - position))
            start = position
            if len(buffer) < HEADER_SIZE:
                raise CorruptMessage(f"{file.path}: incomplete batch header at {position}")
        header = read_header(buffer, position - start)
        size = header.size
        if header.magic != MAGIC or size < HEADER_SIZE or size > end - position or header.last_offset_delta < 0:
            raise CorruptMessage(f"{file.path}: no batch at {position}")
        yield position, header
        position += size
