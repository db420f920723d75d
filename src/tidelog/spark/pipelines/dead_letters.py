"""Records that a pipeline cannot use, kept in a topic of their own: as they were, with headers that say where each was
and what is wrong with it.

A query of its own beside the pipeline's: it reads the same topic and writes, exactly once, only what is rejected.
"""

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.fields import REJECTED
from tidelog.spark.pipelines.targets import to_topic

ERROR: Final = "tidelog.error"
PROVENANCE: Final = ("topic", "partition", "offset", "timestamp")
"""Headers `tidelog.source.*` of a record that was copied: where it was first."""
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def dead_letters(
    frame: DataFrame, topic: str, *, source: str, bootstrap_servers: str, checkpoint: Path
) -> DataStreamWriter:
    """`frame` holds the records with a column `_rejected`, as `fields.opened` makes it."""
    if topic == source:
        raise InvalidOption(f"dead letters of {source} cannot go to {source} itself")
    rejected = frame.where(F.col(REJECTED).isNotNull())
    headers = with_headers(_header(ERROR, F.col(REJECTED)), *provenance()).alias("headers")
    chosen = rejected.select("key", "value", headers, "timestamp")
    return to_topic(
        chosen, topic, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, name=f"dead letters of {source}"
    )


def with_headers(*more: Column) -> Column:
    """The record's headers and further ones."""
    kept = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
    return F.concat(kept, F.array(*more).cast(_HEADERS))


def provenance() -> list[Column]:
    def content(name: str) -> Column:
        return F.unix_millis(F.col("timestamp")) if name == "timestamp" else F.col(name)

    return [_header(f"tidelog.source.{name}", content(name)) for name in PROVENANCE]


def _header(name: str, content: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), content.cast("string").cast("binary").alias("value"))
