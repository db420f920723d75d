"""The parts of an audit that need no Spark: rows of batch headers, homes of keys, verdicts, the page."""

import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from tidelog.client.fetcher import Fetched
from tidelog.partitioning import partition_for
from tidelog.spark.audit.batch_rows import SCHEMA, batch_rows
from tidelog.spark.audit.homes import with_homes
from tidelog.spark.audit.page import page
from tidelog.spark.audit.plots import Bar, Part, bars
from tidelog.spark.audit.records import EDGES_MS, Lateness, duration, late_check, shown
from tidelog.spark.audit.result import Check, PartitionNumbers, Report, Verdict, worst
from tidelog.spark.audit.scope import Scope, Wanted
from tidelog.spark.slices import Slice
from tidelog.wire.control import Marker, build_marker
from tidelog.wire.record_batch import TRANSACTIONAL, Record, build_batch, patch

NOW = 1_700_000_000_000


def log(*sizes: int) -> bytes:
    """Batches of so many records, one behind the other."""
    found, offset = b"", 0
    for size in sizes:
        records = [Record(offset + n, NOW, b"k", b"v") for n in range(size)]
        found += build_batch(records, base_offset=offset, producer_id=7, producer_epoch=1, base_sequence=offset)
        offset += size
    return found


def rows(data: bytes, start: int, end: int, begin: int | None = None, until: int | None = None) -> list[dict]:
    wanted = Slice("t", 2, start, end)
    found = batch_rows(Fetched.of(data), wanted, start if begin is None else begin, end if until is None else until)
    return [dict(zip(SCHEMA.fieldNames(), row, strict=True)) for row in found]


def test_a_batch_is_a_row_of_the_slice_it_begins_in():
    data = log(4, 4, 4)
    slices = [(0, 5), (5, 6), (6, 12)]
    found = [[row["first"] for row in rows(data, start, end, 0, 12)] for start, end in slices]
    assert found == [[0, 4], [], [8]]


def test_what_reaches_over_the_edges_of_everything_is_cut():
    (one, other) = rows(log(4, 4, 4), 2, 6)
    assert (one["first"], one["last"], one["span"], one["records"]) == (2, 3, 4, 4)
    assert (other["first"], other["last"], other["sequence"], other["producerId"]) == (4, 5, 4, 7)


def test_markers_and_damage_are_told():
    marker = build_marker(Marker(False, 3), producer_id=7, producer_epoch=1, timestamp=NOW)
    patch(marker, base_offset=2)
    data = build_batch([Record(n, NOW, b"k", b"v") for n in range(2)], attributes=TRANSACTIONAL, producer_id=7)
    first, second = rows(data + marker, 0, 3)
    assert (first["transactional"], first["control"], first["marker"], first["intact"]) == (True, False, None, True)
    assert (second["control"], second["marker"], second["records"]) == (True, "abort", 1)
    broken = bytearray(data + marker)
    broken[-1] ^= 1
    assert [(row["intact"], row["marker"]) for row in rows(bytes(broken), 0, 3)] == [(True, None), (False, None)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_homes_are_those_of_javas_partitioner(kind):
    keys = [b"", b"a", b"key-17", bytes(range(200)), "ü".encode()]
    batch = pa.record_batch({"records": pa.array(range(5)), "key": pa.array(keys, kind)})
    found = with_homes(batch.slice(1), 12)
    assert found.column("murmur2").to_pylist() == [partition_for(key, 12) for key in keys[1:]]
    assert found.schema.names == ["records", "key", "murmur2"]


def test_the_worst_verdict_counts():
    assert worst([]) is Verdict.OK
    assert worst([Verdict.OK, Verdict.WARNING, Verdict.SKIPPED]) is Verdict.WARNING
    assert worst([Verdict.VIOLATION, Verdict.WARNING]) is Verdict.VIOLATION


def test_lateness_in_words():
    scope = Scope(Wanted(topic="t", bootstrap_servers="x:1"), "delete", [], {})
    assert late_check(scope, Lateness()).verdict is Verdict.SKIPPED
    assert late_check(scope, Lateness(unknown=3)).verdict is Verdict.WARNING
    in_order = late_check(scope, Lateness(counts={0: 1000, 4: 1}))
    assert (in_order.verdict, in_order.numbers["p50_ms"], in_order.numbers["p999_ms"]) == (Verdict.OK, 1, 1)
    beyond = late_check(scope, Lateness(counts={len(EDGES_MS): 5}, late=5, examples=[(10**10, 0, 3)]))
    assert beyond.says.endswith("99.9 % are not within 30 d")
    assert beyond.examples == ["t-0@3  116 d late"]
    assert [duration(ms) for ms in (0, 999, 1000, 90_000, 86_400_000)] == ["0 ms", "999 ms", "1 s", "1.5 min", "1 d"]
    assert shown(b"a'\x1b[0m\xff") == '"a\'\\x1b[0m\\xff"'


HOSTILE = "'</title><script>alert(1)</script>\"&"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta", "line", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert not self.open or tag in self.open, tag
        while self.open and self.open.pop() != tag:
            pass


def test_the_page_needs_nothing_and_runs_nothing():
    numbers = PartitionNumbers(0, 5, 5, 40, records=20, aborted=5, markers=2, compacted=3, lost=5)
    checks = [
        Check("offsets", Verdict.VIOLATION, HOSTILE, [f"t-0@7  {HOSTILE}"], {}),
        Check("placement", Verdict.OK, "fine", [], {"keys": 3, "murmur2": 2, "both": 1}),
        Check("lateness", Verdict.WARNING, "late", [], {"late_ms": 1000}),
    ]
    report = Report(
        HOSTILE,
        "delete",
        [numbers],
        checks,
        HOSTILE,
        lateness=[{"below_ms": edge, "records": 3} for edge in (*EDGES_MS, None)],
        hot_keys=[{"key": HOSTILE, "partition": 0, "records": 9, "share": 0.5}],
    )
    text = page(report)
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.seen
    assert not tags.seen & {"img", "link", "iframe", "object", "a"}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text
    assert text.count('class="plot"') == 4
    empty = page(Report("t", "delete", [PartitionNumbers(0, 0, 0, 0)], [], "timestamp"))
    assert "nothing to show" in empty


def test_bars_share_a_scale_and_end_somewhere():
    drawn = bars("b", [Bar(f"row {n}", [Part("c1", "x", n)]) for n in range(50)], mark=10)
    widths = [float(width) for width in re.findall(r'<rect class="c1" x="[\d.]+" y="\d+" width="([\d.]+)"', drawn)]
    assert widths[0] == pytest.approx(widths[1] / 2, abs=0.2) or widths[0] <= widths[1]
    assert max(widths) == widths[-1]
    assert "and 10 more" in drawn
    assert bars("none", []).startswith("<svg")
