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
_LABEL: Final = 106
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


def bars(
    title: str, rows: Sequence[Bar], *, mark: float | None = None, mark_name: str = "", logarithmic: bool = False
) -> str:
    """Horizontal bars of one scale; `mark` is a line across all of them. With `logarithmic` a bar has one part, and ten
    among millions are to be seen."""
    shown = rows[:ROWS_MAX]

    def length(size: float) -> float:
        return size if not logarithmic else log10(size) + 1 if size >= 1 else 0.0

    longest = max((length(sum(part.size for part in row.parts)) for row in shown), default=0) or 1
    room = WIDTH - _LABEL - 60
    height = _ROW * len(shown) + 6
    drawn = []
    if mark is not None:
        at = _LABEL + mark / longest * room
        drawn.append(
            f'<line class="mark" x1="{at:.2f}" x2="{at:.2f}" y1="0" y2="{height}">'
            f"<title>{escape(mark_name)}</title></line>"
        )
    for number, row in enumerate(shown):
        y, x = _ROW * number + 4, float(_LABEL)
        drawn.append(_text(_LABEL - 6, y + 13, _cut(row.label, 12), "end", title=row.label))
        for part in row.parts:
            width = length(part.size) / longest * room
            if part.size > 0:
                drawn.append(
                    f'<rect class="{part.style}" x="{x:.2f}" y="{y}" width="{max(width, 0.8):.2f}" height="17" '
                    f'rx="1.5"><title>{escape(row.label)}: {escape(part.name)} {part.size:,.0f}</title></rect>'
                )
            x += width
        drawn.append(_text(x + 5, y + 13, row.note, "start"))
    rest = f"<p class=note>and {len(rows) - len(shown):,} more</p>" if len(rows) > len(shown) else ""
    return _svg(title, height, drawn) + rest


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


def _text(x: float, y: float, text: str, anchor: str, *, title: str = "") -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(text)}{tip}</text>'


def _cut(text: str, length: int) -> str:
    """The middle goes: names that begin alike differ at their ends."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-(length - half - 1) :]}"
