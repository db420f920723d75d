"""Finding records by time. Only the batch that holds the answer is decoded.

That may be any amount of work: a batch says nothing true about how many records are in it, or how old. So a search
pauses, and is finished by whoever wants to know. While it pauses the log may change: it keeps nothing of it but files,
which stay open for whoever holds them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.storage.disk import File
from tidelog.storage.segment import Segment
from tidelog.storage.walk import walk
from tidelog.wire.record_batch import LOG_APPEND_TIME, BatchHeader, iter_records

AT_ONCE: Final = 2000
"""Records or headers looked at before a search pauses: a few milliseconds' worth."""


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class _Batch(NamedTuple):
    file: File
    position: int
    header: BatchHeader


Segments = Callable[[], Sequence[Segment]]
"""Those of the moment."""
Search = Generator[None, None, TimestampOffset | None]


def find_by_time(segments: Segments, timestamp: int, start_offset: int, upper: int) -> Search:
    """The first record in [start_offset, upper) that is not older than `timestamp`, wherever in a batch it is."""
    while (batch := _batch_by_time(segments(), timestamp, start_offset, upper)) is not None:
        for number, (offset, record_timestamp) in enumerate(_timestamps(batch, start_offset), start=1):
            if record_timestamp >= timestamp and offset >= start_offset:
                found = TimestampOffset(offset, record_timestamp, batch.header.partition_leader_epoch)
                return found if offset < upper else None
            if number % AT_ONCE == 0:
                yield
        # Its header promised a record that is not in it.
        start_offset = batch.header.last_offset + 1
        yield
    return None


def _batch_by_time(segments: Sequence[Segment], timestamp: int, start_offset: int, upper: int) -> _Batch | None:
    for segment in segments:
        if segment.next_offset <= start_offset or segment.max_timestamp < timestamp:
            continue
        if segment.base_offset >= upper:
            return None
        # Up to an entry of the time index nothing is newer than it, so a smaller entry can be skipped to.
        entry = segment.time_index.floor(timestamp)
        first = max(start_offset, segment.base_offset + entry[1]) if entry else start_offset
        position = segment.locate(first)[0] if first > segment.base_offset else 0
        for at, header in segment.headers(position):
            if header.base_offset >= upper:
                return None
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                return _Batch(segment.file, at, header)
    return None


def find_newest(segments: Segments, start_offset: int, upper: int) -> Search:
    """The newest record in [start_offset, upper); of equally new ones the first."""
    newest, batch = NO_RECORD, None
    for segment in segments():
        if _concerns(segment, start_offset, upper) and not _is_within(segment, start_offset, upper):
            timestamp, candidate = yield from _newest_between(segment, start_offset, upper)
            if candidate is not None and timestamp > newest:
                newest, batch = timestamp, candidate
    # Without a pause from here on, so that what the indexes say holds for the files.
    within = [each for each in segments() if _is_within(each, start_offset, upper) and each.max_timestamp >= 0]
    best = max(within, key=lambda each: each.max_timestamp, default=None)
    if best is not None and (
        best.max_timestamp > newest
        or (batch is not None and best.max_timestamp == newest and best.base_offset < batch.header.base_offset)
    ):
        newest = best.max_timestamp
        position, header = next(best.headers(best.locate(best.max_timestamp_offset)[0]))
        batch = _Batch(best.file, position, header)
    if batch is None:
        return None
    epoch = batch.header.partition_leader_epoch
    for number, (offset, timestamp) in enumerate(_timestamps(batch, start_offset), start=1):
        if timestamp == newest and start_offset <= offset < upper:
            return TimestampOffset(offset, timestamp, epoch)
        if number % AT_ONCE == 0:
            yield
    return TimestampOffset(batch.header.last_offset, newest, epoch)


NO_RECORD: Final = -1


def _concerns(segment: Segment, start_offset: int, upper: int) -> bool:
    return segment.next_offset > start_offset and segment.base_offset < upper


def _is_within(segment: Segment, start_offset: int, upper: int) -> bool:
    """Then the indexes speak for it."""
    return (
        _concerns(segment, start_offset, upper) and start_offset <= segment.base_offset and segment.next_offset <= upper
    )


def _newest_between(
    segment: Segment, start_offset: int, upper: int
) -> Generator[None, None, tuple[int, _Batch | None]]:
    """A segment that the range cuts: the indexes speak for all of it, so its headers must be read."""
    newest, found = NO_RECORD, None
    file = segment.file
    position = segment.locate(start_offset)[0] if start_offset > segment.base_offset else 0
    for number, (at, header) in enumerate(walk(file, position, segment.size), start=1):
        if header.base_offset >= upper:
            break
        batch = _Batch(file, at, header)
        timestamp = header.max_timestamp
        if timestamp > newest and (header.base_offset < start_offset or header.last_offset >= upper):
            timestamp = yield from _newest_in(batch, start_offset, upper)
        if timestamp > newest:
            newest, found = timestamp, batch
        if number % AT_ONCE == 0:
            yield
    return newest, found


def _newest_in(batch: _Batch, start_offset: int, upper: int) -> Generator[None, None, int]:
    newest = NO_RECORD
    for number, (offset, timestamp) in enumerate(_timestamps(batch, start_offset), start=1):
        if start_offset <= offset < upper:
            newest = max(newest, timestamp)
        if number % AT_ONCE == 0:
            yield
    return newest


def _timestamps(batch: _Batch, start_offset: int) -> Iterator[tuple[int, int]]:
    """Of its records, by offset. Those before `start_offset` may be left out."""
    header = batch.header
    if header.attributes & LOG_APPEND_TIME and header.records_count == header.last_offset_delta + 1:
        # Every record has the batch's time, and none was compacted away: the first is as good as any.
        yield max(header.base_offset, start_offset), header.max_timestamp
        return
    data = batch.file.read(batch.position, header.size)
    if len(data) != header.size:
        raise CorruptMessage(f"{batch.file.path}: incomplete batch at {batch.position}")
    for record in iter_records(data):
        yield record.offset, record.timestamp
