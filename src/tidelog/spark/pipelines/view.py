"""`view`: the latest value of every key of a topic, as a Delta table that is kept up to date; a null value deletes.

Every batch is reduced by Spark to the last record of each key and merged into the table in one commit, which carries
the query's id and the batch's number as an application transaction: a batch that is planned again finds itself in the
table and is left alone. A query with a new checkpoint has a new id, and counts its batches anew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.pipelines.commits import STATE
from tidelog.spark.pipelines.settling import settle
from tidelog.spark.pipelines.values import Values, columns, infer_schema
from tidelog.spark.sink.writer import QUERY_ID

DELETED: Final = "_deleted"


class NoKey(ValueError):
    """A record that belongs in no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    topic: str
    to: Path
    bootstrap_servers: str
    value: str = "string"
    schema: str | None = None
    starting: str = "earliest"
    isolation: str = "read_committed"
    offsets_per_trigger: int = 1_000_000
    group: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.to / STATE / "checkpoint"

    def source(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": self.topic,
            "kafka.isolation.level": self.isolation,
        }


def view(spark: SparkSession, wanted: View) -> DataStreamWriter:
    """The query, ready to be given a trigger and started."""
    values = _settle(spark, wanted)
    options = wanted.source() | {
        "startingOffsets": wanted.starting,
        "maxOffsetsPerTrigger": str(wanted.offsets_per_trigger),
    }
    if wanted.group:
        options["kafka.group.id"] = wanted.group
    rows = spark.readStream.format("tidelog").options(**options).load().drop("topic", "timestampType")
    writer = rows.writeStream.queryName(f"view {wanted.topic}").foreachBatch(_merger(wanted, values))
    return writer.option("checkpointLocation", str(wanted.checkpoint.absolute()))


def _merger(wanted: View, values: Values) -> Callable[[DataFrame, int], None]:
    to, topic = str(wanted.to.absolute()), wanted.topic

    def merge(batch: DataFrame, number: int) -> None:
        merge_once(to, name_of(batch), number, _key(values), lambda: latest(batch, values, topic).toArrow())

    return merge


def name_of(batch: DataFrame) -> str:
    """Under which a table counts the batches of the query that this one is of."""
    return f"tidelog-{batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)}"


def merge_once(to: str, app: str, number: int, key: str, changes: Callable[[], Any]) -> None:
    """Merges the batch's changes, unless the table has this batch of `app` already."""
    table = DeltaTable(to) if DeltaTable.is_deltatable(to) else None
    merged = table.transaction_version(app) if table is not None else None
    if merged is not None and merged >= number:
        return
    # No retries within: another driver may have merged this very batch in the meantime.
    once = CommitProperties(app_transactions=[Transaction(app, number)], max_commit_retries=0)
    apply(to, table, changes(), key, once)


def latest(batch: DataFrame, values: Values, topic: str) -> DataFrame:
    """The last record of every key, as the table has it, and whether it deletes.

    Within a partition the higher offset is the later record. A key is in two partitions only if their number was
    changed, and then its time decides.
    """
    nameless = batch.where("key is null").select("partition", "offset").head()
    if nameless is not None:
        raise NoKey(f"{topic}-{nameless['partition']} has a record without a key at offset {nameless['offset']}")
    record = F.struct(*batch.columns)
    of_partition = batch.groupBy("key", "partition").agg(F.max_by(record, "offset").alias("r"))
    of_key = of_partition.groupBy("key").agg(F.max_by(F.col("r"), F.col("r.timestamp")).alias("r")).select("r.*")
    marked = of_key.withColumn("deleted", F.col("value").isNull())
    frame = columns(marked, values)
    return frame if values.kind == "json" else frame.withColumnRenamed("deleted", DELETED)


def apply(to: str, table: DeltaTable | None, changes: Any, key: str, once: CommitProperties) -> None:
    """Merges `changes`, a table of Arrow with one row a key, into the view, in one commit."""
    import pyarrow.compute as pc

    deleted = changes.column(DELETED)
    if table is None:
        kept = changes.filter(pc.invert(deleted)).drop_columns([DELETED])
        write_deltalake(to, kept, mode="error", commit_properties=once)
        return
    fields = {f"`{name}`": f"s.`{name}`" for name in changes.column_names if name != DELETED}
    (
        table.merge(changes, f"t.`{key}` = s.`{key}`", source_alias="s", target_alias="t", commit_properties=once)
        .when_matched_delete(f"s.{DELETED}")
        .when_matched_update(fields)
        .when_not_matched_insert(fields, f"not s.{DELETED}")
        .execute()
    )


def _key(values: Values) -> str:
    return "_key" if values.kind == "json" else "key"


def _settle(spark: SparkSession, wanted: View) -> Values:
    """What values are taken for, for the life of the view."""
    schema = settle(
        wanted.to / STATE / "view.json",
        str(wanted.to),
        {"topic": wanted.topic, "value": wanted.value},
        schema=wanted.schema,
        infer=(lambda: infer_schema(spark, wanted.source())) if wanted.value == "json" else None,
    )
    return Values(wanted.value, schema)
