"""Values decoded where they are read: `value.format=string|json|avro` gives a typed `value` column.

A record that does not parse never stops a query and is never dropped: its `value` is null, `_error` says why and `_raw`
holds its bytes. In a row that parsed both are null, as all three are in a tombstone.
"""

import importlib
import importlib.util
import io
import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import SourceOptions
from tidelog.spark.value_schema import value_type

pc: Any = pyarrow.compute
ERROR, RAW = "_error", "_raw"
_FEW: Final = 64  # rows that are parsed one by one to find those that do not parse

Decoded = tuple[Any, list[str | None]]  # an array, and per row what is wrong with it
Decode = Callable[[Any], Decoded]


class ValueDecoder:
    def __init__(self, options: SourceOptions) -> None:
        from pyspark.sql.pandas.types import to_arrow_type

        spark_type = value_type(options.value_format, options.value_schema)
        self.arrow_type: Any = to_arrow_type(spark_type, timezone="UTC") if spark_type is not None else pa.string()
        decoders: dict[str, Decode] = {"string": self._strings, "json": self._json, "avro": self._avro}
        self._decode = decoders[options.value_format]
        self._read_avro = avro_reader(options.value_schema) if options.value_format == "avro" else None

    def columns(self, values: Any) -> dict[str, Any]:
        """`value`, `_error` and `_raw` of an array of bytes."""
        decoded, errors = self._decode(values)
        problems = pa.array(errors, pa.string()) if any(errors) else pa.nulls(len(values), pa.string())
        raw = pc.if_else(pc.is_valid(problems), values, pa.scalar(None, pa.binary()))
        return {"value": decoded, ERROR: problems, RAW: raw}

    def _strings(self, values: Any) -> Decoded:
        try:
            return values.cast(pa.string()), [None] * len(values)
        except pa.ArrowInvalid:
            return _one_by_one(values, bytes.decode, pa.string())

    def _json(self, values: Any) -> Decoded:
        """All at once where all of them parse; otherwise halves, and a few that stay one by one."""
        present = values.drop_null()
        parsed = _parse_json(present, self.arrow_type)
        if parsed is not None:
            return _with_nulls(parsed, values), [None] * len(values)
        if len(values) <= _FEW:
            return _one_by_one(values, self._one_json, self.arrow_type)
        middle = len(values) // 2
        left, left_errors = self._json(values.slice(0, middle))
        right, right_errors = self._json(values.slice(middle))
        return pa.concat_arrays([left, right]), left_errors + right_errors

    def _one_json(self, value: bytes) -> Any:
        parsed = _parse_json(pa.array([value], pa.binary()), self.arrow_type)
        if parsed is not None:
            return parsed[0]
        document = json.loads(value)  # also says in words what is wrong
        compact = json.dumps(document).encode()  # without the line breaks that the fast parser takes for a next record
        parsed = _parse_json(pa.array([compact], pa.binary()), self.arrow_type)
        if parsed is None:
            raise ValueError(f"does not fit {self.arrow_type}")
        return parsed[0]

    def _avro(self, values: Any) -> Decoded:
        assert self._read_avro is not None
        return _one_by_one(values, self._read_avro, self.arrow_type)


def _parse_json(values: Any, kind: Any) -> Any:
    """An array of `kind`, or None if not every value is one JSON document of that shape.

    Each value is wrapped in an object of its own line: one that is empty, or that holds two documents, then breaks the
    parse or the count instead of shifting its neighbours.
    """
    if not len(values):
        return pa.array([], kind)
    lines = pc.binary_join_element_wise(pa.scalar(b'{"v":'), values, pa.scalar(b"}\n"), b"")
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    ends = lines.buffers()[1]
    first, last = (
        int(pa.Array.from_buffers(pa.int32(), 1, [None, ends], offset=at)[0].as_py()) for at in (0, len(lines))
    )
    text = lines.buffers()[2].slice(first, last - first)
    options = pa.json.ParseOptions(explicit_schema=pa.schema([("v", kind)]), unexpected_field_behavior="ignore")
    read = pa.json.ReadOptions(use_threads=False, block_size=max(len(text), 1 << 16) + 1)
    try:
        table = pa.json.read_json(io.BytesIO(text), read_options=read, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != len(values):
        return None
    found = table.column("v").combine_chunks()
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found if found.type == kind else None


def _with_nulls(parsed: Any, values: Any) -> Any:
    """Puts tombstones back where they were."""
    if not values.null_count:
        return parsed
    places = pc.cumulative_sum(values.is_valid().cast(pa.int32()))
    indices = pc.if_else(values.is_valid(), pc.subtract(places, 1), pa.scalar(None, pa.int32()))
    return parsed.take(indices)


def _one_by_one(values: Any, read: Callable[[bytes], Any], kind: Any) -> Decoded:
    found: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        if value is None:
            found.append(None)
            errors.append(None)
            continue
        try:
            one = read(value)
            found.append(pa.scalar(one, kind) if not isinstance(one, pa.Scalar) else one)
            errors.append(None)
        except Exception as error:  # whatever a parser makes of hostile bytes, the query goes on
            found.append(None)
            errors.append(f"{type(error).__name__}: {error}"[:500])
    return pa.array(found, kind), errors


def avro_reader(schema: str | None) -> Callable[[bytes], Any]:
    if importlib.util.find_spec("fastavro") is None:
        raise InvalidOption("value.format=avro needs the package fastavro: pip install fastavro")
    fastavro: Any = importlib.import_module("fastavro")
    parsed = fastavro.parse_schema(json.loads(schema or ""))

    def read(value: bytes) -> Any:
        stream = io.BytesIO(value)
        record = fastavro.schemaless_reader(stream, parsed)
        rest = len(value) - stream.tell()
        if rest:
            raise ValueError(f"{rest} bytes follow the record")
        return record

    return read
