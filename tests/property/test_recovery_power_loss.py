"""Power lost at any moment, any unsynced sector kept or not: what was flushed is there, what is there was written."""

import errno
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from batches import NOW, append, batch, create_log, open_log, read_values
from sim_disk import PowerLost, SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import StorageOffline
from tidelog.storage.log import Log, delete_segments
from tidelog.storage.naming import CLEANED, LOG
from tidelog.storage.recovery import verify

DIRECTORY = "/data/orders-0"


def live(log: Log, dice: Random, written: list[tuple[int, bytes]], promised: dict[str, int]) -> None:
    """Appends, rolls, flushes and checkpoints until the power goes."""
    sequence = log.producers.producers[7].last_sequence + 1 if 7 in log.producers.producers else 0
    log.restart_point_bytes = 400
    while True:
        values = [b"%d " % dice.randrange(10**6) * dice.choice([1, 3, 90]) for _ in range(dice.randint(1, 3))]
        base = log.end_offset
        written += [(base + i, value) for i, value in enumerate(values)]  # may exist from the moment of the call
        log.append(batch(*values, producer=(7, 0, sequence)), leader_epoch=promised["epoch"], now_ms=NOW)
        sequence += len(values)
        action = dice.random()
        if action < 0.3:
            log.flush()
            promised["flushed"] = log.flushed_offset
        elif action < 0.4:
            promised["recovery_point"] = promised["flushed"]
        elif action < 0.45:
            log.roll(NOW)
        elif action < 0.5:
            point = log.begin_restart_point()
            if point is not None:
                point.run()
                log.complete_restart_point(point)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32), operations=st.integers(5, 120), interval=st.sampled_from([0, 300, 4096]))
def test_flushed_batches_survive_and_nothing_half_written_is_served(seed: int, operations: int, interval: int) -> None:
    dice = Random(seed)
    disk = SimDisk()
    config = TopicConfig(segment_bytes=3000, index_interval_bytes=interval)
    log = create_log(disk, DIRECTORY, config)
    log.flush()
    written: list[tuple[int, bytes]] = []
    promised = {"flushed": 0, "recovery_point": 0, "epoch": 0}
    for _ in range(3):
        disk.crash_after = dice.randint(0, operations)
        with pytest.raises(PowerLost):
            live(log, dice, written, promised)
        log.abandon("power lost")
        disk.crash(dice)
        log = open_log(disk, DIRECTORY, config, recovery_point=promised["recovery_point"])
        served = read_values(log)
        assert log.end_offset >= promised["flushed"]
        assert [offset for offset, _ in served] == list(range(log.end_offset))
        assert set(served) <= set(written)
        assert verify(disk, DIRECTORY).problems == []
        written[:] = served
        promised |= {"flushed": log.end_offset, "epoch": promised["epoch"] + 1}
        # The producer goes on where the log ends, and a retry of its last batch is recognised.
        if 7 in log.producers.producers:
            last = log.producers.producers[7].batches[-1]
            count = last.last_offset - last.base_offset + 1
            retry = batch(*([b"retry"] * count), producer=(7, 0, last.first_sequence))
            assert log.append(retry, leader_epoch=promised["epoch"], now_ms=NOW).base_offset == last.base_offset


def compacted_files(disk: SimDisk, log: Log, bases: list[int]) -> list[str]:
    """What a compaction of sealed segments might leave: each loses its first batch."""
    paths = []
    for base in bases:
        segment = next(one for one in log.segments if one.base_offset == base)
        keep = [position for position, _ in segment.headers()][-1]
        file = disk.open(f"{segment.path}{CLEANED}", create=True)
        file.append(segment.file.read(keep, segment.size - keep))
        file.sync()
        paths.append(file.path)
    disk.sync_dir(DIRECTORY)
    return paths


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("together", [True, False])
def test_a_swap_interrupted_anywhere_leaves_the_old_or_the_new(seed: int, together: bool) -> None:
    step = 0
    finished = False
    while not finished:
        disk = SimDisk()
        config = TopicConfig(segment_bytes=170)
        log = create_log(disk, DIRECTORY, config)
        for i in range(8):
            append(log, b"value %d" % i)
        log.flush()
        log.close()
        log = open_log(disk, DIRECTORY, config, clean=True)
        bases = [segment.base_offset for segment in log.segments[:-1]]
        assert len(bases) == 3
        old = read_values(log)
        cleaned = compacted_files(disk, log, bases[:2])
        new = [one for one in old if one[0] not in (0, 2)]
        disk.crash_after = step
        try:
            if together:
                delete_segments(log.swap_segments(log.segments[:2], cleaned))
            else:
                delete_segments(log.swap_segments(log.segments[:1], cleaned[:1]))
                delete_segments(log.swap_segments(log.segments[1:2], cleaned[1:]))
            finished = True
            assert read_values(log) == new
        except PowerLost:
            step += 1
        log.abandon("power lost")
        disk.crash(Random(seed))
        log = open_log(disk, DIRECTORY, config, recovery_point=8)
        half = [one for one in old if one[0] != 0]
        assert read_values(log) in ([old, new] if together else [old, half, new])
        assert not log.recovery.corrupt
        assert not [name for name in disk.names if name.endswith((CLEANED, ".swap", ".deleted"))]
        assert verify(disk, DIRECTORY).problems == []
    assert step > 5


