"""Arrow arrays of a portion of batches, only for the columns that are wanted."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.client.fetcher import Fetched
from tidelog.errors import CorruptMessage
from tidelog.spark.columns import kernel
from tidelog.spark.columns.batches import PORTION_BYTES, Portion, Unreadable, append_time, portions
from tidelog.wire.record_batch import LOG_APPEND_TIME
from tidelog.wire.records import decode_records

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
ROWS_MAX: Final = 1 << 17
"""Rows of one Arrow batch: enough that its fixed cost does not show, few enough that Spark's copy of it stays small."""

CONSTANT_ROWS: Final = 1 << 15
NOTES_KEPT: Final = 1 << 17
_TIME_SPAN: Final = 1 << 62  # as in wire.records: base and delta each stay below, so their sum is an i64
_MICROS: Final = 1000
_NO_BYTES: Final = np.empty(0, np.uint8)


class ColumnBuilder:
    """For one partition: `read` makes Arrow batches with `columns`, in that order, of what a Fetch brought."""

    def __init__(self, columns: Sequence[str], *, topic: str, partition: int, read_committed: bool = False) -> None:
        unknown = [name for name in columns if name not in TYPES]
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(TYPES)}")
        self._columns = tuple(columns)
        self._topic, self._partition, self._read_committed = topic, partition, read_committed
        self.schema = pa.schema([(name, TYPES[name]) for name in columns])
        self._constants: dict[tuple[str, str | int], Any] = {}
        self._notes = np.empty((0, kernel.NOTES_WIDTH), np.int64)  # kept: fresh memory costs more than the walk

    def read(self, fetched: Fetched, first: int, until: int) -> Iterator[Any]:
        """Records with offsets in [first, until) as `pyarrow.RecordBatch`es of at most ROWS_MAX rows."""
        ready = portions(
            fetched,
            topic=self._topic,
            partition=self._partition,
            read_committed=self._read_committed,
            first=first,
            until=until,
        )
        for portion in ready:
            yield from self._portion(portion, first, until)

    def _portion(self, portion: Portion, first: int, until: int) -> Iterator[Any]:
        data = np.frombuffer(memoryview(portion.data).toreadonly(), np.uint8)
        notes = self._room_for(sum(header.records_count for header in portion.headers))
        rows, broken = kernel.walk(data, _table(portion), first, until, notes)
        if broken >= 0:
            self._explain(portion, broken)
        # A batch of the log may unpack to far more than a portion; its Arrow form then comes in pieces.
        size = sum(length for _, length in portion.places)
        step = min(ROWS_MAX, max(1, rows * PORTION_BYTES // size)) if size > 2 * PORTION_BYTES else ROWS_MAX
        for start in range(0, rows, step):
            count = min(step, rows - start)
            piece = notes[start : start + count]
            arrays = [self._array(name, data, piece, count, portion) for name in self._columns]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            else:  # a schema without columns is legal: only the number of rows counts
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))

    def _room_for(self, records: int) -> Any:
        if records > NOTES_KEPT:  # a batch of the log may hold millions of empty records
            return np.empty((records, kernel.NOTES_WIDTH), np.int64)
        if len(self._notes) < records:
            self._notes = np.empty((records, kernel.NOTES_WIDTH), np.int64)
        return self._notes[:records]

    def _array(self, name: str, data: Any, notes: Any, rows: int, portion: Portion) -> Any:
        match name:
            case "key":
                return _parts(data, notes, rows, kernel.KEY_AT, pa.binary())
            case "value":
                return _parts(data, notes, rows, kernel.VALUE_AT, pa.binary())
            case "offset":
                return _numbers(notes, rows, kernel.OFFSET, 1, pa.int64())
            case "timestamp":
                return _numbers(notes, rows, kernel.TIME, _MICROS, TYPES["timestamp"])
            case "headers":
                return _headers(data, notes, rows)
            case "timestampType":
                return self._timestamp_types(portion, notes, rows)
            case "topic":
                return self._constant("topic", self._topic, rows)
        return self._constant("partition", self._partition, rows)

    def _timestamp_types(self, portion: Portion, notes: Any, rows: int) -> Any:
        """0 is CreateTime, 1 LogAppendTime: nearly always the same for all."""
        kinds = [int(bool(header.attributes & LOG_APPEND_TIME)) for header in portion.headers]
        if len(set(kinds)) == 1:
            return self._constant("timestampType", kinds[0], rows)
        ends = np.array([header.last_offset for header in portion.headers], np.int64)
        batch_of = np.searchsorted(ends, notes[:rows, kernel.OFFSET])
        return _plain(np.array(kinds, np.int32)[batch_of], pa.int32())

    def _constant(self, name: str, value: str | int, rows: int) -> Any:
        """Slices of one array: the same bytes are not written anew for every batch."""
        known = self._constants.get((name, value))
        if known is None or len(known) < rows:
            known = _repeated(value, max(rows, CONSTANT_ROWS))
            self._constants[name, value] = known
        return known.slice(0, rows)

    def _explain(self, portion: Portion, broken: int) -> None:
        """The slow reader says in words what the kernel only refused."""
        header = portion.headers[broken]
        why = "its records do not fit it"
        with suppress(StopIteration):
            try:
                for _ in decode_records(
                    portion.payload(broken),
                    header.records_count,
                    base_offset=header.base_offset,
                    last_offset_delta=header.last_offset_delta,
                    base_timestamp=header.base_timestamp,
                    append_time_ms=append_time(header),
                ):
                    pass
            except CorruptMessage as error:
                why = str(error)
        raise Unreadable(self._topic, self._partition, header.base_offset, why)


