"""Decoded values: typed where they parse, told and kept where they do not."""

import io
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DecimalType, DoubleType, LongType, MapType, StringType, StructField, StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.ddl import parse_ddl
from tidelog.spark.options import parse_options
from tidelog.spark.value_schema import from_avro, value_type
from tidelog.spark.values import ValueDecoder

DDL = "id BIGINT, item STRING, price DOUBLE, tags ARRAY<STRING>, at STRUCT<city: STRING, ok: BOOLEAN>"


def decode(values, value_format="json", schema=DDL):
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": value_format}
    options = parse_options(given | ({"value.schema": schema} if schema else {}), streaming=False)
    made = ValueDecoder(options).columns(pa.array(values, pa.binary()))
    rows = pa.table(made).to_pylist()
    return [(row["value"], row["_error"], row["_raw"]) for row in rows]


def order(n: int) -> bytes:
    return json.dumps(
        {"id": n, "item": "tea", "price": n / 2, "tags": ["a"], "at": {"city": "Ulm", "ok": True}}
    ).encode()


def typed(n: int) -> dict:
    return {"id": n, "item": "tea", "price": n / 2, "tags": ["a"], "at": {"city": "Ulm", "ok": True}}


def test_json_becomes_columns():
    assert decode([order(1), order(2)]) == [(typed(1), None, None), (typed(2), None, None)]


def test_missing_fields_are_null_and_others_ignored():
    ((value, error, _),) = decode([b'{"id": 5, "colour": "red", "more": {"x": [1]}}'])
    assert error is None
    assert value == {"id": 5, "item": None, "price": None, "tags": None, "at": None}


def test_tombstones_are_not_errors():
    assert decode([order(1), None, order(2)]) == [(typed(1), None, None), (None, None, None), (typed(2), None, None)]


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b" ", b"nonsense", b"{", b'{"id": "five"}', b"[1]", b"7", b"\xff\xfe", b"{}{}", b"{}\n{}",
        b'{}}{"v":{}', b'{"id": 1}, {"id": 2}', b'{"tags": 5}', b'{"at": []}', b'{"id": 99999999999999999999}',
    ],
)  # fmt: skip
def test_what_does_not_parse_is_kept_and_told_and_shifts_nothing(wrong):
    rows = decode([order(1), wrong, order(2), b"", order(3)])
    assert [row[0] for row in rows] == [typed(1), None, typed(2), None, typed(3)]
    assert rows[1][1]
    assert rows[1][2] == wrong
    assert rows[0][1:] == rows[2][1:] == rows[4][1:] == (None, None)


def test_documents_over_several_lines():
    pretty = json.dumps(typed(7), indent=2).encode()
    assert decode([order(1), pretty]) == [(typed(1), None, None), (typed(7), None, None)]


def test_a_few_bad_ones_among_many():
    values = [order(n) if n % 1000 else b"bad" for n in range(5000)]
    rows = decode(values)
    assert [n for n, row in enumerate(rows) if row[1]] == [0, 1000, 2000, 3000, 4000]
    assert all(row[0] == typed(n) for n, row in enumerate(rows) if n % 1000)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=12) | st.sampled_from([order(1), b"{}", b"null", b"{}\n"]), max_size=8))
def test_any_bytes_give_a_row_each(values):
    rows = decode(values)
    assert len(rows) == len(values)
    for value, (decoded, error, raw) in zip(values, rows, strict=True):
        if value is None:
            assert (decoded, error, raw) == (None, None, None)
        elif error is not None:
            assert (decoded, raw) == (None, value)
        else:
            assert raw is None
            assert json.loads(value) is None or set(decoded) == set(typed(0))


def test_strings():
    assert decode([b"tea", None, "Käse".encode()], "string", None) == [
        ("tea", None, None), (None, None, None), ("Käse", None, None),
    ]  # fmt: skip
    rows = decode([b"tea", b"\xff"], "string", None)
    assert rows[0] == ("tea", None, None)
    assert (rows[1][0], rows[1][2]) == (None, b"\xff")
    assert "UnicodeDecodeError" in rows[1][1]


@pytest.mark.parametrize(
    ("value_format", "schema", "complaint"),
    [
        ("json", None, "needs value.schema: DDL"),
        ("avro", None, "needs value.schema: an Avro schema"),
        ("raw", "id INT", "value.format is raw"),
        ("json", "id NONSENSE(", "cannot be read"),
        ("json", "m MAP<STRING, INT>", r"value.m is of type map<string,int>, which value.format=json cannot give"),
        ("avro", "{}", "no Avro schema"),
        ("avro", '["int", "string"]', "a union of 2 types"),
    ],
)
def test_schemas_that_cannot_be_meant(value_format, schema, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        value_type(value_format, schema)


def test_avro_schemas_become_spark_types():
    schema = {
        "type": "record", "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
                {"name": "price", "type": "double"}]}}},
            {"name": "labels", "type": {"type": "map", "values": "string"}},
        ],
    }  # fmt: skip
    expected = parse_ddl(
        "id BIGINT, item STRING, at TIMESTAMP, lines ARRAY<STRUCT<price: DOUBLE>>, labels MAP<STRING, STRING>"
    )
    assert from_avro(json.dumps(schema)) == expected


def test_timestamps_in_json():
    rows = decode([b'{"at": "2026-01-02T03:04:05Z"}'], schema="at TIMESTAMP")
    assert rows == [({"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}, None, None)]


def test_ddl():
    told = parse_ddl("id BIGINT, `odd ``name` string, m map<string,array<struct<a: double>>>, d Decimal(12, 2)")
    assert told == StructType(
        [
            StructField("id", LongType()),
            StructField("odd `name", StringType()),
            StructField("m", MapType(StringType(), ArrayType(StructType([StructField("a", DoubleType())])))),
            StructField("d", DecimalType(12, 2)),
        ]
    )


@pytest.mark.parametrize(
    "wrong", ["", "id", "id NOTHING", "id INT,", "a ARRAY<INT", "a INT b INT", "x INT; y INT", "<"]
)
def test_ddl_that_is_none(wrong):
    with pytest.raises(ValueError):
        parse_ddl(wrong)
    with pytest.raises(ValueError, match="too deeply"):
        parse_ddl("a " + "array<" * 60 + "int" + ">" * 60)


def test_avro_values_become_rows_and_what_does_not_parse_is_kept():
    import fastavro

    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    parsed = fastavro.parse_schema(schema)

    def written(row):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        return stream.getvalue()

    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    whole = written({"id": 7, "item": "tea", "at": at})
    values = [whole, None, whole[:-1], whole + b"x", written({"id": 8, "item": None, "at": at})]
    first, tombstone, cut, longer, last = decode(values, "avro", json.dumps(schema))
    assert first == ({"id": 7, "item": "tea", "at": at}, None, None)
    assert tombstone == (None, None, None)
    assert last == ({"id": 8, "item": None, "at": at}, None, None)
    for (value, error, raw), sent in ((cut, whole[:-1]), (longer, whole + b"x")):
        assert value is None
        assert error
        assert raw == sent
