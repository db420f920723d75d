"""Damaged partition directories: opening one never invents, reorders or hides what is whole, and never fails twice.

A directory is written, damaged in one to four ways (bits, cuts, garbage, missing, stray and swapped files), opened,
read, appended to and opened again. What is served must have been written, at its own offset.
"""

import random
import shutil
import tempfile
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.run import loop, main
from tests.unit.storage.batches import append, create_log, open_log, read_batches

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.storage.verify import verify
from tidelog.wire.record_batch import crc_of, iter_batches

Written = dict[int, bytes]
"""Base offset to the batch that was written there, from its attributes on: what its checksum protects."""


def write_log(directory: Path, dice: random.Random) -> Written:
    """Some segments, two epochs, an idempotent producer."""
    config = TopicConfig(segment_bytes=dice.choice((300, 1000, 1 << 20)), index_interval_bytes=100)
    log = create_log(RealDisk(), str(directory), config)
    sequence = 0
    for number in range(dice.randint(0, 20)):
        values = [b"%d" % number * dice.randint(0, 20) for _ in range(dice.randint(1, 3))]
        append(log, *values, epoch=number // 10, producer=(7, 0, sequence), codec=dice.choice((0, 0, 4)))
        sequence += len(values)
    log.flush()
    written = {header.base_offset: bytes(view[21:]) for header, view in read_batches(log)}
    if dice.random() < 0.5:
        log.close()
    else:
        log.abandon("crash")
    return written


def damage(directory: Path, dice: random.Random) -> None:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    kind = dice.randrange(8)
    if not files or kind == 0:
        stray = dice.choice(("x", "00000000000000000099.log", f"{0:020}.snapshot", f"{3:020}.index", "a.tmp", "é.log"))
        (directory / stray).write_bytes(dice.randbytes(dice.randint(0, 200)))
        return
    path = dice.choice([each for each in files if each.suffix == ".log"] * 3 + files)
    data = path.read_bytes()
    if kind == 1:
        path.unlink()
    elif kind == 2:
        path.write_bytes(data[: dice.randint(0, len(data))])
    elif kind == 3:
        path.write_bytes(data + dice.choice((bytes(dice.randint(1, 300)), dice.randbytes(dice.randint(1, 300)))))
    elif kind == 4 and data:
        start = dice.randrange(len(data))
        length = min(dice.randint(1, 100), len(data) - start)
        path.write_bytes(data[:start] + bytes(length) + data[start + length :])
    elif kind == 5:
        other = dice.choice(files)
        path.write_bytes(other.read_bytes())
    elif kind == 6:
        path.rename(path.with_name(path.name + dice.choice((".deleted", ".cleaned", ".swap", ".bak"))))
    else:
        path.write_bytes(mutated(data, dice))


def served(log: Log, written: Written) -> Written:
    """Everything the log serves, checked against what was written."""
    found: Written = {}
    previous = -1
    for header, view in read_batches(log):
        assert crc_of(view) == header.crc, f"batch {header.base_offset} is served with a wrong checksum"
        assert header.base_offset > previous, f"batch {header.base_offset} comes after offset {previous}"
        previous = header.last_offset
        body = bytes(view[21:])
        assert written.get(header.base_offset) == body, f"batch {header.base_offset} was never written there"
        found[header.base_offset] = body
    return found


def logs_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def is_plain(directory: Path, before: dict[str, bytes]) -> bool:
    """No file pretends to be another segment or a replacement of one: then it is clear what must be left."""
    return {path.name for path in directory.iterdir() if ".log" in path.name} <= before.keys()


def unharmed_prefix(before: dict[str, bytes], after: dict[str, bytes]) -> set[int]:
    """Base offsets of the batches before the first changed byte of the log."""
    unharmed: set[int] = set()
    for name, data in before.items():
        now = after.get(name, b"")
        pairs = enumerate(zip(data, now, strict=False))
        same = next((at for at, (old, new) in pairs if old != new), min(len(data), len(now)))
        position = 0
        for header, view in iter_batches(data):
            position += len(view)
            if position <= same:
                unharmed.add(header.base_offset)
        if now != data:
            break
    return unharmed


def one_turn(root: Path, dice: random.Random) -> None:
    directory = root / "orders-0"
    shutil.rmtree(directory, ignore_errors=True)
    written = write_log(directory, dice)
    before = logs_in(directory)
    for _ in range(dice.randint(1, 4)):
        damage(directory, dice)
    unharmed = unharmed_prefix(before, logs_in(directory)) if is_plain(directory, before) else set()
    verify(RealDisk(), str(directory))  # whatever it finds, it finds it without failing
    try:
        log = open_log(RealDisk(), str(directory))
    except CorruptMessage:
        # A replacement was decided and is damaged. Neither side of it may be guessed at, so starting is refused.
        assert list(directory.glob("*.swap")), "only a damaged swap may keep a log from opening"
        return
    found = served(log, written)
    assert unharmed <= found.keys(), f"batches {sorted(unharmed - found.keys())} before the damage are not served"
    assert log.end_offset >= max(found, default=0)
    # An epoch is outside the checksum: with its checkpoint lost too, a flipped one cannot be told from a true one.
    base = append(log, b"after", epoch=max(5, log.epochs.latest))
    log.flush()
    log.abandon("crash")
    again = open_log(RealDisk(), str(directory))
    after = {header.base_offset: bytes(view[21:]) for header, view in read_batches(again)}
    assert after.pop(base, None), "what was flushed after the recovery is gone"
    assert after == found, "a second recovery finds something else"
    again.abandon("done")


def fuzz(seconds: float, seed: int, most: int | None = None) -> int:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of fsyncs prove nothing here
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-", dir=memory) as root:
        return loop("recovery", seconds, seed, lambda dice: one_turn(Path(root), dice), most)


if __name__ == "__main__":
    main("recovery", fuzz)
