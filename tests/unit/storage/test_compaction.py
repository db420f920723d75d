"""Compaction case by case: what it keeps, what it refuses to touch, what it leaves on the disk."""

import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.ids import TopicPartition
from tidelog.storage import cleaning
from tidelog.storage.cleaning import CompactionStats
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact, compact_partition
from tidelog.storage.compaction_keys import DIGEST_SIZE, KEY_BYTES, key_digest
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.wire.compression import Codec
from tidelog.wire.record_batch import (
    HAS_DELETE_HORIZON,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    iter_batches,
    iter_records,
    pack_batch,
    read_header,
)

NOW = 1_700_000_000_000
DAY = 86_400_000
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


def batch(base: int, *bodies: tuple[bytes | None, bytes | None], **fields: int) -> bytes:
    records = [Record(base + i, NOW + i, key, value) for i, (key, value) in enumerate(bodies)]
    return build_batch(records, base_offset=base, **fields)


class Partition:
    """A directory of sealed segments; each is a list of batches."""

    def __init__(self, directory: Path, *segments: list[bytes], config: TopicConfig = COMPACTED) -> None:
        self.directory = directory
        self.config = config
        self.bases: list[int] = []
        self.end = 0
        for batches in segments:
            self.bases.append(read_header(batches[0]).base_offset)
            self.path(self.bases[-1]).write_bytes(b"".join(batches))
            self.end = read_header(batches[-1]).last_offset + 1

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def request(self, **changes: object) -> CompactionRequest:
        fields: dict[str, object] = {
            "directory": str(self.directory),
            "segments": tuple(self.bases),
            "first_dirty": 0,
            "upper": self.end,
            "now_ms": NOW,
            "config": self.config,
        }
        return CompactionRequest(**(fields | changes))  # type: ignore[arg-type]

    def compact(self, **changes: object) -> CompactionResult:
        return compact_partition(self.request(**changes))

    def after(self, result: CompactionResult) -> bytes:
        """The log as it reads once the result is swapped in."""
        kept = [self.path(base) for base in self.bases if base not in result.replaced]
        paths = sorted([*kept, *map(Path, result.cleaned)], key=lambda path: path.name)
        return b"".join(path.read_bytes() for path in paths)


def contents(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for _, found in iter_batches(data) for r in iter_records(found)]


def test_the_last_record_of_a_key_stays_at_its_offset(tmp_path: Path) -> None:
    partition = Partition(
        tmp_path,
        [batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")), batch(3, (b"c", b"1"), codec=Codec.ZSTD)],
        [batch(4, (b"a", b"3"), (b"d", b"1"), codec=Codec.LZ4), batch(6, (b"d", b"2"))],
    )
    result = partition.compact()
    data = partition.after(result)
    assert contents(data) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (6, b"d", b"2")]
    headers = [header for header, _ in iter_batches(data)]
    assert [(h.base_offset, h.last_offset, h.codec) for h in headers] == [(0, 2, 0), (3, 3, 4), (4, 5, 3), (6, 6, 0)]
    assert [h.max_timestamp for h in headers] == [NOW + 1, NOW, NOW, NOW]
    assert result.cleaned_to == partition.end == 7


def test_untouched_batches_are_the_same_bytes(tmp_path: Path) -> None:
    whole = batch(3, (b"c", b"1"), (b"d", b"1"), codec=Codec.GZIP)
    partition = Partition(tmp_path, [batch(0, (b"a", b"1"), (b"a", b"2"), (b"b", b"1")), whole])
    result = partition.compact()
    assert whole in partition.after(result)
    assert (result.stats.batches_copied, result.stats.batches_rewritten) == (1, 1)
    assert (result.stats.records_read, result.stats.records_kept, result.stats.keys) == (5, 4, 4)


def test_a_clean_log_is_not_written_again(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100, index_interval_bytes=0)
    segments = [[batch(i * 100 + j, (b"%d" % (i * 100 + j), b"v")) for j in range(100)] for i in range(3)]
    partition = Partition(tmp_path, *segments, config=config)
    result = partition.compact()
    assert (result.replaced, result.cleaned, result.cleaned_to) == ((), (), 300)
    assert result.stats.bytes_written == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{base:020d}.log" for base in (0, 100, 200)]


