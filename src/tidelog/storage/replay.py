"""What the batches of a log say about its producers and transactions, read again: after a crash, after a truncation, or
because a file that remembered it is lost.
"""

from collections.abc import Callable, Sequence

from tidelog.errors import CorruptMessage
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.segment import Segment
from tidelog.storage.snapshots import Snapshots
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.control import Marker, read_marker
from tidelog.wire.record_batch import CONTROL, BatchHeader


def replay_batch(
    producers: ProducerStates, header: BatchHeader, marker: Marker | None, now_ms: int
) -> AbortedTransaction | None:
    """Learn from a batch that is in the log, a control batch from its `marker`. Returns what that aborted."""
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL:
        producers.update(header, header.base_offset, header.max_timestamp, now_ms)
        return None
    if marker is None:
        return None
    offset = header.base_offset
    aborted = producers.aborted_by(header.producer_id, marker, offset)
    producers.end_transaction(header.producer_id, header.producer_epoch, marker, offset, header.max_timestamp, now_ms)
    return aborted


def replay_segment(
    producers: ProducerStates, segment: Segment, start: int, end: int, now_ms: int
) -> list[AbortedTransaction]:
    """All batches of a segment that begin in `[start, end)`."""
    found: list[AbortedTransaction] = []
    file = segment.file
    position = segment.locate(start)[0] if start > segment.base_offset else 0
    for at, header in segment.headers(position):
        if start <= header.base_offset < end:
            marker = read_marker(file.read(at, header.size)) if header.attributes & CONTROL else None
            aborted = replay_batch(producers, header, marker, now_ms)
            if aborted is not None:
                found.append(aborted)
    return found


def load_producers(snapshots: Snapshots, segments: Sequence[Segment], end: int, now_ms: int = 0) -> ProducerStates:
    """The newest snapshot at or below `end`, and what the batches of `segments` say from there to `end`."""
    producers = ProducerStates()
    found = snapshots.newest(end, now_ms)
    offset = 0
    if found is not None:
        offset = found[0]
        producers.load(found[1])
    for segment in segments:
        if segment.next_offset > offset:
            replay_segment(producers, segment, offset, end, now_ms)
    producers.transactions.settle(end)  # all of it is on disk, so no end has to wait to be visible
    return producers


def rebuild_txn_indexes(
    snapshots: Snapshots, segments: Sequence[Segment], lost: Callable[[Segment], bool]
) -> list[str]:
    """Make the indexes of `lost` segments again from their markers. Returns their paths."""
    rebuilt: list[str] = []
    producers: ProducerStates | None = None
    for slot, segment in enumerate(segments):
        if not lost(segment):
            producers = None
            continue
        try:
            if producers is None:
                producers = load_producers(snapshots, segments[:slot], segment.base_offset)
            aborted = replay_segment(producers, segment, 0, segment.next_offset, 0)
        except CorruptMessage:
            # The log itself is damaged. Readers of committed records are refused rather than shown aborted ones.
            segment.transactions.forget()
            producers = None
            continue
        segment.transactions.replace(aborted)
        rebuilt.append(segment.transactions.path)
    return rebuilt
