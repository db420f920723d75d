"""The cleaner beside a log that is cut while it is compacted, as after an unclean election."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidelog.broker.cleaner import Cleaner
from tidelog.clock import SystemClock
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.ids import NO_TOPIC_ID, TopicPartition
from tidelog.storage.cleanable import read_cleaner_checkpoint
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact
from tidelog.storage.disk import RealDisk
from tidelog.storage.log_dir import LogDir
from tidelog.wire.record_batch import build_pairs, iter_batches, iter_records

PLACE = TopicPartition("accounts", 0)
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=600, min_cleanable_dirty_ratio=0.0)
NOW = 1_700_000_000_000


class Here:
    """A broker's partitions: one."""

    def __init__(self, directory: LogDir) -> None:
        self.directory = directory
        self.broker_config = BrokerConfig()
        self.replica = Replica(directory.create_log(PLACE, NO_TOPIC_ID, CONFIG, now_ms=NOW), NO_TOPIC_ID, 0)

    def __iter__(self) -> Iterator[Replica]:
        return iter([self.replica])

    def get(self, topic: str, partition: int) -> Replica:
        return self.replica

    def write(self, *pairs: tuple[bytes, bytes]) -> None:
        for pair in pairs:
            self.replica.append(build_pairs([pair], NOW), acks=1, now_ms=NOW)
        self.replica.log.flush()
        self.replica.advance_watermark()

    def records(self) -> dict[int, tuple[bytes, bytes]]:
        log = self.replica.log
        found = {}
        for segment in log.segments:
            for _, batch in iter_batches(segment.file.read(0, segment.size)):
                found.update(
                    {each.offset: (bytes(each.key or b""), bytes(each.value or b"")) for each in iter_records(batch)}
                )
        return found


class Worker:
    """Compacts here and now; and something happens before its answer arrives."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    async def compact(self, request: CompactionRequest) -> CompactionResult:
        result = compact(RealDisk(), request)
        self._meanwhile()
        self._meanwhile = lambda: None
        return result


def test_what_is_cut_off_while_a_log_is_compacted_does_not_come_back(tmp_path: Path) -> None:
    here: Any = Here(LogDir.open(RealDisk(), str(tmp_path), cluster_id="c", node_id=1, new_id=uuid4))
    here.write(*((b"key-%d" % (number % 3), b"%d" % number) for number in range(12)))

    def cut() -> None:
        here.replica.log.truncate_to(5)
        here.replica.lower_watermark(5)
        here.write((b"key-9", b"new"))
        here.replica.log.roll(NOW)  # the segment that was cut is no longer the active one

    worker: Any = Worker(cut)
    asyncio.run(Cleaner(here, worker, SystemClock()).run())
    assert max(here.records()) == 5
    assert here.records()[5] == (b"key-9", b"new")


def test_a_log_is_clean_no_further_than_where_it_was_cut(tmp_path: Path) -> None:
    """What came in its place would count as clean, and tombstones there go before what they delete."""
    directory = LogDir.open(RealDisk(), str(tmp_path), cluster_id="c", node_id=1, new_id=uuid4)
    here: Any = Here(directory)
    here.write(*((b"key-%d" % (number % 3), b"%d" % number) for number in range(30)))
    worker: Any = Worker(lambda: None)
    cleaner = Cleaner(here, worker, SystemClock())
    asyncio.run(cleaner.run())
    assert read_cleaner_checkpoint(directory.disk, directory.path)[PLACE] > 20
    here.replica.log.truncate_to(10)
    here.replica.lower_watermark(10)
    end = here.replica.log.end_offset
    here.write((b"key-9", b"new"))
    asyncio.run(cleaner.run())
    assert read_cleaner_checkpoint(directory.disk, directory.path)[PLACE] <= end + 1
