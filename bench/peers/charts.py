"""Charts as SVG text, without a library: they look the same everywhere and a diff of two runs can be read. No I/O."""

import math
from collections.abc import Sequence
from html import escape

from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, RowResult
from bench.peers.table import OURS, REFERENCE, number

_FONT = "font-family='system-ui, sans-serif'"
_LINE, _LEFT, _WIDTH, _RIGHT = 22, 450, 380, 60
_GOOD, _BAD, _OTHER, _INK, _FAINT = "#1a7f5a", "#b4452c", "#8a94a6", "#1f2430", "#c9ced8"
_MOST = 64.0  # times better: beyond that a bar only gets its number


def all_charts(rows: Sequence[Row], results: dict[str, RowResult]) -> dict[str, str]:
    found = {}
    if picture := ratios(rows, results):
        found["ratios"] = picture
    for row in rows:
        if len(row.sides) > 2 and row.name in results and (picture := sides(row, results[row.name])):
            found[row.name] = picture
    return found


def times_better(metric: Metric, ratio: float) -> float:
    return ratio if metric.better is Better.HIGHER else 1 / ratio


def ratios(rows: Sequence[Row], results: dict[str, RowResult]) -> str:
    """How many times better than Apache Kafka, on a logarithmic axis: right of the line is better, left is worse."""
    bars = []
    for row in rows:
        if row.name not in results:
            continue
        for metric in row.metrics:
            ratio = results[row.name].ratio(metric.key, OURS, REFERENCE)
            if ratio and metric.target is not None:
                bars.append((f"{row.title.split(' (')[0]}: {metric.title}", times_better(metric, ratio)))
    if not bars:
        return ""
    unit = _WIDTH / (math.log2(_MOST) + 2)  # from a quarter to _MOST
    zero = _LEFT + 2 * unit
    height = 60 + _LINE * len(bars)
    out = [_open(height), _text(12, 20, "Times better than Apache Kafka, same run, equal guarantees", bold=True)]
    for power in range(-2, int(math.log2(_MOST)) + 1):
        x = zero + power * unit
        color = _INK if power == 0 else _FAINT
        out.append(f"<line x1='{x:.1f}' y1='44' x2='{x:.1f}' y2='{height - 10}' stroke='{color}' stroke-width='1'/>")
        out.append(_text(x, 38, f"{2.0**power:g}×", anchor="middle", color=_OTHER))
    for index, (label, times) in enumerate(bars):
        y = 50 + index * _LINE
        shift = max(-2.0, min(math.log2(_MOST), math.log2(times))) * unit
        left, width = (zero, shift) if shift >= 0 else (zero + shift, -shift)
        out.append(_bar(left, y, width, _GOOD if times >= 1 else _BAD))
        out.append(_text(_LEFT - 8, y + 12, label, anchor="end"))
        out.append(_text(max(zero, zero + shift) + 5, y + 12, f"{times:.2g}×" if times < 10 else f"{times:.0f}×"))
    return "\n".join([*out, "</svg>\n"])


def sides(row: Row, result: RowResult) -> str:
    """One bar per side, of the row's first figure."""
    metric = row.metrics[0]
    found = {side: summary.median for side in row.sides if (summary := result.summary(side, metric.key))}
    if len(found) < 2:
        return ""
    most = max(found.values())
    height = 50 + _LINE * len(found)
    out = [_open(height), _text(12, 20, f"{row.title}: {metric.title} ({metric.better} is better)", bold=True)]
    for index, (side, value) in enumerate(found.items()):
        y = 36 + index * _LINE
        width = value / most * (_WIDTH + 200)
        out.append(_bar(180, y, width, _GOOD if side == OURS else _OTHER))
        out.append(_text(172, y + 12, side, anchor="end"))
        out.append(_text(180 + width + 5, y + 12, number(value)))
    return "\n".join([*out, "</svg>\n"])


def _open(height: int) -> str:
    width = _LEFT + _WIDTH + _RIGHT
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' "
        f"{_FONT} font-size='12'>\n<rect width='100%' height='100%' fill='#ffffff'/>"
    )


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f"<rect x='{x:.1f}' y='{y}' width='{max(width, 1):.1f}' height='{_LINE - 7}' rx='2' fill='{color}'/>"


def _text(x: float, y: float, text: str, *, anchor: str = "start", color: str = _INK, bold: bool = False) -> str:
    weight = " font-weight='600' font-size='14'" if bold else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{color}'{weight}>{escape(text)}</text>"