def test_a_result_has_no_gaps_so_that_it_swaps_in_one_step(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=50)
    partition = Partition(
        tmp_path,
        [batch(0, (b"first", b"1"))],
        [batch(1, (b"a", b"1"), (b"b", b"1"))],
        [batch(3, (b"c", b"1"))],
        [batch(4, (b"d", b"1"), (b"d", b"2"))],
        [batch(6, (b"a", b"2"))],
        config=config,
    )
    result = partition.compact()
    assert result.replaced == (1, 3, 4)
    assert [Path(path).name for path in result.cleaned] == [f"{base:020d}.log.cleaned" for base in (1, 3, 4)]
    assert partition.path(3, ".log.cleaned").read_bytes() == partition.path(3).read_bytes()


def test_small_neighbours_become_one_segment(tmp_path: Path) -> None:
    one = len(batch(0, (b"a", b"v" * 100)))
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=3 * one + 10)
    partition = Partition(tmp_path, *[[batch(i, (b"%d" % i, b"v" * 100))] for i in range(7)], config=config)
    result = partition.compact()
    assert result.replaced == tuple(range(6))
    assert [Path(path).name for path in result.cleaned] == [f"{base:020d}.log.cleaned" for base in (0, 3)]
    assert [key for _, key, _ in contents(partition.after(result))] == [b"%d" % i for i in range(7)]


def test_segments_too_far_apart_for_relative_offsets_stay_apart(tmp_path: Path) -> None:
    far = 1 << 31
    partition = Partition(
        tmp_path, [batch(0, (b"a", b"1"))], [batch(far, (b"b", b"1"))], [batch(far + 1, (b"c", b"1"))]
    )
    assert partition.compact().replaced == (far, far + 1)


def test_the_end_of_every_cleaned_segment_is_told_by_its_last_batch(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=150)
    partition = Partition(
        tmp_path,
        [batch(0, (b"a", b"1")), batch(1, (b"b", b"1"))],
        [batch(2, (b"a", b"2")), batch(3, (b"b", b"2"))],
        [batch(4, (b"a", b"3" * 100), (b"b", b"3"))],
        config=config,
    )
    result = partition.compact()
    headers = [header for header, _ in iter_batches(partition.after(result))]
    assert [(h.last_offset, h.records_count) for h in headers] == [(3, 0), (5, 2)]


def test_indexes_are_the_ones_a_rebuild_makes(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=300)
    batches = [batch(i * 2, (b"%d" % (i % 90), b"v" * (i % 50)), (b"x", b"")) for i in range(200)]
    partition = Partition(tmp_path, batches[:120], batches[120:], config=config)
    result = partition.compact()
    (cleaned,) = result.cleaned
    written = {suffix: partition.path(0, f"{suffix}.cleaned").read_bytes() for suffix in (".index", ".timeindex")}
    assert len(written[".index"]) > 80
    rebuilt = tmp_path / "rebuilt"
    rebuilt.mkdir()
    data = Path(cleaned).read_bytes()
    (rebuilt / f"{0:020d}.log").write_bytes(data)
    segment = Segment(RealDisk(), str(rebuilt), 0, size=len(data), index_interval=300, created_ms=0)
    segment.sealed = True
    segment.rebuild_indexes()
    assert written == {suffix: (rebuilt / f"{0:020d}{suffix}").read_bytes() for suffix in written}


def test_nothing_at_or_beyond_upper_is_looked_at_or_lost(tmp_path: Path) -> None:
    open_end = batch(2, (b"a", b"2"), (b"b", b"2"), (b"b", b"3"))
    partition = Partition(tmp_path, [batch(0, (b"a", b"0"), (b"a", b"1")), open_end])
    for upper in (2, 3, 4):
        result = partition.compact(upper=upper)
        assert partition.after(result).endswith(open_end)
        assert contents(partition.after(result))[0] == (1, b"a", b"1")
        assert result.cleaned_to == 2


def test_a_full_map_cleans_as_far_as_it_reaches(tmp_path: Path) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"c", b"1"), (b"a", b"3"))])
    result = partition.compact(dedupe_buffer_bytes=2 * KEY_BYTES)
    assert result.cleaned_to == 3
    assert [offset for offset, _, _ in contents(partition.after(result))] == [1, 2, 3, 4]
    assert partition.compact(dedupe_buffer_bytes=0).cleaned_to == 2  # one key at least, or it would never end


