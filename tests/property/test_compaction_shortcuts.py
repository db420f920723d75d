"""What compaction decides by offsets alone, against what it decides record by record: the same files, byte for byte."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage
from tidelog.storage import compaction, compaction_keys
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact_partition
from tidelog.storage.compaction_keys import KEY_BYTES
from tidelog.wire.compression import Codec
from tidelog.wire.record_batch import (
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    Record,
    build_batch,
    pack_batch,
    read_header,
)
from tidelog.wire.record_batch import patch as patch_batch
from tidelog.wire.records import append_record

NOW = 1_700_000_000_000
LONG = b"a key that a digest stands for " * 3
CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=60_000, index_interval_bytes=500)
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 12, 40]),  # records
        st.sampled_from([1, 5, 1000]),  # of so many keys
        st.sampled_from([b"k", b"key %d" % 7, LONG]),
        st.sampled_from([0, 10, 300, 17_000]),  # bytes of a value
        st.sampled_from([0, 0, 3]),  # every third record a tombstone
        st.sampled_from([0, 0, 5]),  # every fifth record without key
        st.sampled_from(["", "", "", "gaps", "garbled", "askew", "horizon", "stays"]),
        st.sampled_from(Codec),
        st.sampled_from([-1, -1, 4]),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


def write(directory: Path, batches: list[tuple]) -> CompactionRequest:
    """Segments of such batches, the last of them active."""
    segments = [0]
    data = bytearray()
    end, last_offsets = 0, {}
    for number, keys, stem, size, tombstones, nulls, how, codec, producer, roll in batches:
        records = []
        for i in range(number):
            named = b"%s%d" % (stem, (end + i) % keys if how != "stays" else end + i + 10_000)
            key = None if nulls and i % nulls == 4 else named
            value = None if tombstones and i % tombstones == 2 else b"v" * (size + i % 4)
            at = end + (i * 3 if how == "gaps" else i)
            records.append(Record(at, NOW + i * 50, key, value, (("h", b"x" * i),) if i % 7 == 6 else ()))
        attributes = HAS_DELETE_HORIZON if how == "horizon" else 0  # as a follower gets it, and already due
        batch = build_batch(records, base_offset=end, codec=codec, producer_id=producer, attributes=attributes)
        if how == "askew":  # a lying producer's: the offsets backwards
            payload = bytearray()
            for record in records:
                append_record(payload, record, end + number - 1 - record.offset, 0)
            batch = pack_batch(read_header(batch)._replace(attributes=0), payload)
        if how == "garbled":
            batch = pack_batch(read_header(batch)._replace(attributes=0), b"\x10\x00\x00\x00\x02" * number)
        data += batch
        end = read_header(batch).last_offset + 1
        if producer >= 0:
            last_offsets[producer] = end - 1
        if roll:
            (directory / f"{segments[-1]:020d}.log").write_bytes(data)
            segments.append(end)
            data.clear()
    (directory / f"{segments[-1]:020d}.log").write_bytes(data)
    return CompactionRequest(
        directory=str(directory),
        segments=tuple(segments),
        first_dirty=0,
        upper=end,
        now_ms=NOW,
        config=CONFIG,
        last_offsets=last_offsets,
    )


def files_after(result: CompactionResult, directory: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in directory.glob("*.cleaned")}
    assert {Path(path).name for path in result.cleaned} == {name for name in found if ".log" in name}
    return found


def record_by_record() -> Any:
    honest = compaction.map_keys

    def nothing_known(*args: Any) -> Any:
        keys = honest(*args)
        return keys._replace(known_end=keys.start)

    return patch.object(compaction, "map_keys", nothing_known)


@settings(max_examples=150, deadline=None)
@given(BATCHES, st.integers(0, 100), st.sampled_from([2, 8, 1000]), st.sampled_from([0, 1, 1000]))
def test_short_cuts_change_no_byte(batches: list[tuple], dirty: int, keys_max: int, noted_max: int) -> None:
    """From any dirty offset, with a map that is full sooner or later, and with more odd batches than are noted."""
    with TemporaryDirectory() as name:
        whole = Path(name)
        wanted = write(whole, batches)
        request = CompactionRequest(
            directory=name,
            segments=wanted.segments,
            first_dirty=min(dirty, wanted.upper),
            upper=wanted.upper,
            now_ms=NOW,
            config=CONFIG,
            last_offsets=wanted.last_offsets,
            dedupe_buffer_bytes=keys_max * KEY_BYTES,
        )
        with record_by_record():
            slow = compact_partition(request)
            expected = files_after(slow, whole)
        with patch.object(compaction_keys, "NOTED_MAX", noted_max):
            quick = compact_partition(request)
        assert files_after(quick, whole) == expected
        assert (quick.replaced, quick.cleaned_to, quick.stats) == (slow.replaced, slow.cleaned_to, slow.stats)


def large(base: int, keys: range, **fields: int) -> bytes:
    records = [Record(base + i, NOW, b"%06d" % key, b"v" * 400) for i, key in enumerate(keys)]
    return build_batch(records, base_offset=base, **fields)


@pytest.mark.parametrize("codec", list(Codec))
def test_dead_batches_are_not_read_again_but_for_the_last_of_a_segment(tmp_path: Path, codec: Codec) -> None:
    """A bit that flips in a dead batch between the passes is nobody's business. Where the second pass writes something
    down of a batch, be it all of it or the header that ends a segment, it must not be."""
    batches = [large(i * 300, range(i % 2 * 300, i % 2 * 300 + 300), codec=codec) for i in range(6)]
    paths = [tmp_path / f"{base:020d}.log" for base in (0, 900)]

    def write_with_flip(flipped: int | None) -> None:
        for path, first in zip(paths, (0, 3), strict=True):
            own = [bytearray(batch) for batch in batches[first : first + 3]]
            if flipped is not None and first <= flipped < first + 3:
                own[flipped - first][HEADER_SIZE + 20] ^= 1
            path.write_bytes(b"".join(own))

    request = CompactionRequest(
        directory=str(tmp_path), segments=(0, 900), first_dirty=0, upper=1800, now_ms=NOW, config=CONFIG
    )
    honest = compaction.map_keys
    for flipped in range(6):
        write_with_flip(None)

        def flipping(*args: Any, number: int = flipped) -> Any:
            keys = honest(*args)
            write_with_flip(number)
            return keys

        with patch.object(compaction, "map_keys", flipping):
            if flipped in (2, 4, 5):
                with pytest.raises(CorruptMessage, match="checksum"):
                    compact_partition(request)
                assert sorted(tmp_path.iterdir()) == paths
                continue
            result = compact_partition(request)
        assert b"".join(Path(path).read_bytes() for path in result.cleaned).endswith(batches[4] + batches[5])
        assert (result.stats.batches_dropped, result.stats.batches_copied) == (4, 2)
        assert (result.stats.records_read, result.stats.records_kept) == (1800, 600)


def test_a_flip_in_the_first_pass_stops_it_wherever_it_is(tmp_path: Path) -> None:
    batches = [large(i * 300, range(300)) for i in range(3)]
    path = tmp_path / f"{0:020d}.log"
    request = CompactionRequest(
        directory=str(tmp_path), segments=(0,), first_dirty=0, upper=900, now_ms=NOW, config=CONFIG
    )
    for batch in range(3):
        data = bytearray(b"".join(batches))
        data[sum(map(len, batches[:batch])) + 30_000] ^= 4
        path.write_bytes(data)
        with pytest.raises(CorruptMessage, match="checksum"):
            compact_partition(request)
        assert path.read_bytes() == data


def test_offsets_far_into_a_log_count_as_well(tmp_path: Path) -> None:
    """The same log twice, from offset 0 and from beyond what four bytes hold."""
    outcomes = []
    for start in (0, 1 << 40):
        directory = tmp_path / str(start)
        directory.mkdir()
        batches = [bytearray(large(i * 300, range(i * 37, i * 37 + 300))) for i in range(5)]
        for i, batch in enumerate(batches):
            patch_batch(batch, base_offset=start + i * 300)
        (directory / f"{start:020d}.log").write_bytes(b"".join(batches))
        request = CompactionRequest(
            directory=str(directory),
            segments=(start,),
            first_dirty=start,
            upper=start + 1500,
            now_ms=NOW,
            config=CONFIG,
        )
        outcomes.append(compact_partition(request).stats)
        shutil.rmtree(directory)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].records_kept == 300 + 4 * 37
