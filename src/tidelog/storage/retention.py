"""Which of the oldest segments have outlived their topic's limits. Decides only; the log lets go, a thread unlinks."""

from collections.abc import Sequence

from tidelog.config import TopicConfig
from tidelog.storage.segment import Segment


def count_expired(
    segments: Sequence[Segment], config: TopicConfig, *, start_offset: int, upper: int, now_ms: int
) -> int:
    """How many leading segments may go. All of them means that the active one has expired too."""
    size = sum(segment.size for segment in segments)
    surplus = size - config.retention_bytes if config.retention_bytes >= 0 else -1
    delete = "delete" in config.cleanup_policy
    count = 0
    for segment in segments:
        active = segment is segments[-1]
        if segment.next_offset > upper or (active and not segment.size):
            break
        if segment.next_offset <= start_offset and not active:
            surplus -= segment.size
        elif not delete:
            break
        elif surplus >= segment.size and not active:
            surplus -= segment.size
        elif not _too_old(segment, config.retention_ms, now_ms):
            break
        count += 1
    return count


def _too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    # Records without a timestamp age from when this broker first saw their segment.
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return now_ms - newest > retention_ms
