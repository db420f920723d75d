"""File names inside a partition directory. All of them are Kafka's, so Kafka's own tools find what they expect."""

import re
from typing import Final

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
CLEANED: Final = ".cleaned"  # written by compaction, not yet trusted
SWAP: Final = ".swap"  # complete: recovery finishes the replacement
DELETED: Final = ".deleted"  # unlinking has begun: never comes back
SEGMENT_FILES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

_OFFSET_NAME = re.compile(r"^(\d{20})(\..+)$")


def offset_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """`00000000000000000042.log` is (42, ".log"); None for any other file."""
    match = _OFFSET_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def corrupt_name(base_offset: int, position: int) -> str:
    return offset_name(base_offset, f"{LOG}.corrupt-{position}")
