"""Columns of a frame as the kernel wants them. Which columns there may be is told in `schema`."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.sink.kernel import NOT_GIVEN

_NONE: Final = np.empty(0, np.int64)
_NO_BYTES: Final = np.empty(0, np.uint8)


class InvalidRow(ValueError):
    """A row that no record can be made of; says which value is wrong."""


class Parts(NamedTuple):
    """Byte strings, some of them null: see `kernel`."""

    at: Any = _NONE
    data: Any = _NO_BYTES
    valid: Any = _NO_BYTES


@dataclass(slots=True)
class Rows:
    """Some thousand rows, opened."""

    count: int
    keys: Parts
    values: Parts
    partitions: Any
    times: Any
    topics: list[str]
    topic_of: Any
    header_from: Any = field(default_factory=lambda: _NONE)
    header_until: Any = field(default_factory=lambda: _NONE)
    names: Parts = field(default_factory=Parts)
    contents: Parts = field(default_factory=Parts)


def open_rows(batches: list[Any], topic: str | None, now_ms: int) -> Rows:
    """`topic` is where all rows go, whatever the topic column says; `now_ms` is the time of those that bring none."""
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = {name: table.column(name).chunk(0) for name in table.column_names}
    topics, topic_of = ([topic], _NONE) if topic is not None else _topics(columns["topic"])
    rows = Rows(
        count=table.num_rows,
        keys=_parts(columns["key"]) if "key" in columns else Parts(),
        values=_parts(columns["value"]),
        partitions=_numbers(columns["partition"], NOT_GIVEN) if "partition" in columns else _NONE,
        times=_times(columns["timestamp"], now_ms) if "timestamp" in columns else np.array([now_ms], np.int64),
        topics=topics,
        topic_of=topic_of,
    )
    if "headers" in columns:
        _open_headers(rows, columns["headers"])
    return rows


def _parts(column: Any) -> Parts:
    whole = column.cast(pa.large_binary())
    _, places, data = whole.buffers()
    at = np.frombuffer(places, np.int64, len(whole) + 1, whole.offset * 8)
    return Parts(at, np.frombuffer(data, np.uint8) if data is not None else _NO_BYTES, _validity(whole))


def _validity(column: Any) -> Any:
    if not column.null_count:
        return _NO_BYTES
    return column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)


def _numbers(column: Any, null: int) -> Any:
    return column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)


def _times(column: Any, now_ms: int) -> Any:
    """Milliseconds; a frame of one row and one time for all rows look the same to the kernel, and mean the same."""
    return _numbers(pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False), now_ms)


def _topics(column: Any) -> tuple[list[str], Any]:
    if column.null_count:
        raise InvalidRow("null topic present in the data. Use the topic option for setting a topic.")
    coded = column.dictionary_encode()
    return coded.dictionary.to_pylist(), _numbers(coded.indices, NOT_GIVEN)


def _open_headers(rows: Rows, column: Any) -> None:
    """A null list is no headers; its places need not make sense, so they are replaced."""
    places = column.offsets.cast(pa.int64()).to_numpy(zero_copy_only=False)
    rows.header_from, rows.header_until = places[:-1].copy(), places[1:].copy()
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        rows.header_until[null] = rows.header_from[null]
    items = column.values
    names, contents = items.field(0), items.field(1)
    if items.null_count or names.null_count:
        raise InvalidRow("null header or header key present in the data; a header needs a key")
    rows.names, rows.contents = _parts(names), _parts(contents)
