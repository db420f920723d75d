"""What a record's value is taken for: bytes, text, or JSON with a schema, in which case its fields become columns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.spark.bounds import InvalidOption

VALUES: Final = ("raw", "string", "json")
UNPARSED: Final = "_unparsed"
"""The text of a value that is not what the schema says: kept, so that nothing is dropped in silence."""
SAMPLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Values:
    kind: str = "string"
    schema: StructType | None = None

    def __post_init__(self) -> None:
        if self.kind not in VALUES:
            raise InvalidOption(f"value is {self.kind!r}; it may be {', '.join(VALUES)}")


def columns(rows: DataFrame, values: Values) -> DataFrame:
    """The columns a table has of a topic. JSON fields have their own names, what the log knows an underscore before."""
    if values.kind == "raw":
        return rows
    text = [F.col(name).cast("string").alias(name) for name in ("key", "value")]
    rest = [F.col(name) for name in rows.columns if name not in ("key", "value")]
    if values.kind == "string":
        return rows.select(*text, *rest)
    if values.schema is None:
        raise InvalidOption("values in JSON need a schema")
    schema = StructType([*values.schema.fields, StructField(UNPARSED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNPARSED}
    parsed = rows.withColumn("_fields", F.from_json(F.col("value").cast("string"), schema, options))
    known = [F.col("_fields").getField(field.name).alias(field.name) for field in values.schema.fields]
    log = [F.col(name).alias(f"_{name}") for name in rows.columns if name not in ("key", "value")]
    return parsed.select(
        F.col("key").cast("string").alias("_key"), *known, F.col("_fields").getField(UNPARSED).alias(UNPARSED), *log
    )


def infer_schema(spark: SparkSession, options: Mapping[str, str]) -> StructType:
    """The schema of the first records that the topic has now."""
    sample: list[Any] = (
        spark.read.format("tidelog").options(**options).load().where("value is not null")
        .selectExpr("cast(value as string) as value").limit(SAMPLE).collect()
    )  # fmt: skip
    texts = [row["value"] for row in sample]
    if not texts:
        raise InvalidOption("the topic has no records to infer a schema from; give --schema")
    found = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema
    if found.fieldNames() in ([], ["_corrupt_record"]):
        raise InvalidOption(
            f"the first value is no JSON object: {texts[0][:60]!r}; use --value string or give --schema"
        )
    return StructType([field for field in found.fields if field.name != "_corrupt_record"])


def schema_from(text: str) -> StructType:
    """A schema as DDL (`id bigint, amount double`) or as Spark's JSON."""
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        found = StructType.fromDDL(text)
    except Exception as error:
        raise InvalidOption(f"the schema {text!r} is not understood: {str(error).splitlines()[0]}") from None
    if not isinstance(found, StructType):
        raise InvalidOption(f"the schema {text!r} is one type, not a list of fields")
    return found
