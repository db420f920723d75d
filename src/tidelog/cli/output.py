"""What commands print: tables for people, JSON for programs."""

import sys
from collections.abc import Sequence
from typing import Any

_NO_WRAP_WIDTH = 100_000


def print_json(value: object) -> None:
    """One JSON document, indented for a terminal and on one line for a pipe. Threads may print at once: a line and its
    end are one write, or the end of one would come after the next."""
    import msgspec

    encoded = msgspec.json.encode(value)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    print(f"{encoded.decode()}\n", end="")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> None:
    """Aligned columns. Nothing is ever cut, and into a pipe nothing is wrapped: grep and awk see whole lines."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not sys.stdout.isatty(),
            overflow="fold",  # a narrow terminal would have half of an id and an ellipsis
        )
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))  # Text: record bytes are not markup
    _console().print(table)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _NO_WRAP_WIDTH)


def note(text: str) -> None:
    """A remark beside the output: on stderr, and only when a person is watching."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
