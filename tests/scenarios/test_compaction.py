"""Compacted topics end to end: what is left is the last value of every key, at its own offset, whatever happens."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.records import Record

from . import kit

EAGER = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "50"}
SMALL = {"cleanup_policy": "compact", "segment_bytes": 4000, "min_cleanable_dirty_ratio": 0.01}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(EAGER) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected


def size_of(directory: Path, topic: str) -> int:
    total = 0
    for path in (directory / f"{topic}-0").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # just compacted away
            total += path.stat().st_size
    return total


def last_per_key(records: list[Record]) -> dict[bytes, bytes]:
    return {bytes(each.key or b""): bytes(each.value) for each in records if each.value is not None}


def update(connection: Connection, topic: str, dice: random.Random, rounds: int, keys: int = 20) -> dict[bytes, int]:
    """Random updates in batches of ten; where the last one of every key is."""
    latest = {}
    for _ in range(rounds):
        pairs = [(b"key-%d" % dice.randrange(keys), b"%d" % dice.randrange(10**9) * 8) for _ in range(10)]
        base = kit.store(connection, topic, *pairs)
        latest.update({key: base + delta for delta, (key, _) in enumerate(pairs)})
    return latest


def test_what_is_left_is_a_dict(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "table", **SMALL)
    latest = update(connection, "table", random.Random(1), rounds=100)
    expected = last_per_key(kit.read_all(connection, "table"))
    kit.eventually(lambda: len(kit.read_all(connection, "table")) < 150, "of the thousand records few are left")
    records = kit.read_all(connection, "table")
    assert last_per_key(records) == expected
    places = {bytes(each.key or b""): each.offset for each in records}
    assert places == latest, "a record's offset changed"
    offsets = [each.offset for each in records]
    assert offsets == sorted(offsets)
    assert kit.offset_at(connection, "table", kit.LATEST) == 1000
    assert kit.offset_at(connection, "table", kit.EARLIEST) == 0
    # From any offset a reader finds the next record that is left. Compaction may go on meanwhile: then look again.
    while True:
        left = [each.offset for each in kit.read_all(connection, "table")]
        starts = random.Random(2).sample(range(1000), 25)
        found = {start: kit.read_all(connection, "table", start=start)[0].offset for start in starts}
        if left == [each.offset for each in kit.read_all(connection, "table")]:
            break
    assert found == {start: min(each for each in left if each >= start) for start in starts}


def test_tombstones_go_after_their_time(broker: Broker, connection: Connection) -> None:
    kit.create_topic(connection, "graves", delete_retention_ms=300, **SMALL)
    for number in range(50):
        kit.store(connection, "graves", (b"%d" % number, b"x" * 100))
    kit.store(connection, "graves", *[(b"%d" % number, None) for number in range(0, 50, 2)])

    def left() -> set[bytes]:
        # New records, so that there is something dirty and the tombstones leave the active segment.
        kit.store(connection, "graves", (b"filler", b"y" * 2000))
        return {bytes(each.key or b"") for each in kit.read_all(connection, "graves")} - {b"filler"}

    odd = {b"%d" % number for number in range(1, 50, 2)}
    kit.eventually(lambda: left() == odd, "only the odd keys are left, without tombstones")


def test_a_null_key_is_refused(connection: Connection) -> None:
    kit.create_topic(connection, "keyed", **SMALL)
    for batch in (kit.batch_of((None, b"x")), kit.batch_of((b"k", b"v"), (None, b"x"), codec=4)):
        assert kit.produce(connection, "keyed", batch).error_code == ErrorCode.INVALID_RECORD
    assert kit.read_all(connection, "keyed") == []


def test_compact_and_delete(broker: Broker, connection: Connection) -> None:
    """Old keys expire although nothing overwrote them; the two jobs do not get into each other's way. A segment goes
    as a whole, so those that share one with new records stay."""
    kit.create_topic(connection, "both", **{**SMALL, "cleanup_policy": "compact,delete", "retention_ms": 3_600_000})
    stale = kit.now_ms() - 2 * 3_600_000
    for number in range(60):
        kit.store(connection, "both", (b"old-%d" % number, b"x" * 100), timestamp=stale)
    latest = update(connection, "both", random.Random(3), rounds=60, keys=5)

    def clean() -> bool:
        kit.store(connection, "both", (b"key-0", b"x" * 500))
        keys = [bytes(each.key or b"") for each in kit.read_all(connection, "both")]
        return sum(key.startswith(b"old") for key in keys) < 30 and len(keys) < 100

    kit.eventually(clean, "old keys are gone and the rest is compacted")
    found = {bytes(each.key or b""): each.offset for each in kit.read_all(connection, "both")}
    assert {key: found[key] for key in latest if key != b"key-0"} == {k: v for k, v in latest.items() if k != b"key-0"}


def test_max_compaction_lag_reaches_the_active_segment(broker: Broker, connection: Connection) -> None:
    """The dirty ratio would never ask for it, and the segment is far from full."""
    kit.create_topic(
        connection, "lag", cleanup_policy="compact", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=200
    )
    for number in range(50):
        kit.store(connection, "lag", (b"same", b"%d" % number))
    kit.eventually(lambda: len(kit.read_all(connection, "lag")) == 1, "one record of the key is left")
    assert kit.values(kit.read_all(connection, "lag")) == [b"49"]


def test_a_recreated_topic_is_compacted_from_its_start(broker: Broker, connection: Connection) -> None:
    for _ in range(2):
        kit.create_topic(connection, "reborn", **SMALL)
        update(connection, "reborn", random.Random(4), rounds=60, keys=3)
        kit.eventually(lambda: len(kit.read_all(connection, "reborn")) < 100, "compacted")
        duplicates = kit.read_all(connection, "reborn")[:3]
        assert len({each.key for each in duplicates}) == len(duplicates), "the beginning counted as clean already"
        kit.delete_topic(connection, "reborn")
        assert "reborn" not in (broker.data_dir / "cleaner-offset-checkpoint").read_text()


def test_deleting_a_topic_while_it_is_compacted(broker: Broker, connection: Connection) -> None:
    for turn in range(5):
        kit.create_topic(connection, "flicker", **SMALL)
        update(connection, "flicker", random.Random(turn), rounds=20)
        time.sleep(0.01 * turn)
        kit.delete_topic(connection, "flicker")
    kit.create_topic(connection, "flicker", **SMALL)
    update(connection, "flicker", random.Random(9), rounds=60)
    kit.eventually(lambda: len(kit.read_all(connection, "flicker")) < 200, "the last one is still compacted")


def test_producing_goes_on_while_a_log_is_compacted(broker: Broker, connection: Connection) -> None:
    """Compaction works in another process: a thread of this one would be in everybody's way. Seen in CPU time, which a
    busy machine does not stretch."""
    kit.create_topic(connection, "busy", cleanup_policy="compact", segment_bytes=1 << 16, min_cleanable_dirty_ratio=1)
    kit.create_topic(connection, "quick", flush_on_ack="false")
    bodies = [(b"key-%d" % (number % 50), b"x" * (number * 37 % 200)) for number in range(2000)]
    batch = kit.batch_of(*bodies, codec=3)
    for _ in range(400):
        assert kit.produce(connection, "busy", batch, acks=1).error_code == 0

    def broker_cpu_s() -> float:
        """Of all threads of this process but the one that tests."""
        return time.process_time() - time.thread_time()

    began = broker_cpu_s()
    for _ in range(300):
        kit.store(connection, "quick", b"x")
    alone = (broker_cpu_s() - began) / 300
    before = size_of(broker.data_dir, "busy")
    assert kit.alter_config(connection, kit.TOPIC, "busy", {"min.cleanable.dirty.ratio": "0.01"}).error_code == 0
    count = 0
    began = broker_cpu_s()
    deadline = time.monotonic() + 120
    while size_of(broker.data_dir, "busy") >= before / 4:
        assert time.monotonic() < deadline, "compaction did not finish"
        kit.store(connection, "quick", b"x")
        count += 1
    together = (broker_cpu_s() - began) / count
    assert together < 3 * alone + 0.0005, f"{together * 1e3:.2f} ms while compacting, {alone * 1e3:.2f} ms without"
    assert count > 20, "compaction was too quick to be in the way of anything"


def test_kill_9_during_compaction_loses_nothing(tmp_path: Path) -> None:
    dice = random.Random(5)
    expected: dict[bytes, bytes] = {}
    with Server(tmp_path, settings=EAGER) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "survivor", **SMALL)
        for _ in range(4):
            deadline = time.monotonic() + dice.uniform(0.2, 0.5)
            with server.connect() as connection:
                while time.monotonic() < deadline:
                    pairs = [(b"key-%d" % dice.randrange(20), b"%d" % dice.randrange(10**9) * 8) for _ in range(10)]
                    kit.store(connection, "survivor", *pairs)
                    expected.update(pairs)
            server.kill()
            server.start()
            with server.connect() as connection:
                assert last_per_key(kit.read_all(connection, "survivor")) == expected
        with server.connect() as connection:
            kit.eventually(lambda: len(kit.read_all(connection, "survivor")) < 300, "compaction still works")
            assert last_per_key(kit.read_all(connection, "survivor")) == expected