def test_the_map_takes_the_memory_it_was_given(tmp_path: Path) -> None:
    keys = 10_000
    batches = [
        batch(i * 100, *((b"a key of many bytes %d" % (i * 100 + j), b"") for j in range(100))) for i in range(150)
    ]
    partition = Partition(tmp_path, batches)
    tracemalloc.start()
    result = partition.compact(dedupe_buffer_bytes=keys * KEY_BYTES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.stats.keys == keys
    assert result.cleaned_to == keys
    assert peak < keys * KEY_BYTES + 5 * cleaning.READ_CHUNK


@pytest.mark.parametrize("codec", list(Codec))
def test_tombstones_outlive_the_values_they_delete(tmp_path: Path, codec: Codec) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", b""), codec=codec)])
    first = partition.compact()
    data = partition.after(first)
    assert contents(data) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"")]
    ((header, found),) = iter_batches(data)
    assert header.attributes & HAS_DELETE_HORIZON
    assert (header.base_timestamp, header.max_timestamp) == (NOW + DAY, NOW + 3)
    assert [record.timestamp for record in iter_records(found)] == [NOW + 1, NOW + 2, NOW + 3]

    partition.path(0).write_bytes(data)
    assert partition.compact(first_dirty=4, now_ms=NOW + DAY - 1).cleaned == ()
    last = partition.compact(first_dirty=4, now_ms=NOW + DAY)
    assert contents(partition.after(last)) == [(1, b"b", b"1"), (3, b"c", b"")]
    assert last.stats.tombstones_dropped == 1


def test_append_times_survive_the_start_of_the_clock(tmp_path: Path) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", None), append_time_ms=NOW - 5)])
    ((header, found),) = iter_batches(partition.after(partition.compact()))
    assert header.attributes & LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(found)] == [NOW - 5]


def test_a_producers_last_batch_survives_as_a_header(tmp_path: Path) -> None:
    fields = {"producer_id": 7, "producer_epoch": 2, "leader_epoch": 4}
    partition = Partition(
        tmp_path,
        [
            batch(0, (b"a", b"1"), base_sequence=10, codec=Codec.GZIP, **fields),
            batch(1, (b"a", b"2"), (b"b", b"1"), base_sequence=11, codec=Codec.GZIP, **fields),
            batch(3, (b"a", b"3"), (b"b", b"2")),
        ],
    )
    data = partition.after(partition.compact(last_offsets={7: 2, 8: 0}))
    empty, _ = iter_batches(data)
    header = empty[0]
    assert (header.base_offset, header.last_offset, header.records_count, header.size) == (1, 2, 0, 61)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
    assert header.partition_leader_epoch == 4
    partition.path(0).write_bytes(data)
    assert partition.compact(last_offsets={7: 2}).cleaned == ()
    assert len(list(iter_batches(partition.after(partition.compact(last_offsets={}))))) == 1, (
        "an expired producer's goes"
    )


def test_records_without_key_go(tmp_path: Path) -> None:
    partition = Partition(tmp_path, [batch(0, (None, b"from before the topic was compacted"), (b"a", b"1"))])
    assert contents(partition.after(partition.compact())) == [(1, b"a", b"1")]


def test_a_flipped_bit_stops_compaction_and_leaves_everything(tmp_path: Path) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", b"1"))], [batch(1, (b"a", b"2"))], [batch(2, (b"b", b"1"))])
    for base in partition.bases:
        good = partition.path(base).read_bytes()
        bad = bytearray(good)
        bad[-3] ^= 4
        partition.path(base).write_bytes(bad)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(CorruptMessage, match="checksum"):
            partition.compact()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        partition.path(base).write_bytes(good)


@pytest.mark.parametrize("cut", [1, 30, 61, 62])
def test_a_torn_segment_stops_compaction(tmp_path: Path, cut: int) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", b"1")), batch(1, (b"a", b"2"))])
    partition.path(0).write_bytes(partition.path(0).read_bytes()[:-cut])
    with pytest.raises(CorruptMessage):
        partition.compact()
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}.log"]


