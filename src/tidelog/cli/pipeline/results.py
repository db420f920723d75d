"""Results of a pipeline for the eye: the latest rows as a table kept up to date; into a pipe, the rows that changed."""

import sys
from typing import Any, Final

from tidelog.cli.options import Output
from tidelog.cli.output import print_json, print_table

ROWS_MAX: Final = 20


class Results:
    """Rows are known by their first `key_columns` cells: a row that changes takes the place of the old one."""

    def __init__(self, output: Output, key_columns: int) -> None:
        self._output, self._key_columns = output, key_columns
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self._live = output is Output.TEXT and sys.stdout.isatty() and sys.stderr.isatty()

    def take(self, rows: list[dict[str, Any]]) -> None:
        """The rows that a batch changed."""
        for row in rows:
            key = tuple(_text(cell) for cell in list(row.values())[: self._key_columns])
            self._rows[key] = row
        for key in sorted(self._rows)[:-ROWS_MAX]:
            del self._rows[key]
        if self._output is Output.JSON:
            for row in rows:
                print_json({"row": {name: _plain(cell) for name, cell in row.items()}})
            sys.stdout.flush()
        elif not self._live and rows:
            self._print(sorted(rows, key=lambda row: [_text(cell) for cell in row.values()]))

    def table(self) -> Any:
        """For a live display: the latest windows first."""
        from rich.table import Table
        from rich.text import Text

        latest = [self._rows[key] for key in sorted(self._rows, reverse=True)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in latest[0] if latest else ():
            table.add_column(name)
        for row in latest:
            table.add_row(*(Text(_text(cell)) for cell in row.values()))
        return table

    def end(self) -> None:
        """What stood on the screen last, left there."""
        if self._live and self._rows:
            self._print([self._rows[key] for key in sorted(self._rows, reverse=True)])

    def _print(self, rows: list[dict[str, Any]]) -> None:
        print_table(tuple(rows[0]), [[_text(cell) for cell in row.values()] for row in rows])
        sys.stdout.flush()


def _plain(cell: Any) -> Any:
    return cell if cell is None or isinstance(cell, (bool, int, float, str)) else _text(cell)


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if hasattr(cell, "isoformat"):
        return str(cell.isoformat(sep=" ") if hasattr(cell, "hour") else cell.isoformat())
    return f"{cell:,.2f}" if isinstance(cell, float) else str(cell)