def _table(portion: Portion) -> Any:
    """What the kernel has to know of each batch."""
    rows = []
    for header, (place, size) in zip(portion.headers, portion.places, strict=True):
        time = append_time(header)
        # A base timestamp that would overflow makes the batch unreadable: no record of it is looked at.
        if not -_TIME_SPAN < header.base_timestamp < _TIME_SPAN:
            size = -1
        rows.append(
            (
                place,
                size,
                header.records_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                time or 0,
                time is not None,
            )
        )
    return np.array(rows, np.int64)


def _repeated(value: str | int, rows: int) -> Any:
    # By hand: what Arrow offers for this looks whether pandas is there, and by that loads it: 45 MB for nothing.
    if isinstance(value, int):
        return _plain(np.full(rows, value, np.int32), pa.int32())
    text = value.encode()
    ends = np.arange(0, (rows + 1) * len(text), len(text), dtype=np.int32)[: rows + 1]
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])


def _room(count: int, kind: Any) -> Any:
    """To be filled for Arrow, from its own pool: that hands out the same memory again, where numpy's is fresh and costs
    ten times as much to fill."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def _plain(numbers: Any, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _numbers(notes: Any, rows: int, which: int, factor: int, kind: Any) -> Any:
    into = _room(rows, np.int64)
    kernel.column(notes, rows, which, factor, into)
    return _plain(into, kind)


def _parts(data: Any, notes: Any, rows: int, place: int, kind: Any) -> Any:
    total, nulls = kernel.measure(notes, rows, place + 1)
    ends, into = _room(rows + 1, np.int32), _room(total, np.uint8)
    valid = np.empty(rows, np.uint8) if nulls else _NO_BYTES
    if not kernel.gather(data, notes, rows, place, ends, into, valid):
        raise CorruptMessage("what was noted of the records does not fit them")
    return pa.Array.from_buffers(kind, rows, [_bitmap(valid), pa.py_buffer(ends), pa.py_buffer(into)], nulls)


def _bitmap(valid: Any) -> Any:
    return pa.py_buffer(np.packbits(valid, bitorder="little")) if len(valid) else None


def _headers(data: Any, notes: Any, rows: int) -> Any:
    """Null for a record without any, as Spark's own connector has it."""
    counts = notes[:rows, kernel.HEADERS_COUNT]
    total = int(counts.sum())
    headers = np.empty((total, 4), np.int64)
    if not kernel.walk_headers(data, notes, rows, headers):
        raise CorruptMessage("what was noted of the records' headers does not fit them")
    names = _parts(data, headers, total, 0, pa.binary())
    values = _parts(data, headers, total, 2, pa.binary())
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    valid = (counts > 0).astype(np.uint8)
    items = pa.StructArray.from_arrays([_text(names), values], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(
        HEADERS, rows, [_bitmap(valid), pa.py_buffer(ends)], int(rows - valid.sum()), children=[items]
    )


def _text(names: Any) -> Any:
    """Header keys are text; bytes that are none must not make the record unreadable."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
