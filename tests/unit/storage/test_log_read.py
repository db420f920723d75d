"""Reading: bounded slices, few system calls, indexes that can be lost, and few open files."""

import os
from pathlib import Path

import pytest
from batches import NOW, append, batch, create_log, found, open_log, read_batches, read_values
from sim_disk import SimDisk, SimFile

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log, delete_segments
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.timestamps import AT_ONCE
from tidelog.wire.record_batch import HEADER_SIZE, pack_batch, read_header

DIRECTORY = "/data/orders-0"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of all reads from files."""
    lengths: list[int] = []
    read = SimFile.read

    def counted(self: SimFile, position: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, position, length)

    monkeypatch.setattr(SimFile, "read", counted)
    return lengths


def filled(disk: SimDisk, count: int = 400, **settings: int) -> Log:
    log = create_log(disk, DIRECTORY, TopicConfig(**settings))  # type: ignore[arg-type]
    for i in range(count):
        append(log, b"%04d" % i, timestamps=[NOW + i])
    return log


def test_the_tail_is_read_without_looking(disk: SimDisk, reads: list[int]) -> None:
    log = filled(disk)
    for offset in range(300, 400):
        for upper in (offset, offset + 1, 400):
            piece = log.read(offset, 1 << 20, upper=upper)
            assert (piece.length > 0) == (upper > offset)
    assert reads == []


def test_history_costs_one_small_read_a_fetch(disk: SimDisk, reads: list[int]) -> None:
    log = filled(disk, 2000)
    log.read(1, 1 << 20, upper=2000)
    assert len(reads) == 1
    assert reads[0] <= 8192
    log.read(700, 1 << 20, upper=2000)
    assert len(reads) == 2


def test_a_batch_beyond_max_bytes_comes_whole_or_cut_as_asked(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"x" * 1000)
    append(log, b"y")
    size = len(batch(b"x" * 1000))
    assert log.read(0, 10, upper=2).length == size
    assert log.read(0, 10, upper=2, min_one=False).length == 10
    assert log.read(0, size + 5, upper=2).length == size + 5


def test_a_batch_that_reaches_upper_is_left_out(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"0", b"1")
    append(log, b"2", b"3", b"4")
    assert read_header(batch(b"0", b"1")).size == log.read(0, 1 << 20, upper=4).length
    assert log.read(2, 1 << 20, upper=4).length == 0


def index_files(disk: SimDisk) -> dict[str, bytes]:
    return {name: bytes(inode.cache) for name, inode in disk.names.items() if name.endswith("index")}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["lost", "zeros", "half", "shifted", "garbage"])
def test_damaged_indexes_are_made_again_byte_for_byte(disk: SimDisk, how: str, clean: bool) -> None:
    log = filled(disk, 300, segment_bytes=6000, index_interval_bytes=300)
    log.close()
    good = index_files(disk)
    assert len(good) > 6
    for name in good:
        cache = disk.names[name].cache
        if how == "lost":
            del disk.names[name]
        elif how == "zeros":
            cache[:] = bytes(len(cache))
        elif how == "half":
            del cache[len(cache) // 2 + 1 :]
        elif how == "shifted":
            cache[7:] = cache[7:-1] + b"\x01" if len(cache) > 8 else cache[7:]
        else:
            cache[:] = os.urandom(len(cache))
    config = TopicConfig(segment_bytes=6000, index_interval_bytes=300)
    again = open_log(disk, DIRECTORY, config, clean=clean, recovery_point=300 if clean else 0)
    for offset in range(0, 300, 7):
        assert read_values(again, offset)[0] == (offset, b"%04d" % offset)
    for segment in again.segments:
        segment.rebuild_indexes()
    again.close()
    assert index_files(disk) == good


def test_a_wrong_index_entry_is_noticed_by_the_reader(disk: SimDisk) -> None:
    log = filled(disk, 300, segment_bytes=6000, index_interval_bytes=300)
    log.close()
    name = f"{DIRECTORY}/{0:020d}.index"
    disk.names[name].cache[7] ^= 0x10  # still ascending, but beside its batch
    config = TopicConfig(segment_bytes=6000, index_interval_bytes=300)
    again = open_log(disk, DIRECTORY, config, clean=True, recovery_point=300)
    for offset in range(60):
        assert read_values(again, offset, offset + 1) == [(offset, b"%04d" % offset)]
    assert again.segments[0].rebuilt


def test_a_damaged_batch_header_is_an_error_and_not_a_batch(disk: SimDisk) -> None:
    log = filled(disk, 300, segment_bytes=6000, index_interval_bytes=300)
    log.close()
    disk.names[f"{DIRECTORY}/{0:020d}.log"].cache[16] = 7
    again = open_log(disk, DIRECTORY, TopicConfig(segment_bytes=6000), clean=True, recovery_point=300)
    with pytest.raises(CorruptMessage):
        again.read(2, 1 << 20, upper=300)
    assert read_values(again, 200)[0][0] == 200


def test_kafkas_index_formats(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY, TopicConfig(index_interval_bytes=100))
    for i in range(4):
        append(log, b"a", b"b", timestamps=[NOW, NOW + i])
    size = log.size_bytes // 4
    log.roll(NOW)
    files = index_files(disk)
    # An entry is due once more than the interval was written since the last: from the third batch on.
    position = next(one for one in range(4) if one * size > 100) * size
    last = position // size * 2 + 1
    index = files[f"{DIRECTORY}/{0:020d}.index"]
    assert index[:8] == last.to_bytes(4, "big") + position.to_bytes(4, "big")
    times = files[f"{DIRECTORY}/{0:020d}.timeindex"]
    assert times[:12] == (NOW + position // size).to_bytes(8, "big") + last.to_bytes(4, "big")
    assert times[-12:] == (NOW + 3).to_bytes(8, "big") + (7).to_bytes(4, "big")


def test_cold_segments_share_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk()
    directory = f"{tmp_path}/orders-0"
    config = TopicConfig(segment_bytes=100)
    log = create_log(disk, directory, config)
    for i in range(40):
        append(log, b"%d" % i)
    log.close()
    before = len(os.listdir("/proc/self/fd"))
    shared = OpenSegments(limit=4)
    log = open_log(disk, directory, config, clean=True, recovery_point=40, open_segments=shared)
    assert len(os.listdir("/proc/self/fd")) == before
    held = log.read(0, 1000, upper=40)
    content = held.file.read(held.position, held.length)
    for offset in range(40):
        assert read_values(log, offset, offset + 1) == [(offset, b"%d" % offset)]
    assert len(shared) == 4
    assert len(os.listdir("/proc/self/fd")) <= before + 6
    assert held.file.read(held.position, held.length) == content
    log.close()


def test_find_by_time_inside_a_compressed_batch(disk: SimDisk) -> None:
    log = create_log(disk, DIRECTORY)
    append(log, b"a", b"b", b"c", timestamps=[NOW + 5, NOW + 9, NOW + 1], codec=1)
    append(log, b"d", timestamps=[NOW + 7], epoch=2)
    assert found(log.find_by_time(NOW + 6, 4)) == (1, NOW + 9, 0)
    assert found(log.find_by_time(NOW + 6, 1)) is None
    assert found(log.find_by_time(NOW, 4)) == (0, NOW + 5, 0)
    assert found(log.find_by_time(NOW + 10, 4)) is None
    assert found(log.find_newest(4)) == (1, NOW + 9, 0)
    log.advance_start_offset(2)
    assert found(log.find_by_time(NOW + 6, 4)) == (3, NOW + 7, 2)
    assert found(log.find_newest(4)) == (3, NOW + 7, 2)
    assert [header.base_offset for header, _ in read_batches(log)] == [0, 3]


def test_find_by_time_where_every_record_has_the_time_of_its_batch(disk: SimDisk) -> None:
    """Without looking: a batch may claim two billion records, and nobody has counted them."""
    log = create_log(disk, DIRECTORY, TopicConfig(message_timestamp_type="LogAppendTime"))
    count = 2**31 - 1
    claim = read_header(batch(b"x", codec=1))._replace(last_offset_delta=count - 1, records_count=count)
    log.append(pack_batch(claim, batch(b"x", codec=1)[HEADER_SIZE:]), leader_epoch=0, now_ms=NOW)
    log.advance_start_offset(count - 1)
    assert found(log.find_by_time(NOW, count)) == (count - 1, NOW, 0)
    assert found(log.find_newest(count)) == (count - 1, NOW, 0)


def test_a_search_by_time_goes_on_after_a_pause_in_which_the_log_was_cut(disk: SimDisk) -> None:
    """It pauses however many records a batch has, since others wait meanwhile, and retention does not wait for it."""
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=200_000, retention_ms=1))
    values = [b"x"] * 3 * AT_ONCE
    append(log, *values, timestamps=[NOW - 9] * (len(values) - 1) + [NOW])
    append(log, *values, timestamps=[NOW - 9] * (len(values) - 1) + [NOW + 1])
    log.roll(NOW)
    by_time, newest = log.find_by_time(NOW, log.end_offset), log.find_newest(log.end_offset)
    next(by_time)
    next(newest)
    delete_segments(log.expire(NOW + 1000, log.end_offset))
    assert found(by_time) == (len(values) - 1, NOW, 0)
    assert found(newest) == (2 * len(values) - 1, NOW + 1, 0)
    assert found(log.find_by_time(NOW, log.end_offset)) is None
