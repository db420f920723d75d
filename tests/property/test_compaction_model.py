"""Compaction against a dict: after any history the log still says, for every key, what was written last."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import TopicConfig
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact_partition
from tidelog.storage.compaction_keys import KEY_BYTES
from tidelog.wire.compression import Codec
from tidelog.wire.record_batch import (
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    Record,
    build_batch,
    crc_of,
    iter_batches,
    iter_records,
)

RETENTION_MS = 1_000
KEYS = [b"a", b"b", b"c", b"a key longer than its digest " * 3, b"another key longer than its digest " * 3, b""]


@dataclass
class LogOnDisk:
    """Segments as files, swapped the simplest way there is; `written` is everything that was ever appended."""

    directory: Path
    config: TopicConfig
    written: list[Record] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    last_offsets: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    first_dirty: int = 0
    end: int = 0

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def roll(self) -> None:
        if not self.segments or self.segments[-1] != self.end:
            self.segments.append(self.end)
            self.path(self.end).touch()

    def append(self, bodies: list[tuple[bytes, bytes | None]], codec: int, timestamp: int, producer_id: int) -> None:
        records = [Record(self.end + i, timestamp + i, key, value) for i, (key, value) in enumerate(bodies)]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            base_offset=self.end,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence,
        )
        with self.path(self.segments[-1]).open("ab") as file:
            file.write(batch)
        self.written += records
        self.end += len(records)
        if producer_id >= 0:
            self.last_offsets[producer_id] = self.end - 1
            self.sequences[producer_id] = sequence + len(records)

    def compact(self, now_ms: int, keys_max: int = 1000) -> CompactionResult:
        request = CompactionRequest(
            directory=str(self.directory),
            segments=tuple(self.segments[:-1]),
            first_dirty=self.first_dirty,
            upper=self.segments[-1],
            now_ms=now_ms,
            config=self.config,
            last_offsets=self.last_offsets,
            dedupe_buffer_bytes=keys_max * KEY_BYTES,
        )
        active = self.path(self.segments[-1]).read_bytes()
        result = compact_partition(request)
        assert self.path(self.segments[-1]).read_bytes() == active
        for base in result.replaced:
            self.path(base).unlink()
        for path in result.cleaned:
            Path(path).rename(path.removesuffix(".cleaned"))
        for path in self.directory.glob("*index.cleaned"):
            assert str(path.with_suffix("").with_suffix(".log.cleaned")) in result.cleaned
            path.rename(str(path).removesuffix(".cleaned"))
        self.segments = sorted(int(path.stem) for path in self.directory.glob("*.log"))
        assert not list(self.directory.glob("*.cleaned"))
        assert result.cleaned_to >= self.first_dirty
        self.first_dirty = result.cleaned_to
        return result

    def batches(self) -> list[bytes]:
        data = b"".join(self.path(base).read_bytes() for base in self.segments)
        found = [bytes(batch) for _, batch in iter_batches(data)]
        assert sum(map(len, found)) == len(data)
        return found

    def records(self) -> list[Record]:
        return [record for batch in self.batches() for record in iter_records(batch)]


def check(log: LogOnDisk, *, tombstones_due: bool = False) -> None:
    records = log.records()
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), "order and uniqueness of offsets"
    original = {record.offset: record for record in log.written}
    assert all(original[record.offset] == record for record in records), "records are kept exactly or not at all"
    latest = {record.key: record for record in log.written}
    survivors = {record.key: record for record in records}
    for key, record in latest.items():
        if record.value is not None:
            assert survivors.get(key) == record, "the last value of every key survives"
        elif key in survivors:
            assert survivors[key] == record, "no value comes back from the dead"
        else:
            assert tombstones_due, "a tombstone went before its time"
    assert set(offsets) >= {record.offset for record in log.written if record.offset >= log.segments[-1]}
    below = [record.key for record in records if record.offset < log.first_dirty]
    assert len(below) == len(set(below)), "below the cleaned offset every key is there once"
    tails = {}
    for batch in log.batches():
        header, _ = next(iter_batches(batch))
        assert header.crc == crc_of(batch)
        if header.producer_id >= 0:
            tails[header.producer_id] = header.base_sequence + header.last_offset_delta + 1
    assert tails == log.sequences, "every producer's last sequence survives"


BODIES = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=20)), min_size=1, max_size=5)
APPEND = st.tuples(st.just("append"), BODIES, st.sampled_from(Codec), st.integers(-1, 2))
ROLL = st.tuples(st.just("roll"))
COMPACT = st.tuples(st.just("compact"), st.integers(1, 8), st.integers(0, 2_000))
STEPS = st.lists(st.one_of(APPEND, APPEND, ROLL, COMPACT), max_size=30)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([400, 5_000]))
def test_any_history_keeps_the_last_value_of_every_key(steps: list[tuple], segment_bytes: int) -> None:
    with TemporaryDirectory() as directory:
        config = TopicConfig(
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=RETENTION_MS,
            segment_bytes=segment_bytes,
            index_interval_bytes=50,
        )
        log = LogOnDisk(Path(directory), config)
        log.roll()
        now_ms, tombstones_due = 1_000_000, False
        for step, *arguments in steps:
            if step == "append":
                bodies, codec, producer_id = arguments
                log.append(bodies, codec, now_ms, producer_id)
            elif step == "roll":
                log.roll()
            else:
                keys_max, passed_ms = arguments
                now_ms += passed_ms
                tombstones_due = tombstones_due or now_ms - 1_000_000 >= RETENTION_MS
                log.compact(now_ms, keys_max)
                check(log, tombstones_due=tombstones_due)
        log.roll()
        while log.first_dirty < log.segments[-1]:
            log.compact(now_ms, 2)
            check(log, tombstones_due=tombstones_due)
        # Long after, the tombstones go too: run until nothing changes.
        for later in range(3):
            log.first_dirty = 0
            log.compact(now_ms + 10 * RETENTION_MS * (later + 1))
        check(log, tombstones_due=True)
        model = {record.key: record.value for record in log.written}
        assert {r.key: r.value for r in log.records()} == {k: v for k, v in model.items() if v is not None}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(BODIES, st.sampled_from(Codec), st.booleans()), min_size=1, max_size=10))
def test_a_second_run_changes_nothing(batches: list[tuple]) -> None:
    with TemporaryDirectory() as directory:
        log = LogOnDisk(Path(directory), TopicConfig(cleanup_policy=frozenset({"compact"})))
        log.roll()
        for bodies, codec, roll in batches:
            log.append(bodies, codec, 1_000, 1)
            if roll:
                log.roll()
        log.roll()
        log.compact(2_000)
        check(log)
        before = log.batches()
        log.first_dirty = 0
        assert log.compact(2_000).cleaned == ()
        assert log.batches() == before


@settings(max_examples=60, deadline=None)
@given(BODIES, st.sampled_from(Codec), st.integers(0, 3 * RETENTION_MS))
def test_tombstones_stay_exactly_their_delay(bodies: list[tuple], codec: Codec, waited_ms: int) -> None:
    with TemporaryDirectory() as directory:
        config = TopicConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=RETENTION_MS)
        log = LogOnDisk(Path(directory), config)
        log.roll()
        log.append(bodies, codec, 5_000, -1)
        log.roll()
        log.compact(10_000)
        tombstones = [record for record in log.records() if record.value is None]
        flagged = [batch for batch in log.batches() if batch[22] & HAS_DELETE_HORIZON]
        assert bool(tombstones) == bool(flagged)
        assert all(int.from_bytes(batch[27:35], "big") == 10_000 + RETENTION_MS for batch in flagged)
        log.first_dirty = 0
        log.compact(10_000 + waited_ms)
        left = [record for record in log.records() if record.value is None]
        assert left == (tombstones if waited_ms < RETENTION_MS else [])
        check(replace(log), tombstones_due=waited_ms >= RETENTION_MS)
        assert all(len(batch) >= HEADER_SIZE for batch in log.batches())
