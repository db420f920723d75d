"""What a reader finds at a replica. It looks at checksums, as every client does, and takes nothing that is damaged."""

from typing import TYPE_CHECKING, NamedTuple

from batches import read_batches

from tidelog.storage.log import Log
from tidelog.wire.record_batch import BatchHeader, crc_of, iter_records, read_header

if TYPE_CHECKING:
    from tests.simulation.replication.seat import Seat


class Found(NamedTuple):
    values: list[tuple[int, bytes]]
    damaged: set[int]
    """Offsets at which there is something that no reader takes."""
    keys: dict[int, bytes]
    """By offset."""


NOTHING = Found([], set(), {})


def look(seat: "Seat", low: int | None = None, high: int | None = None) -> Found:
    """From `low` to `high`, whatever the disk does to others at this time."""
    log, disk = seat.log, seat.broker.disk
    failing, disk.unreadable = disk.unreadable, 0
    start = log.start_offset if low is None else low
    end = log.end_offset if high is None else high
    batches = _batches(log, start, end) if disk.flips else read_batches(log, start, end)
    values: list[tuple[int, bytes]] = []
    damaged: set[int] = set()
    keys: dict[int, bytes] = {}
    for slot, (header, batch) in enumerate(batches):
        if crc_of(batch) == header.crc:
            for each in iter_records(batch):
                if each.offset >= start:
                    values.append((each.offset, bytes(each.value or b"")))
                    keys[each.offset] = bytes(each.key or b"")
        else:
            following = batches[slot + 1][0].base_offset if slot + 1 < len(batches) else end
            damaged.update(range(max(start, header.base_offset), following))
    disk.unreadable = failing
    return Found(values, damaged, keys)


def _batches(log: Log, start: int, end: int) -> list[tuple[BatchHeader, memoryview]]:
    """As they lie there: where one is damaged, what it says about the offset it ends at is not to be believed. Where it
    begins and how long it is stand before what its checksum covers, and no bit flips there."""
    found: list[tuple[BatchHeader, memoryview]] = []
    for segment in log.segments:
        data, at = memoryview(segment.file.read(0, segment.size)), 0
        while at < len(data) and (header := read_header(data, at)).base_offset < end:
            found.append((header, data[at : at + header.size]))
            at += header.size
    first = max((slot for slot, (header, _) in enumerate(found) if header.base_offset <= start), default=0)
    last = len(found) - (bool(found) and crc_of(found[-1][1]) == found[-1][0].crc and found[-1][0].last_offset >= end)
    return found[first:last]
