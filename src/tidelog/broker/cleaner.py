"""Compaction, driven: the dirtiest log first, rewritten by a worker process, swapped in between two requests."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.broker.deep_work import DeepWork
from tidelog.broker.logs import get_logger
from tidelog.broker.partitions import Partitions
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.storage.cleanable import (
    Cleanable,
    SegmentFacts,
    cleanable,
    read_cleaner_checkpoint,
    write_cleaner_checkpoint,
)
from tidelog.storage.compaction import CompactionRequest, CompactionResult
from tidelog.storage.segment import Segment
from tidelog.storage.swap import delete_segments

LEFT_ALONE_MS: Final = 600_000

log = get_logger("cleaner")


class Candidate(NamedTuple):
    replica: Replica
    work: Cleanable


class Cleaner:
    def __init__(self, partitions: Partitions, deep_work: DeepWork, clock: Clock) -> None:
        self._partitions = partitions
        self._deep_work = deep_work
        self._clock = clock
        directory = partitions.directory
        self._cleaned_to = read_cleaner_checkpoint(directory.disk, directory.path)
        self._written = True
        self._generations: dict[TopicPartition, int] = {}
        """Of the logs as they were when they were looked at last."""
        self._left_alone: dict[TopicPartition, int] = {}
        """Logs whose compaction failed, and until when on the monotonic clock: they must not starve the others, but the
        disk may have been full, or the worker been killed."""

    def forget_absent(self) -> None:
        """With every log open: a crash may have come between a topic's removal and `forget`."""
        known = {each.partition for each in self._partitions}
        present = {place: offset for place, offset in self._cleaned_to.items() if place in known}
        if present != self._cleaned_to:
            self._cleaned_to = present
            self._write_checkpoint()

    def forget(self, replicas: Iterable[Replica]) -> None:
        """These partitions are gone. A new topic of that name has nothing clean and nothing broken."""
        gone = {replica.partition for replica in replicas}
        for place in gone:
            self._left_alone.pop(place, None)
            self._generations.pop(place, None)
        if gone & self._cleaned_to.keys():
            self._cleaned_to = {place: offset for place, offset in self._cleaned_to.items() if place not in gone}
            self._written = False
            try:
                self._write_checkpoint()
            except OSError as error:
                # On a full disk topics are deleted to make room: nothing may keep them from it.
                log.warning("the cleaner's checkpoint is written later", error=str(error))

    def _write_checkpoint(self) -> None:
        directory = self._partitions.directory
        write_cleaner_checkpoint(directory.disk, directory.path, self._cleaned_to)
        self._written = True

    async def run(self) -> None:
        """Compact until nothing is due."""
        if not self._written:
            self._write_checkpoint()
        self._roll_overdue()
        while (chosen := self._dirtiest()) is not None:
            await self._clean(chosen)

    def _roll_overdue(self) -> None:
        """The active segment is never compacted, so one with records older than max.compaction.lag.ms is closed."""
        now_ms = self._clock.now_ms()
        for replica in self._partitions:
            horizon = now_ms - replica.config.max_compaction_lag_ms
            if horizon < 0 or not replica.config.compacted or replica.log.failed:
                continue
            if 0 <= replica.log.active_segment.first_timestamp < horizon:
                try:
                    replica.log.roll(now_ms)
                except KafkaError as error:
                    log.warning("cannot roll for compaction", partition=str(replica.partition), error=str(error))

    def _dirtiest(self) -> Candidate | None:
        due: list[Candidate] = []
        monotonic_ms = self._clock.monotonic_ms()
        for replica in self._partitions:
            if (
                not replica.config.compacted
                or replica.log.failure is not None
                or self._left_alone.get(replica.partition, monotonic_ms) > monotonic_ms
            ):
                continue
            work = self._assess(replica)
            if work.is_due(replica.config):
                due.append(Candidate(replica, work))
        return max(due, key=lambda each: (each.work.overdue, each.work.dirty_ratio), default=None)

    def _see_cuts(self, replica: Replica) -> None:
        """What comes in the place of records that were cut off is dirty, also below where the log was clean before."""
        place, partition_log = replica.partition, replica.log
        if partition_log.generation == self._generations.get(place, 0):
            return
        self._generations[place] = partition_log.generation
        cut = partition_log.lowest_cut
        if cut is not None and cut < self._cleaned_to.get(place, 0):
            self._cleaned_to[place] = cut
            self._write_checkpoint()

    def _assess(self, replica: Replica) -> Cleanable:
        partition_log = replica.log
        self._see_cuts(replica)
        return cleanable(
            [
                SegmentFacts(segment.base_offset, segment.size, segment.first_timestamp, segment.max_timestamp)
                for segment in partition_log.segments
            ],
            replica.config,
            cleaned_to=self._cleaned_to.get(replica.partition),
            start_offset=partition_log.start_offset,
            end_offset=partition_log.end_offset,
            upper=replica.last_stable_offset,
            now_ms=self._clock.now_ms(),
        )

    async def _clean(self, candidate: Candidate) -> None:
        replica, work = candidate
        name = str(replica.partition)
        request = CompactionRequest(
            directory=replica.log.directory,
            segments=work.segments,
            first_dirty=work.first_dirty,
            upper=work.upper,
            now_ms=self._clock.now_ms(),
            config=replica.config,
            last_offsets={each.producer_id: each.last_offset_below(work.upper) for each in replica.log.producers},
            dedupe_buffer_bytes=self._partitions.broker_config.log_cleaner_dedupe_buffer_size,
        )
        generation = replica.log.generation
        try:
            result = await self._deep_work.compact(request)
            gone = self._install(replica, result, generation)
        except (KafkaError, OSError) as error:
            if self._as_requested(replica, request, generation):
                log.error("compaction failed; this log is left as it is for a while", partition=name, error=str(error))
                self._leave_alone(replica)
            else:
                log.info("compaction interrupted: records were deleted or cut off meanwhile", partition=name)
            return
        stats = result.stats
        log.info(
            "compacted", partition=name, cleaned_to=result.cleaned_to, bytes_read=stats.bytes_read,
            bytes_written=stats.bytes_written,
        )  # fmt: skip
        await asyncio.get_running_loop().run_in_executor(None, delete_segments, gone)

    def _leave_alone(self, replica: Replica) -> None:
        self._left_alone[replica.partition] = self._clock.monotonic_ms() + LEFT_ALONE_MS

    def _install(self, replica: Replica, result: CompactionResult, generation: int) -> list[Segment]:
        """Swap the cleaned segments in and remember how far the log is clean. Returns what may be unlinked."""
        if replica.log.failed or not self._still_ours(replica):
            return []  # deleted or failed meanwhile: the cleaned files go with the directory
        if replica.log.generation != generation:
            return []  # what was cut off meanwhile would come back
        present = {segment.base_offset: segment for segment in replica.log.segments}
        if not all(base in present for base in result.replaced):
            return []  # retention took some of them meanwhile; the next round sees what is left
        gone: list[Segment] = []
        if result.cleaned or result.replaced:
            gone = replica.log.swap_segments([present[base] for base in result.replaced], result.cleaned)
        elif result.cleaned_to <= self._cleaned_to.get(replica.partition, -1):
            self._leave_alone(replica)
        self._cleaned_to[replica.partition] = result.cleaned_to
        self._write_checkpoint()
        return gone

    def _as_requested(self, replica: Replica, request: CompactionRequest, generation: int) -> bool:
        """Whether the files that were to be compacted are still all there, and whole."""
        if replica.log.failed or replica.log.generation != generation or not self._still_ours(replica):
            return False
        return {segment.base_offset for segment in replica.log.segments}.issuperset(request.segments)

    def _still_ours(self, replica: Replica) -> bool:
        try:
            return self._partitions.get(*replica.partition) is replica
        except KafkaError:
            return False
