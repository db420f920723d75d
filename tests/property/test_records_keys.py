"""Compaction's quick walks against the plain one: the same records, or the same refusal, whatever the records are like.

Numbers of every width, in runs long enough for the short cuts and broken by records of another kind.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import CorruptMessage
from tidelog.wire.records import Record, RecordSpan, append_record, scan_records
from tidelog.wire.records_keys import RUN_MIN, RecordKeys, pick_records, scan_keys

KEY_SIZES = st.sampled_from([None, 0, 1, 16, 36, 63, 64, 100, 8191, 8192])
VALUE_SIZES = st.sampled_from([None, 0, 1, 40, 63, 64, 1000, 8191, 8192, 20_000])
TIMES = st.sampled_from([0, 63, 64, -64, -65, 8191, 8192, -8192, 1 << 20, 1 << 40, -(1 << 40)])
HEADERS = st.sampled_from([(), (), (("trace", b"id"),), (("", None), ("long", b"x" * 70))])
COUNTS = st.sampled_from([1, 2, RUN_MIN, RUN_MIN + 1, 30, 70])
GAPS = st.sampled_from([0, 0, 0, 1, 60, 5000])
STRETCHES = st.lists(
    st.tuples(COUNTS, KEY_SIZES, VALUE_SIZES, TIMES, HEADERS, st.integers(0, 3), GAPS), min_size=1, max_size=5
)
EDITS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3)


def payload_of(stretches: list[tuple]) -> tuple[bytes, int, int]:
    """Stretches of records alike but for what `wobble` adds to the length of every other value; their number; and the
    last offset delta."""
    payload = bytearray()
    delta, count = -1, 0
    for number, key_size, value_size, time, headers, wobble, gap in stretches:
        delta += gap
        for i in range(number):
            delta += 1
            key = None if key_size is None else (b"%d." % delta * key_size)[:key_size]
            value = None if value_size is None else b"v" * (value_size + i % 2 * wobble)
            append_record(payload, Record(0, 0, key, value, headers), delta, time)
            count += 1
    return bytes(payload), count, delta


def plainly(data: bytes, count: int, last: int) -> list[RecordSpan] | None:
    try:
        return list(scan_records(data, count, last))
    except CorruptMessage:
        return None


def quickly(data: bytes, count: int, last: int, before: bytes = b"", after: bytes = b"") -> RecordKeys | None:
    try:
        return scan_keys(before + data + after, len(before), len(before) + len(data), count, last)
    except CorruptMessage:
        return None


def check(found: RecordKeys | None, spans: list[RecordSpan] | None) -> None:
    assert (found is None) == (spans is None)
    if found is None or spans is None:
        return
    named = [(delta, key) for _, _, delta, _, key, _ in spans if key is not None]
    assert list(zip(found.deltas, found.keys, strict=True)) == named
    assert found.longest == max((len(key) for _, key in named), default=0)
    assert found.tombstones == any(not has_value for *_, has_value in spans)
    if isinstance(found.deltas, range):
        assert [delta for delta, _ in named] == list(range(len(spans)))


@settings(max_examples=150, deadline=None)
@given(
    STRETCHES, st.sampled_from([b"", b"\x00" * 61, b"\xff" * 100]), st.sampled_from([b"", b"\x00", b"\xfe\x01" * 50])
)
def test_keys_are_those_of_the_plain_walk(stretches: list[tuple], before: bytes, after: bytes) -> None:
    """Also in the middle of a chunk, where what follows the batch looks like more of it."""
    data, count, last = payload_of(stretches)
    spans = plainly(data, count, last)
    assert spans is not None
    assert len(spans) == count
    check(quickly(data, count, last, before, after), spans)


@settings(max_examples=250, deadline=None)
@given(STRETCHES, EDITS, st.integers(-1, 1), st.integers(-1, 1), st.booleans())
def test_edited_records_are_refused_by_both_or_by_none(
    stretches: list[tuple], edits: list[tuple[int, int]], more: int, later: int, cut: bool
) -> None:
    data, count, last = payload_of(stretches)
    changed = bytearray(data)
    heads = [start for start, *_ in scan_records(data, count, last)]
    for at, byte in edits:  # near the beginning of a record, where the numbers are, or anywhere
        changed[min(len(data) - 1, heads[at % len(heads)] + at % 13 if at % 3 else at % len(data))] = byte
    if cut:
        del changed[edits[0][0] % len(changed) :]
    data = bytes(changed)
    spans = plainly(data, count + more, last + later)
    check(quickly(data, count + more, last + later), spans)
    check(quickly(data, count + more, last + later, b"before", b"\x00" * 40), spans)


ALIKE = {
    "one byte each": (40, 9, 20, 0, (), 0, 0),
    "two bytes": (120, 9, 200, 100, (), 0, 0),
    "values of two lengths": (120, 9, 200, 100, (), 1, 0),
    "long keys": (30, 70, 9000, 1 << 30, (("h", b""),), 0, 0),
    "tombstones": (40, 9, None, 5, (), 0, 0),
}


@pytest.mark.parametrize("stretch", ALIKE.values(), ids=ALIKE)
def test_every_byte_of_a_record_among_others_like_it(stretch: tuple) -> None:
    """The numbers in front of a record's key, behind it and at its end, each turned into anything that could differ."""
    data, count, last = payload_of([stretch])
    spans = list(scan_records(data, count, last))
    start, end, *_ = spans[count - 12]
    key_ends = data.index(bytes(spans[count - 12][4] or b""), start) + stretch[1]
    for at in (*range(start, start + 14), *range(key_ends, key_ends + 3), end - 1):
        byte = data[at]
        for other in {*range(0, 256, 7), byte + 1 & 255, byte - 1 & 255, *(byte ^ 1 << bit for bit in range(8))}:
            changed = data[:at] + bytes([other]) + data[at + 1 :]
            check(quickly(changed, count, last), plainly(changed, count, last))


