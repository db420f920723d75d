"""`view`: the latest value of every key of a topic, as a Delta table that is kept up to date; a null value deletes.

Every batch is reduced by Spark to the last record of each key and merged into the table in one commit, which carries
the batch's number as an application transaction: a batch that is planned again finds itself in the table and is left
alone.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.commits import STATE
from tidelog.spark.pipelines.values import Values, columns, infer_schema, schema_from

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
    values, app = _settle(spark, wanted)
    options = wanted.source() | {
        "startingOffsets": wanted.starting,
        "maxOffsetsPerTrigger": str(wanted.offsets_per_trigger),
    }
    if wanted.group:
        options["kafka.group.id"] = wanted.group
    rows = spark.readStream.format("tidelog").options(**options).load().drop("topic", "timestampType")
    writer = rows.writeStream.queryName(f"view {wanted.topic}").foreachBatch(_merger(wanted, values, app))
    return writer.option("checkpointLocation", str(wanted.checkpoint.absolute()))


def _merger(wanted: View, values: Values, app: str) -> Callable[[DataFrame, int], None]:
    to, topic = str(wanted.to.absolute()), wanted.topic

    def merge(batch: DataFrame, number: int) -> None:
        table = DeltaTable(to) if DeltaTable.is_deltatable(to) else None
        merged = table.transaction_version(app) if table is not None else None
        if merged is not None and merged >= number:
            return
        changes = latest(batch, values, topic).toArrow()
        # No retries within: another driver may have merged this very batch in the meantime.
        once = CommitProperties(app_transactions=[Transaction(app, number)], max_commit_retries=0)
        apply(to, table, changes, _key(values), once)

    return merge


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


def _settle(spark: SparkSession, wanted: View) -> tuple[Values, str]:
    """What values are taken for and the name under which batches are counted: for the life of the view."""
    path = wanted.to / STATE / "view.json"
    said = {"topic": wanted.topic, "value": wanted.value}
    given = schema_from(wanted.schema) if wanted.schema is not None else None
    if path.exists():
        known = json.loads(path.read_text())
        for name, value in said.items():
            if known[name] != value:
                raise InvalidOption(
                    f"{wanted.to} was begun with {name} {known[name]}, not {value}; use another directory"
                )
        schema = StructType.fromJson(known["schema"]) if known["schema"] is not None else None
        if given is not None and given != schema:
            raise InvalidOption(f"{wanted.to} was begun with another schema; use another directory for this one")
        return Values(wanted.value, schema), known["app"]
    if wanted.value == "json" and given is None:
        given = infer_schema(spark, wanted.source())
    app = f"tidelog-view-{uuid.uuid4()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({**said, "app": app, "schema": None if given is None else given.jsonValue()}))
    draft.rename(path)
    return Values(wanted.value, given), app
