"""Rows become Parquet files, one open per day of the event time, closed when they are big enough."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FORMATS: Final = ("parquet", "delta")
DAY: Final = "date"
"""The column by which an archive is divided: it is part of a file's path, as Hive has it, and not of its content."""
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
HELD_ROWS: Final = 1 << 17
HELD_BYTES: Final = 64 << 20


class DataFile(NamedTuple):
    """A closed file. `staged` is where it was written, `final` where readers will look for it, both below the root."""

    staged: str
    final: str
    day: str | None
    rows: int
    size: int


class DayFiles:
    """Writes the rows of one task. `name` gives the place of a day's n-th file: staged and final, below `root`."""

    def __init__(
        self,
        root: Path,
        name: Callable[[str, int], tuple[str, str]],
        *,
        target_bytes: int,
        compression: str = "zstd",
    ) -> None:
        self._root, self._name = root, name
        self._target_bytes, self._compression = target_bytes, compression
        self._held: dict[str, list[Any]] = {}
        self._open: dict[str, _OpenFile] = {}
        self._counts: dict[str, int] = {}
        self._done: list[DataFile] = []

    def write(self, batches: Iterator[Any]) -> list[DataFile]:
        """Every row, on disk, when it returns."""
        for batch in batches:
            for day, rows in _by_day(batch):
                held = self._held.setdefault(day, [])
                held.append(rows)
                if sum(each.num_rows for each in held) >= HELD_ROWS or sum(each.nbytes for each in held) >= HELD_BYTES:
                    self._flush(day)
        for day in list(self._held):
            self._flush(day)
        for day in list(self._open):
            self._close(day)
        return self._done

    def discard(self) -> None:
        """After a failure: what was written is taken away again."""
        for each in self._open.values():
            each.discard()
        for done in self._done:
            (self._root / done.staged).unlink(missing_ok=True)

    def _flush(self, day: str) -> None:
        held = self._held.pop(day, [])
        if not held:
            return
        table = pa.Table.from_batches(held)
        if day not in self._open:
            number = self._counts.get(day, 0)
            self._counts[day] = number + 1
            staged, final = self._name(day, number)
            self._open[day] = _OpenFile(self._root, staged, final, table.schema, self._compression)
        if self._open[day].append(table) >= self._target_bytes:
            self._close(day)

    def _close(self, day: str) -> None:
        opened = self._open.pop(day)
        size = opened.close()
        known = None if day == NO_DAY else day
        self._done.append(DataFile(opened.staged, opened.final, known, opened.rows, size))


class _OpenFile:
    def __init__(self, root: Path, staged: str, final: str, schema: Any, compression: str) -> None:
        self.staged, self.final, self.rows = staged, final, 0
        self._path = root / staged
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("xb")
        self._writer = pq.ParquetWriter(self._file, schema, compression=compression)

    def append(self, table: Any) -> int:
        """Bytes in the file so far."""
        self._writer.write_table(table)
        self.rows += table.num_rows
        return self._file.tell()

    def close(self) -> int:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size

    def discard(self) -> None:
        with suppress(Exception):  # the disk may be full, and the file goes anyway
            self._writer.close()
        self._file.close()
        self._path.unlink(missing_ok=True)


def _by_day(batch: Any) -> Iterator[tuple[str, Any]]:
    if not batch.num_rows:
        return
    place = batch.schema.get_field_index(DAY)
    days, rest = batch.column(place), batch.remove_column(place)
    distinct = pc.unique(days).to_pylist()
    if len(distinct) == 1:
        yield _text(distinct[0]), rest
        return
    for day in distinct:
        mask = pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day, days.type))
        yield _text(day), rest.filter(pc.fill_null(mask, False))


def _text(day: Any) -> str:
    return NO_DAY if day is None else day.isoformat()
