"""The report as one HTML file that needs nothing else: it can be mailed, kept, and read on a telephone."""

from html import escape
from typing import Any, Final

from tidelog.spark.audit.plots import Bar, Part, bars, legend, short
from tidelog.spark.audit.records import duration
from tidelog.spark.audit.result import Check, Report, Verdict

_PARTS: Final = (
    ("records", "records", "c1"),
    ("aborted", "of aborted transactions", "c2"),
    ("undecided", "of transactions that end elsewhere", "c6"),
    ("markers", "transaction markers", "c3"),
    ("compacted", "compacted away", "c4"),
    ("lost", "lost", "bad"),
)
_PLACES: Final = (
    ("murmur2", "murmur2 (Java)", "c1"),
    ("crc32", "CRC-32 (librdkafka)", "c2"),
    ("both", "both agree", "c3"),
    ("neither", "neither", "c4"),
    ("several", "in several partitions", "bad"),
)
_MARKS: Final = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.VIOLATION: "✕", Verdict.SKIPPED: "–"}

_STYLE: Final = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5a6675;--line:#d9dee5;
--c1:#2b6cb0;--c2:#d9822b;--c3:#8a94a3;--c4:#7c5cbf;--c6:#3a9a96;--bad:#c53030;--ok:#2f7d46;--warn:#a86400}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1b212a;--ink:#e6eaf0;--soft:#9aa6b5;--line:#303846;
--c1:#63a4e8;--c2:#f0a45d;--c3:#7f8a9a;--c4:#b197ea;--c6:#5cc4bf;--bad:#ff7b72;--ok:#5fc27e;--warn:#e5a84b}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:1040px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:0 0 10px}
header{margin-bottom:18px}header p{margin:4px 0 0;color:var(--soft)}
.grid{columns:2 400px;column-gap:16px}.grid section{break-inside:avoid;margin-bottom:16px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;min-width:0}
.wide{margin-bottom:16px}
.check{display:grid;grid-template-columns:auto 1fr;gap:2px 12px;padding:10px 0;border-top:1px solid var(--line)}
.check:first-of-type{border-top:0}
.check p{margin:0;grid-column:2}.check b{font-weight:600}
.badge{grid-row:1/span 2;display:inline-block;width:26px;height:26px;border-radius:50%;text-align:center;
line-height:26px;font-weight:700;color:var(--card)}
.ok{background:var(--ok)}.warning{background:var(--warn)}.violation{background:var(--bad)}.skipped{background:var(--c3)}
.word{display:inline-block;border-radius:6px;padding:1px 9px;color:var(--card);font-size:.95rem;font-weight:600}
ul{margin:6px 0 0;padding-left:18px;grid-column:2;color:var(--soft);font-size:.9rem}
code{font:.92em ui-monospace,monospace;color:var(--ink)}
.plot{display:block;width:100%;height:auto}.plot text{font-size:12.5px;fill:var(--ink);
paint-order:stroke;stroke:var(--card);stroke-width:3px}
.mark{stroke:var(--soft);stroke-dasharray:3 3}
.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c6{fill:var(--c6)}.bad{fill:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin:10px 0 0;font-size:.85rem;color:var(--soft)}
.legend svg{width:.75em;height:.75em;margin-right:.4em}
.note{color:var(--soft);font-size:.85rem;margin:8px 0 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;width:100%}
th,td{padding:4px 8px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}th{font-weight:600}
details{margin-top:12px}summary{cursor:pointer;color:var(--soft);font-size:.9rem}
"""


def page(report: Report) -> str:
    title = f"Audit of {report.topic}"
    body = "".join(
        [
            _head(report),
            '<section class="wide"><h2>Checks</h2>',
            *(_check(check) for check in report.checks),
            "</section><div class=grid>",
            _offsets(report),
            _lateness(report),
            _placement(report),
            _hot_keys(report),
            "</div>",
        ]
    )
    # No source is allowed: what a record's key says can neither run nor call home.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _head(report: Report) -> str:
    parts = report.partitions
    offsets = sum(each.end - each.start for each in parts)
    size = sum(each.bytes for each in parts)
    return (
        f"<header><h1>{escape(report.topic)} "
        f'<span class="word {report.verdict}">{report.verdict}</span></h1>'
        f"<p>{report.records:,} records in {len(parts)} partition{'s' if len(parts) != 1 else ''}, "
        f"{offsets:,} offsets, {short(size)}B, cleanup.policy {escape(report.cleanup_policy)}</p>"
        f"<p>audited {escape(report.at)} in {report.seconds:.1f} s, as a reader with "
        f"{escape(report.isolation)} sees it</p>"
        "</header>"
    )


def _check(check: Check) -> str:
    examples = "".join(_example(each) for each in check.examples)
    return (
        f'<div class="check"><span class="badge {check.verdict}" title="{check.verdict}">{_MARKS[check.verdict]}</span>'
        f"<p><b>{escape(check.name)}</b> <small>{check.verdict}</small></p><p>{escape(check.says)}</p>"
        + (f"<ul>{examples}</ul>" if examples else "")
        + "</div>"
    )


def _example(text: str) -> str:
    place, _, rest = text.partition("  ")
    return f"<li><code>{escape(place)}</code> {escape(rest)}</li>"


def _offsets(report: Report) -> str:
    rows = []
    for each in report.partitions:
        parts = [Part(style, name, getattr(each, key)) for key, name, style in _PARTS]
        rows.append(Bar(f"partition {each.partition}", parts, short(each.records)))
    used = [(style, name) for key, name, style in _PARTS if any(getattr(each, key) for each in report.partitions)]
    mean = report.records / max(len(report.partitions), 1)
    several = len(report.partitions) > 1
    drawn = bars(
        "Offsets per partition", rows, mark=mean if several else None, mark_name=f"the mean, {mean:,.0f} records"
    )
    told = "<p class=note>The dashed line is the mean number of records.</p>" if several else ""
    return f"<section><h2>Where the offsets went</h2>{drawn}{legend(used)}{told}{_table(report)}</section>"


def _table(report: Report) -> str:
    names = ("partition", "log_start", "start", "end", "batches", "bytes", *(key for key, _, _ in _PARTS))
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{getattr(each, name):,}</td>" for name in names) + "</tr>" for each in report.partitions
    )
    return f"<details><summary>Numbers</summary><div class=scroll><table><tr>{head}</tr>{body}</table></div></details>"


def _lateness(report: Report) -> str:
    limit = _numbers(report, "lateness").get("late_ms", 0)
    by = "the record's timestamp" if report.event_time == "timestamp" else report.event_time
    title = "<h2>How late events come</h2>"
    if not report.lateness:
        return f"<section>{title}<p class=note>nothing to show</p></section>"
    rows, above = [], 0
    for each in report.lateness:
        edge, count = each["below_ms"], each["records"] or 0
        label = "in order" if not above else f"< {duration(edge)}" if edge else f"≥ {duration(above)}"
        rows.append(Bar(label, [Part("c2" if above >= limit > 0 else "c1", "records", count)], short(count)))
        above = edge or above
    told = f"Behind the youngest event before them in their partition, by {by}. Lengths are logarithmic."
    parts = [("c1", f"less than {duration(limit)}"), ("c2", "later")] if limit else []
    drawn = bars("Records by lateness", rows, logarithmic=True)
    return f"<section>{title}{drawn}{legend(parts)}<p class=note>{escape(told)}</p></section>"


def _placement(report: Report) -> str:
    numbers = _numbers(report, "placement")
    rows = [Bar(_short_name(key), [Part(style, name, numbers.get(key, 0))], f"{numbers.get(key, 0):,}")
            for key, name, style in _PLACES]  # fmt: skip
    title = "<h2>Which partitioner fits the keys</h2>"
    if not numbers.get("keys"):
        return f"<section>{title}<p class=note>no record has a key</p></section>"
    drawn = bars("Keys by the partitioner that fits them", rows)
    return f"<section>{title}{drawn}{legend([(style, name) for _, name, style in _PLACES])}</section>"


def _short_name(key: str) -> str:
    return {"murmur2": "only murmur2", "crc32": "only CRC-32"}.get(key, key)


def _hot_keys(report: Report) -> str:
    title = "<h2>The biggest keys</h2>"
    if not report.hot_keys:
        return f"<section>{title}<p class=note>no record has a key</p></section>"
    rows = [
        Bar(each["key"].strip("'\""), [Part("c1", "records", each["records"])], f"{each['share']:.1%}")
        for each in report.hot_keys
    ]
    fair = report.records / max(len(report.partitions), 1)
    big = max(each["records"] for each in report.hot_keys)
    mark = fair if fair <= 1.1 * big else None
    told = "<p class=note>The dashed line is an even share of one partition.</p>" if mark else ""
    return f"<section>{title}{bars('The biggest keys', rows, mark=mark, mark_name='an even share')}{told}</section>"


def _numbers(report: Report, name: str) -> dict[str, Any]:
    return next((check.numbers for check in report.checks if check.name == name), {})