def test_a_batch_its_producer_garbled_is_kept_as_it_is(tmp_path: Path) -> None:
    garbled = pack_batch(read_header(batch(2, (b"a", b"2"))), b"\x10\x00\x00\x00\x02")
    partition = Partition(tmp_path, [batch(0, (b"a", b"0"), (b"a", b"1"))], [garbled])
    result = partition.compact()
    assert partition.after(result).endswith(garbled)
    assert contents(partition.after(result)[: -len(garbled)]) == [(1, b"a", b"1")]
    assert result.stats.batches_undecodable == 1


def test_leftovers_of_a_killed_compaction_are_removed(tmp_path: Path) -> None:
    partition = Partition(tmp_path, [batch(0, (b"a", b"1"), (b"a", b"2"))], [batch(2, (b"b", b"1"))])
    for base in (0, 2):
        for suffix in (".log", ".index", ".timeindex"):
            partition.path(base, f"{suffix}.cleaned").write_bytes(b"half a segment" * 1000)
    result = partition.compact()
    assert contents(partition.after(result)) == [(1, b"a", b"2"), (2, b"b", b"1")]
    assert not partition.path(2, ".log.cleaned").exists()


@pytest.mark.parametrize("chunk", [61, 100, 1000])
def test_chunks_smaller_than_batches_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    batches = [batch(i * 2, (b"%d" % (i % 9), b"v" * (i * 7 % 300)), (b"x", b"")) for i in range(60)]
    partition = Partition(tmp_path, batches[:30], batches[30:])
    expected = partition.after(partition.compact())
    monkeypatch.setattr(cleaning, "READ_CHUNK", chunk)
    monkeypatch.setattr(cleaning, "WRITE_CHUNK", chunk)
    assert partition.after(partition.compact()) == expected


def test_progress_is_told_segment_by_segment(tmp_path: Path) -> None:
    partition = Partition(tmp_path, *[[batch(i, (b"a", b"%d" % i))] for i in range(4)])
    seen: list[int] = []
    result = compact(RealDisk(), partition.request(), lambda stats: seen.append(stats.bytes_read))
    assert len(seen) == 4
    assert seen == sorted(seen)
    assert seen[-1] == result.stats.bytes_read == sum(partition.path(base).stat().st_size for base in partition.bases)
    assert isinstance(result.stats, CompactionStats)


def test_short_keys_stand_for_themselves_and_never_for_a_digest() -> None:
    assert key_digest(b"short") == b"short"
    assert key_digest(b"s" * (DIGEST_SIZE - 1)) == b"s" * (DIGEST_SIZE - 1)
    assert {len(key_digest(b"l" * length)) for length in range(DIGEST_SIZE, 200)} == {DIGEST_SIZE}
    assert len({key_digest(bytes([i]) * 80) for i in range(256)}) == 256


def test_a_log_is_compacted_by_a_worker_process_and_swapped(tmp_path: Path) -> None:
    directory = str(tmp_path / "orders-0")
    partition = TopicPartition("orders", 0)
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2_000)
    log = Log.create(RealDisk(), directory, partition, config, now_ms=NOW)
    for i in range(200):
        value = b"%d" % i * 10 if i % 10 else None
        log.append(
            batch(0, (b"key %d" % (i % 20), value), producer_id=5, producer_epoch=0, base_sequence=i),
            leader_epoch=0,
            now_ms=NOW,
        )
    sealed = log.segments[:-1]
    request = CompactionRequest(
        directory=directory,
        segments=tuple(segment.base_offset for segment in sealed),
        first_dirty=0,
        upper=log.active_segment.base_offset,
        now_ms=NOW,
        config=config,
        last_offsets={producer_id: producer.last_offset for producer_id, producer in log.producers.producers.items()},
    )
    with ProcessPoolExecutor(1) as workers:
        result = workers.submit(compact_partition, request).result(60)
    size = log.size_bytes
    log.swap_segments([segment for segment in sealed if segment.base_offset in result.replaced], result.cleaned)
    assert log.size_bytes < size / 2
    everything = contents(b"".join(segment.file.read(0, segment.size) for segment in log.segments))
    assert {key for _, key, _ in everything} == {b"key %d" % i for i in range(20)}
    assert everything[-1] == (199, b"key 19", b"199" * 10)
    log.close()
    reopened = Log.open(RealDisk(), directory, partition, config, now_ms=NOW)
    assert contents(b"".join(segment.file.read(0, segment.size) for segment in reopened.segments)) == everything
    assert reopened.end_offset == 200
