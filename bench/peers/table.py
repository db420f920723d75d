"""The results as Markdown: one line per figure, medians with their spread, the ratio and what was aimed for. No I/O."""

from collections.abc import Iterable, Sequence

from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, RowResult, Summary

OURS, REFERENCE = "tidelog", "kafka"
_HEAD = "| row | figure | Tidelog | Apache Kafka | ratio | target | |\n|---|---|---:|---:|---:|---|---|"


def number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 10_000:
        return f"{value / 1e3:,.0f} k"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    return number(summary.median) + (f" ±{summary.spread:.0%}" if summary.count > 1 else "")


def verdict(metric: Metric, ratio: float | None) -> str:
    met = None if ratio is None else metric.met(ratio)
    return {None: "", True: "met", False: "**missed**"}[met]


def aim(metric: Metric) -> str:
    if metric.target is None:
        return ""
    return f"{'≥' if metric.better is Better.HIGHER else '≤'} {metric.target:g}×"


def lines_of(row: Row, result: RowResult) -> Iterable[str]:
    title = f"{row.title} · accepted: {row.guarantee}" if row.guarantee else row.title
    for metric in row.metrics:
        ours, theirs = result.summary(OURS, metric.key), result.summary(REFERENCE, metric.key)
        if ours is None and theirs is None:
            continue
        ratio = result.ratio(metric.key, OURS, REFERENCE)
        cells = (
            title,
            metric.title,
            shown(ours),
            result.absent.get(REFERENCE) or shown(theirs),
            "" if ratio is None else f"{ratio:.2f}×",
            aim(metric),
            verdict(metric, ratio),
        )
        yield "| " + " | ".join(cells) + " |"
        title = ""


def against_kafka(rows: Sequence[Row], results: dict[str, RowResult]) -> str:
    body = [
        line for row in rows if len(row.sides) <= 2 and row.name in results for line in lines_of(row, results[row.name])
    ]
    return "\n".join([_HEAD, *body]) if body else ""


def among_peers(rows: Sequence[Row], results: dict[str, RowResult], versions: dict[str, str]) -> str:
    """One table for the rows that many take part in: a line per side."""
    out = []
    for row in rows:
        if len(row.sides) <= 2 or row.name not in results:
            continue
        result = results[row.name]
        out += [f"\n**{row.title}** (accepted: {row.guarantee})\n"]
        out += ["| | " + " | ".join(metric.title for metric in row.metrics) + " |"]
        out += ["|---|" + "---:|" * len(row.metrics)]
        for side in row.sides:
            if side in result.absent:
                out.append(f"| {side} | {result.absent[side]}" + " |" * len(row.metrics))
            elif result.of(side):
                cells = (shown(result.summary(side, metric.key)) for metric in row.metrics)
                out.append(f"| {versions.get(side, side).split(',')[0]} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def unmeasured(rows: Iterable[Row], results: dict[str, RowResult]) -> str:
    names = [row.name for row in rows if row.name not in results or not results[row.name].samples]
    return f"Without figures in this run: {', '.join(names)}." if names else ""


def noise(results: Iterable[RowResult]) -> str:
    """How far the figures can be trusted: how busy others kept the machine meanwhile."""
    samples = [sample for result in results for sample in result.samples]
    if not samples:
        return ""
    loads = sorted(sample.load for sample in samples)
    others = sorted(sample.other_cores for sample in samples)
    middle, last = len(samples) // 2, len(samples) * 9 // 10
    return (
        f"{len(samples)} samples; load average before one: median {loads[middle]:.1f}, 90 % below {loads[last]:.1f}; "
        f"cores that other processes took during one: median {others[middle]:.2f}, 90 % below {others[last]:.2f}."
    )
