"""Finding records by time. Only the one batch that holds the answer is decoded."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.storage.segment import Segment
from tidelog.wire.record_batch import LOG_APPEND_TIME, BatchHeader, iter_records


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int, upper: int
) -> TimestampOffset | None:
    """The first record in [start_offset, upper) that is not older than `timestamp`, wherever in a batch it is."""
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
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for offset, record_timestamp in _timestamps(segment, at, header):
                if record_timestamp >= timestamp and offset >= start_offset:
                    if offset >= upper:
                        return None
                    return TimestampOffset(offset, record_timestamp, header.partition_leader_epoch)
    return None


def max_timestamp_offset(segments: Sequence[Segment], start_offset: int, upper: int) -> TimestampOffset | None:
    """The newest record in [start_offset, upper); of equally new ones the first."""
    best: tuple[int, Segment, int] | None = None
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= upper:
            continue
        if start_offset <= segment.base_offset and segment.next_offset <= upper:
            candidate = (segment.max_timestamp, segment.max_timestamp_offset)
        else:
            candidate = _newest_between(segment, start_offset, upper)
        if candidate[0] >= 0 and (best is None or candidate[0] > best[0]):
            best = candidate[0], segment, candidate[1]
    if best is None:
        return None
    newest, segment, batch_end = best
    for at, header in segment.headers(segment.locate(batch_end)[0]):
        for offset, timestamp in _timestamps(segment, at, header):
            if timestamp == newest and start_offset <= offset < upper:
                return TimestampOffset(offset, timestamp, header.partition_leader_epoch)
        return TimestampOffset(header.last_offset, newest, header.partition_leader_epoch)
    return None


def _newest_between(segment: Segment, start_offset: int, upper: int) -> tuple[int, int]:
    """A segment that the range cuts: the indexes speak for all of it, so its headers must be read."""
    newest, batch_end = -1, -1
    position = segment.locate(start_offset)[0] if start_offset > segment.base_offset else 0
    for at, header in segment.headers(position):
        if header.base_offset >= upper:
            break
        candidate = header.max_timestamp
        if candidate > newest and (header.base_offset < start_offset or header.last_offset >= upper):
            inside = (time for offset, time in _timestamps(segment, at, header) if start_offset <= offset < upper)
            candidate = max(inside, default=-1)
        if candidate > newest:
            newest, batch_end = candidate, header.last_offset
    return newest, batch_end


def _timestamps(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    if header.attributes & LOG_APPEND_TIME and header.records_count == header.last_offset_delta + 1:
        # Every record has the batch's time, and none was compacted away: no need to look.
        yield from ((header.base_offset + delta, header.max_timestamp) for delta in range(header.records_count))
        return
    batch = segment.file.read(position, header.size)
    if len(batch) != header.size:
        raise CorruptMessage(f"{segment.path}: incomplete batch at {position}")
    for record in iter_records(batch):
        yield record.offset, record.timestamp
