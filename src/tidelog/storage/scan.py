"""Reading a log file that may be damaged: every batch is checked before anything in it is believed.

The checksum covers a batch from `attributes` on. What lies before it is checked by what surrounds it: the length by the
checksum itself, the base offset by the batches before and after, the leader epoch by them and by the epoch checkpoint.
"""

import re
from typing import Final, NamedTuple

from tidelog.storage.disk import File
from tidelog.storage.epochs import UNDEFINED_EPOCH, LeaderEpochs
from tidelog.wire.checksum import crc32c
from tidelog.wire.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, MAGIC, BatchHeader, read_header

SCAN_CHUNK: Final = 4 << 20
_CANDIDATES_MAX: Final = 10_000


class BatchReader:
    """Batches by position, from reads big enough that small batches cost no system call of their own."""

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self._end = end
        self._buffer = memoryview(b"")
        self._start = 0

    def _view(self, position: int, length: int) -> memoryview:
        offset = position - self._start
        if offset < 0 or offset + length > len(self._buffer):
            wanted = min(max(SCAN_CHUNK, length), self._end - position)
            self._buffer = memoryview(self._file.read(position, wanted))
            self._start = position
            offset = 0
        return self._buffer[offset : offset + length]

    def read(self, position: int, size: int) -> memoryview:
        """The bytes of a batch that was checked."""
        return self._view(position, size)

    def check(self, position: int) -> BatchHeader | str:
        """The header of the whole and undamaged batch at `position`, or what is wrong with it."""
        left = self._end - position
        if left < HEADER_SIZE:
            return f"{left} bytes are less than a batch header"
        head = self._view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return "the file is shorter than it was"
        header = read_header(head)
        size = header.size
        if header.magic != MAGIC:
            return f"no batch of records is here: magic {header.magic} instead of {MAGIC}"
        if size < HEADER_SIZE:
            return f"batch length {header.batch_length} is less than a header"
        if size > left:
            return f"batch of {size} bytes, but only {left} are left"
        batch = self._view(position, size)
        if crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
            return "the batch does not match its checksum"
        if header.last_offset_delta < 0:
            return f"last offset delta {header.last_offset_delta}"
        return header


class Expectation(NamedTuple):
    """What the next batch must fit to."""

    offset: int
    epoch: int
    epochs: LeaderEpochs | None  # the checkpoint as it was on disk, if it was readable
    durable_below: int  # a batch that ends below this was synced
    limit: int | None  # where the next segment begins; None in the last one
    compacted: bool = False  # by its topic's policy


def misfit(reader: BatchReader, position: int, header: BatchHeader, expected: Expectation) -> str:
    """Why a batch with a good checksum cannot be what was written here; empty if it can."""
    base = header.base_offset
    epoch = header.partition_leader_epoch
    known = expected.epochs
    checkpointed = known.epoch_of(base) if known is not None else UNDEFINED_EPOCH
    if base < expected.offset:
        return f"base offset {base} comes after {expected.offset - 1}"
    if expected.limit is not None and header.last_offset >= expected.limit:
        return f"last offset {header.last_offset} reaches into the segment that begins at {expected.limit}"
    if epoch < expected.epoch:
        return f"leader epoch {epoch} comes after {expected.epoch}"
    if known is not None and _contradicts(header, known):
        return f"leader epoch {epoch} where the checkpoint has {checkpointed}"
    gap = base > expected.offset
    jump = known is not None and epoch > known.latest and epoch != expected.epoch
    if not gap and not jump:
        return ""
    # Compaction leaves gaps and a checkpoint may lag, so ask the batch that follows.
    after = reader.check(position + header.size)
    if isinstance(after, BatchHeader):
        if gap and expected.offset <= after.base_offset <= header.last_offset:
            return f"base offset {base} between {expected.offset - 1} and {after.base_offset}"
        if expected.epoch <= after.partition_leader_epoch < epoch:
            return f"leader epoch {epoch} between {expected.epoch} and {after.partition_leader_epoch}"
        return ""
    if jump:
        return f"leader epoch {epoch} in the last batch, unknown to the checkpoint"
    # A leader never compacts the tail of its log. A follower's tail may be what its leader compacted long ago.
    if expected.limit is None and not expected.compacted and header.last_offset >= expected.durable_below:
        return f"base offset {base} in the last batch, where {expected.offset} was next"
    return ""


def _contradicts(header: BatchHeader, epochs: LeaderEpochs) -> bool:
    epoch = header.partition_leader_epoch
    return epoch <= epochs.latest and epoch != epochs.epoch_of(header.base_offset) >= 0


def disagrees(reader: BatchReader, position: int, header: BatchHeader, epochs: LeaderEpochs) -> bool:
    """Two batches in a row that say the same and not what the checkpoint says: then the checkpoint is wrong."""
    if not _contradicts(header, epochs):
        return False
    after = reader.check(position + header.size)
    return (
        isinstance(after, BatchHeader)
        and after.base_offset == header.last_offset + 1
        and after.partition_leader_epoch == header.partition_leader_epoch
        and _contradicts(after, epochs)
    )


def find_batch(file: File, position: int, end: int, expected_offset: int) -> int | None:
    """The first undamaged batch in `[position, end)` that could belong to this log, wherever it begins."""
    reader = BatchReader(file, end)
    high = re.escape((expected_offset >> 32).to_bytes(4, "big"))
    pattern = re.compile(rb"(?=" + high + rb".{12}\x02)", re.DOTALL)
    candidates = 0
    while position < end:
        # Consecutive pieces overlap by a header, so that none is cut in two.
        piece = file.read(position, min(SCAN_CHUNK, end - position))
        for match in pattern.finditer(piece):
            at = position + match.start()
            header = reader.check(at)
            if isinstance(header, BatchHeader) and 0 <= header.base_offset - expected_offset < 1 << 31:
                return at
            candidates += 1
            if candidates > _CANDIDATES_MAX:
                return at  # not worth more time: keeping too much aside is the safe mistake
        if len(piece) <= HEADER_SIZE:
            return None
        position += len(piece) - HEADER_SIZE if position + len(piece) < end else len(piece)
    return None
