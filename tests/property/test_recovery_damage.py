"""A log cut at every byte, and with every single bit flipped: only whole, true batches are ever served again."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from batches import append, create_log, open_log, read_batches, read_values
from sim_disk import SimDisk, SimInode

from tidelog.config import TopicConfig
from tidelog.storage.recovery import verify

DIRECTORY = "/data/orders-0"
LOG = f"{DIRECTORY}/{0:020d}.log"


def written(epochs: tuple[int, ...] = (0, 0, 3, 3), config: TopicConfig | None = None) -> tuple[SimDisk, list[bytes]]:
    """A closed log of one batch an epoch, and the batches as stored."""
    disk = SimDisk()
    log = create_log(disk, DIRECTORY, config)
    for slot, epoch in enumerate(epochs):
        append(log, *(b"value %d.%d" % (slot, i) for i in range(slot % 2 + 1)), epoch=epoch, producer=(9, 0, 2 * slot))
        log.producers.producers.clear()  # sequences have gaps on purpose: only the bytes matter here
    log.flush()
    batches = [bytes(view) for _, view in read_batches(log)]
    log.abandon("stop")
    return disk, batches


def copy_of(disk: SimDisk) -> SimDisk:
    twin = SimDisk()
    twin.directories = set(disk.directories)
    for name, inode in disk.names.items():
        twin.names[name] = SimInode()
        twin.names[name].cache[:] = inode.cache
        twin.names[name].sync()
    return twin


@pytest.mark.parametrize("keep_indexes", [True, False])
def test_a_cut_at_every_byte_leaves_the_longest_valid_prefix(keep_indexes: bool) -> None:
    disk, batches = written()
    data = bytes(disk.names[LOG].cache)
    for size in range(len(data) + 1):
        damaged = copy_of(disk)
        damaged.names[LOG].cache[:] = data[:size]
        if not keep_indexes:
            for name in [name for name in damaged.names if name.endswith("index")]:
                del damaged.names[name]
        log = open_log(damaged, DIRECTORY)
        whole = [one for i, one in enumerate(batches) if sum(map(len, batches[: i + 1])) <= size]
        assert [bytes(view) for _, view in read_batches(log)] == whole
        assert log.recovery.bytes_truncated == size - sum(map(len, whole))
        assert not log.recovery.corrupt
        assert log.size_bytes == sum(map(len, whole)) == len(damaged.names[LOG].cache)
        next_offset = log.end_offset
        assert append(log, b"after", epoch=7) == next_offset
        assert read_values(log)[-1] == (next_offset, b"after")


@pytest.mark.parametrize("epochs", [(0, 0, 3, 3), (0, 1, 2, 4), (5,)])
def test_a_flipped_bit_anywhere_is_found_and_nothing_before_it_is_lost(epochs: tuple[int, ...]) -> None:
    disk, batches = written(epochs)
    data = bytes(disk.names[LOG].cache)
    ends = [sum(map(len, batches[: i + 1])) for i in range(len(batches))]
    for bit in range(len(data) * 8):
        damaged = copy_of(disk)
        damaged.names[LOG].cache[bit // 8] ^= 1 << (bit % 8)
        hit = next(i for i, end in enumerate(ends) if bit // 8 < end)
        log = open_log(damaged, DIRECTORY)
        assert [bytes(view) for _, view in read_batches(log)] == batches[:hit], f"bit {bit} in batch {hit}"
        if hit < len(batches) - 1:
            assert log.recovery.corrupt, f"bit {bit}: batches behind the damage were dropped in silence"
        for kept in log.recovery.quarantined:
            assert bytes(damaged.names[kept].cache) == flipped(data, bit)[ends[hit] - len(batches[hit]) :]
        assert bool(log.recovery.corrupt) == bool(log.recovery.quarantined)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


def test_damage_to_what_was_synced_is_kept_aside_even_at_the_end() -> None:
    disk, batches = written()
    disk.names[LOG].cache[-1] ^= 1
    log = open_log(disk, DIRECTORY, recovery_point=6)
    assert log.end_offset == 4
    assert [found.position for found in log.recovery.corrupt] == [sum(map(len, batches[:-1]))]
    assert len(log.recovery.quarantined) == 1


def test_verify_sees_every_flipped_bit_and_changes_nothing() -> None:
    disk, _ = written()
    assert verify(disk, DIRECTORY).sound
    data = bytes(disk.names[LOG].cache)
    for bit in range(len(data) * 8):
        damaged = copy_of(disk)
        damaged.names[LOG].cache[:] = flipped(data, bit)
        before = damaged.operations
        assert not verify(damaged, DIRECTORY).sound, f"bit {bit}"
        assert damaged.operations == before


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(min_size=1, max_size=600), count=st.integers(0, 6))
def test_garbage_behind_the_log_is_cut_whatever_it_is(noise: bytes, count: int) -> None:
    disk, batches = written(tuple(range(count)))
    disk.names[LOG].cache.extend(noise)
    log = open_log(disk, DIRECTORY)
    assert [bytes(view) for _, view in read_batches(log)] == batches
    assert log.recovery.bytes_truncated == len(noise)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 200))
def test_any_bytes_at_all_open_as_a_log(data: bytes, cut: int) -> None:
    """Also with indexes, snapshots and checkpoints of garbage: nothing but the log decides."""
    disk, batches = written()
    whole = bytes(disk.names[LOG].cache)
    for name, inode in disk.names.items():
        if name == LOG:
            inode.cache[:] = whole[: min(cut, len(whole))] + data
        else:
            inode.cache[:] = data
    log = open_log(disk, DIRECTORY)
    served = [bytes(view) for _, view in read_batches(log)]
    assert served == batches[: len(served)]
    assert append(log, b"after", epoch=9) == log.end_offset - 1


def test_damage_in_an_early_segment_keeps_the_later_ones_aside() -> None:
    config = TopicConfig(segment_bytes=200)
    disk, _ = written((0, 0, 0, 0, 0), config)
    logs = sorted(name for name in disk.names if name.endswith(".log"))
    assert len(logs) > 2
    contents = [bytes(disk.names[name].cache) for name in logs]
    disk.names[logs[1]].cache[40] ^= 4
    log = open_log(disk, DIRECTORY, config)
    assert b"".join(bytes(view) for _, view in read_batches(log)) == contents[0]
    kept = [bytes(disk.names[name].cache) for name in log.recovery.quarantined]
    assert kept[1:] == contents[2:]
    assert len(kept[0]) == len(contents[1])
    assert log.recovery.bytes_truncated == sum(map(len, contents[1:]))