@pytest.mark.parametrize("operation", ["rename", "sync_dir"])
def test_a_swap_that_fails_is_undone_or_takes_the_log_offline(operation: str) -> None:
    at = 0
    refused = True
    while refused:
        disk = SimDisk()
        config = TopicConfig(segment_bytes=170, retention_bytes=100)
        log = create_log(disk, DIRECTORY, config)
        for i in range(8):
            append(log, b"value %d" % i)
        log.flush()
        old = read_values(log)
        cleaned = compacted_files(disk, log, [segment.base_offset for segment in log.segments[:2]])
        new = [one for one in old if one[0] not in (0, 2)]
        refused = fails_at(disk, operation, at, lambda: log.swap_segments(log.segments[:2], cleaned))  # noqa: B023
        at += 1
        expected = new
        if not log.failed:
            assert read_values(log) == (old if refused else new)
            delete_segments(log.expire(NOW, log.end_offset))
            expected = old[log.start_offset :]
            assert len(expected) == 2
        log.abandon("killed")
        # What retention deleted stays so: nothing of the swap lies about that a recovery would take for decided.
        assert read_values(open_log(disk, DIRECTORY, config, recovery_point=8)) == expected


def fails_at(disk: SimDisk, operation: str, at: int, work: Callable[[], object]) -> bool:
    """Whether an error of the disk in the `at`-th operation of a kind was met and told."""
    proceed = disk.before
    numbers = count()

    def fail(name: str, path: str) -> None:
        if name == operation and next(numbers) == at:
            raise OSError(errno.EIO, name, path)
        proceed(name, path)

    disk.before = fail  # type: ignore[method-assign]
    try:
        work()
    except StorageOffline:
        return True
    finally:
        disk.before = proceed  # type: ignore[method-assign]
    return False


@pytest.mark.parametrize("seed", range(4))
def test_retention_interrupted_anywhere_leaves_a_log_without_holes(seed: int) -> None:
    step = 0
    finished = False
    while not finished:
        disk = SimDisk()
        config = TopicConfig(segment_bytes=170, retention_bytes=200)
        log = create_log(disk, DIRECTORY, config)
        for i in range(8):
            append(log, b"value %d" % i)
        log.close()
        log = open_log(disk, DIRECTORY, config, clean=True)
        disk.crash_after = step
        try:
            delete_segments(log.expire(NOW, log.end_offset))
            finished = True
        except PowerLost:
            step += 1
        log.abandon("power lost")
        disk.crash(Random(seed))
        log = open_log(disk, DIRECTORY, config, recovery_point=8)
        assert [offset for offset, _ in read_values(log)] == list(range(log.start_offset, 8))
        assert not log.recovery.corrupt


@pytest.mark.parametrize("seed", range(4))
def test_a_truncation_interrupted_anywhere_leaves_a_prefix(seed: int) -> None:
    step = 0
    finished = False
    while not finished:
        disk = SimDisk()
        config = TopicConfig(segment_bytes=170)
        log = create_log(disk, DIRECTORY, config)
        for i in range(8):
            append(log, b"value %d" % i, epoch=i // 3)
        log.close()
        log = open_log(disk, DIRECTORY, config, clean=True)
        disk.crash_after = step
        try:
            log.truncate_to(3)
            finished = True
        except PowerLost:
            step += 1
        log.abandon("power lost")
        disk.crash(Random(seed))
        log = open_log(disk, DIRECTORY, config, recovery_point=3)
        assert [offset for offset, _ in read_values(log)] == list(range(log.end_offset))
        assert log.end_offset >= 3
        assert not [name for name in disk.names if name.endswith(LOG + ".deleted")]


def test_segments_of_which_nothing_is_left_leave_a_gap_that_is_read_over() -> None:
    disk = SimDisk()
    config = TopicConfig(segment_bytes=170)
    log = create_log(disk, DIRECTORY, config)
    for i in range(8):
        append(log, b"value %d" % i)
    log.flush()
    old = read_values(log)
    gone = log.swap_segments(log.segments[1:2], [])
    delete_segments(gone)
    left = [one for one in old if not gone[0].base_offset <= one[0] < gone[0].next_offset]
    assert read_values(log) == left
    log.abandon("killed")
    assert read_values(open_log(disk, DIRECTORY, config, recovery_point=8)) == left
