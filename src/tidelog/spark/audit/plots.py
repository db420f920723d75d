"""Plots as SVG inside a page: no script, no font and no picture from elsewhere.

A plot is 400 units wide, so that its text is legible where it is as wide as a telephone. Colours are classes of the
page's style, which has two of each: for light and for dark.
"""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Final, NamedTuple

WIDTH: Final = 400
ROWS_MAX: Final = 40
_LABEL: Final = 78
_ROW: Final = 24


class Part(NamedTuple):
    """A stretch of a bar: the class of its colour, what it is called, how long it is."""

    style: str
    name: str
    size: float


class Bar(NamedTuple):
    label: str
    parts: Sequence[Part]
    note: str = ""


def bars(title: str, rows: Sequence[Bar], *, mark: float | None = None, mark_name: str = "") -> str:
    """Horizontal bars of one scale; `mark` is a line across all of them."""
    shown = rows[:ROWS_MAX]
    longest = max((sum(part.size for part in row.parts) for row in shown), default=0) or 1
    room = WIDTH - _LABEL - 76
    height = _ROW * len(shown) + 6
    drawn = []
    for number, row in enumerate(shown):
        y, x = _ROW * number + 4, float(_LABEL)
        drawn.append(_text(_LABEL - 6, y + 13, _cut(row.label, 12), "end", title=row.label))
        for part in row.parts:
            width = part.size / longest * room
            if part.size > 0:
                drawn.append(
                    f'<rect class="{part.style}" x="{x:.2f}" y="{y}" width="{max(width, 0.8):.2f}" height="17" '
                    f'rx="1.5"><title>{escape(row.label)}: {escape(part.name)} {part.size:,.0f}</title></rect>'
                )
            x += width
        drawn.append(_text(x + 5, y + 13, row.note, "start"))
    if mark is not None:
        at = _LABEL + mark / longest * room
        drawn.append(
            f'<line class="mark" x1="{at:.2f}" x2="{at:.2f}" y1="0" y2="{height}">'
            f"<title>{escape(mark_name)}</title></line>"
        )
    rest = f"<p class=note>and {len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return _svg(title, height, drawn) + rest


def columns(title: str, values: Sequence[tuple[str, int, str]]) -> str:
    """Vertical bars of (label, count, class), by the logarithm of their counts: ten late records among millions are to
    be seen."""
    top, floor, height = 18, 150, 196
    step = (WIDTH - 8) / max(len(values), 1)
    most = max((count for _, count, _ in values), default=1)
    drawn = [f'<line class="axis" x1="4" x2="{WIDTH - 4}" y1="{floor}" y2="{floor}"/>']
    for number, (label, count, style) in enumerate(values):
        x = 4 + number * step
        tall = 0.0 if not count else (log10(count) + 1) / (log10(most) + 1) * (floor - top)
        drawn.append(
            f'<rect class="{style}" x="{x + step * 0.12:.2f}" y="{floor - tall:.2f}" width="{step * 0.76:.2f}" '
            f'height="{tall:.2f}" rx="1.5"><title>{escape(label)}: {count:,}</title></rect>'
        )
        middle = x + step / 2
        drawn.append(_text(middle, floor - tall - 4, short(count) if count else "", "middle", small=True))
        drawn.append(
            f'<text class="small" text-anchor="end" transform="translate({middle + 4:.2f} {floor + 11}) rotate(-45)">'
            f"{escape(label)}</text>"
        )
    return _svg(title, height, drawn)


def legend(parts: Sequence[tuple[str, str]]) -> str:
    """(class, name) pairs."""
    rows = "".join(
        f'<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{style}" width="10" height="10" rx="2"/></svg>'
        f"{escape(name)}</span>"
        for style, name in parts
    )
    return f"<p class=legend>{rows}</p>"


def short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def _svg(title: str, height: int, drawn: Sequence[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        + "".join(drawn)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str, *, title: str = "", small: bool = False) -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    style = ' class="small"' if small else ""
    return f'<text{style} x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(text)}{tip}</text>'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
