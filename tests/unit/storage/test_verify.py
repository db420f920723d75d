"""`verify` sees what is wrong with a directory, goes on behind it, and changes nothing."""

import pytest
from batches import NOW, append, create_log
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.storage.verify import verify

DIRECTORY = "/data/orders-0"
FIRST = f"{0:020d}"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    log = create_log(disk, DIRECTORY, TopicConfig(segment_bytes=700, index_interval_bytes=100))
    for i in range(20):
        append(log, b"%d" % i, b"x", epoch=i // 7, producer=(1, 0, 2 * i), timestamps=[NOW + 9 - i, NOW])
    log.close()
    return disk


def problems(disk: SimDisk) -> list[str]:
    return [str(problem) for problem in verify(disk, DIRECTORY).problems]


def test_a_sound_directory(disk: SimDisk) -> None:
    report = verify(disk, DIRECTORY)
    assert report.sound
    assert (report.batches, report.records, report.start_offset, report.end_offset) == (20, 40, 0, 40)
    assert report.segments > 2
    assert report.bytes == sum(len(inode.cache) for name, inode in disk.names.items() if name.endswith(".log"))


def test_it_goes_on_behind_damage(disk: SimDisk) -> None:
    disk.names[f"{DIRECTORY}/{FIRST}.log"].cache[70] ^= 1
    report = verify(disk, DIRECTORY)
    assert str(report.problems[0]) == f"{FIRST}.log at 0: the batch does not match its checksum"
    assert [problem.file for problem in report.problems[1:]] == [f"{FIRST}.timeindex"]  # which points into it
    assert report.batches == 19


def test_a_torn_end(disk: SimDisk) -> None:
    last = max(name for name in disk.names if name.endswith(".log"))
    disk.names[last].cache[-5:] = b""
    found = problems(disk)
    assert len(found) == 1
    assert "only" in found[0]


@pytest.mark.parametrize(
    ("suffix", "position", "expected"),
    [
        (".index", 7, "does not point at its batch"),
        (".index", 0, "not ascending"),
        (".timeindex", 11, "does not fit the batch"),
        (".timeindex", 0, "not ascending"),
    ],
)
def test_wrong_index_entries(disk: SimDisk, suffix: str, position: int, expected: str) -> None:
    disk.names[f"{DIRECTORY}/{FIRST}{suffix}"].cache[position] ^= 0x80 if position == 0 else 0x02
    assert any(expected in problem for problem in problems(disk))


def test_what_is_missing_or_unreadable(disk: SimDisk) -> None:
    del disk.names[f"{DIRECTORY}/{FIRST}.index"]
    disk.names[f"{DIRECTORY}/leader-epoch-checkpoint"].cache[:] = b"?"
    snapshot = max(name for name in disk.names if name.endswith(".snapshot"))
    disk.names[snapshot].cache[8] ^= 1
    found = problems(disk)
    assert len(found) == 3
    assert [word for word in ("missing", "not an epoch checkpoint", "not a producer snapshot") if word in str(found)]


def test_a_directory_without_anything_is_sound() -> None:
    assert verify(SimDisk(), DIRECTORY).sound
