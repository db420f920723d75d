"""A log with transactions against a list: whatever happens to it, readers of committed records see exactly what was
committed, in order, and never less far than every transaction is decided."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from batches import NOW, create_log, open_log
from sim_disk import SimDisk
from txn_writer import KeyValue, Writer, compact_log, read_committed

from tidelog.config import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.recovery import verify

DIRECTORY = "/data/orders-0"
PRODUCERS = 3
SMALL = TopicConfig(segment_bytes=600, index_interval_bytes=100)
COMPACTED = TopicConfig(
    segment_bytes=600, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000
)


@dataclass
class Transaction:
    producer: int
    first: int
    marker: int | None = None
    committed: bool = False


@dataclass
class Model:
    """What was written where, and how each transaction ended."""

    records: list[tuple[int, bytes, bytes | None, Transaction | None]] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    def open_of(self, producer: int) -> Transaction | None:
        return next((each for each in self.transactions if each.producer == producer and each.marker is None), None)

    def stable(self, high_watermark: int) -> int:
        undecided = (each.first for each in self.transactions if each.marker is None or each.marker >= high_watermark)
        return min(min(undecided, default=high_watermark), high_watermark)

    def committed(self, high_watermark: int) -> list[tuple[int, bytes | None, bytes | None]]:
        stable = self.stable(high_watermark)
        return [
            (offset, key, value)
            for offset, key, value, transaction in self.records
            if offset < stable and (transaction is None or transaction.committed)
        ]

    def lose(self, end: int) -> None:
        """The power went: nothing at or behind `end` was ever written."""
        self.records = [each for each in self.records if each[0] < end]
        self.transactions = [each for each in self.transactions if each.first < end]
        for each in self.transactions:
            if each.marker is not None and each.marker >= end:
                each.marker, each.committed = None, False


class World:
    """One log, its producers, and the model beside it."""

    def __init__(self, seed: int, config: TopicConfig) -> None:
        self.dice = Random(seed)
        self.config = config
        self.disk = SimDisk()
        self.log: Log = create_log(self.disk, DIRECTORY, config)
        self.writers = [Writer(self.log, number + 1) for number in range(PRODUCERS)]
        self.model = Model()
        self.recovery_point = 0
        self.watermark = 0
        self.stable = 0
        self.clock = NOW

    # -- steps ---------------------------------------------------------------------------------------------------------

    def bodies(self) -> list[KeyValue]:
        def body() -> KeyValue:
            value = b"" if self.dice.random() < 0.2 else b"%d" % self.dice.randrange(10**6)
            return b"k%d" % self.dice.randrange(4), value or None

        return [body() for _ in range(self.dice.randint(1, 3))]

    def write(self) -> None:
        writer = self.dice.choice(self.writers)
        bodies = self.bodies()
        base = writer.write(*bodies).base_offset
        transaction = self.model.open_of(writer.producer_id)
        if transaction is None:
            transaction = Transaction(writer.producer_id, base)
            self.model.transactions.append(transaction)
        self.model.records += [(base + i, key or b"", value, transaction) for i, (key, value) in enumerate(bodies)]

    def write_plain(self) -> None:
        bodies = self.bodies()
        writer = Writer(self.log, -1, epoch=-1, sequence=-1)
        base = writer.write(*bodies, transactional=False).base_offset
        self.model.records += [(base + i, key or b"", value, None) for i, (key, value) in enumerate(bodies)]

    def end(self) -> None:
        writer = self.dice.choice(self.writers)
        committed = self.dice.random() < 0.5
        if self.dice.random() < 0.3:  # an epoch of its own for the next transaction
            writer.epoch, writer.sequence = writer.epoch + 1, 0
        if self.dice.random() < 0.2:
            writer.coordinator_epoch += 1
        marker = writer.end(committed).base_offset
        transaction = self.model.open_of(writer.producer_id)
        if transaction is not None:
            transaction.marker, transaction.committed = marker, committed

    def flush(self) -> None:
        self.log.flush()
        self.advance(self.log.flushed_offset)

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        stable = self.log.last_stable_offset(self.watermark)
        assert stable == self.model.stable(self.watermark)
        assert stable >= self.stable, "the last stable offset went back"
        self.stable = stable
        self.log.producers.transactions.settle(self.watermark)

    def checkpoint(self) -> None:
        self.recovery_point = self.log.flushed_offset
        self.log.restart_point_bytes = 100
        point = self.log.begin_restart_point()
        if point is not None and self.log.flushed_offset == self.log.end_offset:
            point.run()
            self.log.complete_restart_point(point)

    def roll(self) -> None:
        self.log.roll(self.clock)

    def restart(self) -> None:
        self.flush()
        self.log.close()
        self.lose_files()
        self.reopen(clean=True)

    def kill(self) -> None:
        self.log.abandon("killed")
        self.lose_files()
        self.reopen(clean=False)

    def lose_power(self) -> None:
        self.disk.crash(self.dice)
        self.reopen(clean=False)
        self.relearn()

    def lose_files(self) -> None:
        if self.dice.random() < 0.5:
            return
        for name in self.disk.listdir(DIRECTORY):
            if name.endswith((".snapshot", ".txnindex", ".index")) and self.dice.random() < 0.5:
                self.disk.remove(f"{DIRECTORY}/{name}")

    def reopen(self, *, clean: bool) -> None:
        point = self.log.end_offset if clean else self.recovery_point
        self.log = open_log(self.disk, DIRECTORY, self.config, recovery_point=point, clean=clean)
        for writer in self.writers:
            writer.log = self.log
        assert verify(self.disk, DIRECTORY).sound
        assert self.log.end_offset >= self.watermark, "something flushed is gone"
        self.model.lose(self.log.end_offset)
        self.advance(self.log.end_offset)  # recovery syncs what it keeps

    def relearn(self) -> None:
        """Producers go on behind what is left of their batches, or begin their epoch anew."""
        for writer in self.writers:
            known = self.log.producers.producers.get(writer.producer_id)
            same_epoch = known is not None and known.epoch == writer.epoch
            writer.sequence = known.last_sequence + 1 if known is not None and same_epoch else 0

    def compact(self) -> None:
        self.clock += self.dice.choice([1, 600, 2000])
        compact_log(self.log, now_ms=self.clock, high_watermark=self.watermark)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_exactly(self) -> None:
        start = self.dice.randint(0, self.watermark)
        everything = self.model.committed(self.watermark)
        size = self.dice.choice([200, 500, 5000])
        assert read_committed(self.log, 0, self.watermark, size) == everything
        assert read_committed(self.log, start, self.watermark, size) == [e for e in everything if e[0] >= start]

    def check_by_key(self) -> None:
        everything = self.model.committed(self.watermark)
        found = read_committed(self.log, 0, self.watermark)
        assert [each for each in found if each not in everything] == [], "not committed, or not in this form"
        latest = {key: value for _, key, value in everything}
        kept = {key: value for _, key, value in found}
        assert {key: value for key, value in kept.items() if value is not None} == {
            key: value for key, value in latest.items() if value is not None
        }


def run(seed: int, steps: int, config: TopicConfig, weights: dict[str, int], check: str) -> None:
    world = World(seed, config)
    names = list(weights)
    for _ in range(steps):
        (step,) = world.dice.choices(names, list(weights.values()))
        getattr(world, step)()
        if step in ("write", "write_plain", "end", "roll"):
            continue
        getattr(world, check)()
    world.restart()
    getattr(world, check)()


ORDINARY = {"write": 30, "write_plain": 10, "end": 18, "flush": 12, "checkpoint": 4, "roll": 2}
SEEDS = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_committed_readers_see_what_was_committed_after_any_end_of_the_process(seed: int) -> None:
    run(seed, 60, SMALL, ORDINARY | {"restart": 3, "kill": 3}, "check_exactly")


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_power_loss_reopens_transactions_and_changes_no_decision_that_was_seen(seed: int) -> None:
    run(seed, 50, SMALL, ORDINARY | {"lose_power": 3, "kill": 2}, "check_exactly")


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_compaction_keeps_the_last_committed_value_of_every_key(seed: int) -> None:
    cleaning = {"compact": 6, "roll": 6, "restart": 2, "kill": 2, "lose_power": 1}
    run(seed, 70, COMPACTED, ORDINARY | cleaning, "check_by_key")


@pytest.mark.parametrize("seed", [0])
def test_failing_seeds_of_the_past(seed: int) -> None:
    run(seed, 200, SMALL, ORDINARY | {"restart": 3, "kill": 3, "lose_power": 2}, "check_exactly")