@pytest.mark.parametrize("stretch", ALIKE.values(), ids=ALIKE)
def test_records_that_go_on_behind_the_end(stretch: tuple) -> None:
    """Cut anywhere in its last records, and what was cut off follows in the chunk."""
    data, count, last = payload_of([stretch])
    third_last = list(scan_records(data, count, last))[-3][0]
    for cut in {third_last, len(data), *range(third_last + 1, len(data), 1 + (len(data) - third_last) // 100)}:
        for expected in range(count - 4, count + 2):
            check(quickly(data[:cut], expected, last, b"", data[cut:]), plainly(data[:cut], expected, last))
            check(quickly(data[:cut], expected, last - 2), plainly(data[:cut], expected, last - 2))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(-1, 30), st.integers(-1, 1 << 31))
def test_bytes_from_anywhere(data: bytes, count: int, last: int) -> None:
    check(quickly(data, count, last), plainly(data, count, last))


def test_offsets_of_three_bytes() -> None:
    data, count, last = payload_of([(20_000, 9, 5, 0, (), 0, 0)])
    check(quickly(data, count, last), plainly(data, count, last))


@pytest.mark.parametrize("wobble", [0, 1])
@pytest.mark.parametrize("value_size", [5, 200])
def test_one_record_among_others_unlike_it(value_size: int, wobble: int) -> None:
    """At the ends of what a short cut may cover, with every number of it shorter and longer than in the others."""
    for before in (1, 20, 63, 64, 65, 100):
        for key_size, size in ((9, 5), (9, 200), (9, 9000), (70, 200), (9000, 1), (None, 5), (9, None), (0, 0)):
            for time in (0, 100, 1 << 30):
                others = (9, value_size, 0, (), wobble, 0)
                data, count, last = payload_of([(before, *others), (1, key_size, size, time, (), 0, 0), (30, *others)])
                check(quickly(data, count, last), plainly(data, count, last))


@settings(max_examples=100, deadline=None)
@given(STRETCHES, st.randoms(use_true_random=False))
def test_picked_records_are_those_of_the_plain_walk(stretches: list[tuple], dice: object) -> None:
    data, count, last = payload_of([(*stretch[:6], 0) for stretch in stretches])
    spans = plainly(data, count, last)
    assert spans is not None
    chosen = sorted(dice.sample(range(count), dice.randint(0, count)))  # type: ignore[attr-defined]
    assert list(pick_records(data, chosen)) == [spans[delta] for delta in chosen]
