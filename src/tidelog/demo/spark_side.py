"""The demo's pipeline, in a process of its own: an archive of every event, and revenue by minute without duplicates.

    python -m tidelog.demo.spark_side BOOTSTRAP TOPIC REVENUE_TOPIC DIRECTORY STARTING_OFFSETS

Says on stdout, a JSON object a line, how far it is. A line on stdin makes it read what is left and end; its last line
is what the archive holds, found by a reader that knows nothing of Spark.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "event_id string, type string, `order` string, at bigint, cents bigint, customer string, item string"
EVERY = "2 seconds"
LATENESS = "10 minutes"


class Where(NamedTuple):
    bootstrap: str
    topic: str
    revenue_topic: str
    lake: Path
    starting: str


def main(bootstrap: str, topic: str, revenue_topic: str, directory: str, starting: str) -> None:
    from tidelog.spark import session

    where = Where(bootstrap, topic, revenue_topic, Path(directory), starting)

    conf: dict[str, Any] = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False, "spark.log.level": "ERROR"}
    spark = session("tidelog demo", **conf)
    say(state="started")
    asked = threading.Event()
    threading.Thread(target=_wait_for_word, args=(asked,), daemon=True).start()
    queries = [
        _archive(spark, where).trigger(processingTime=EVERY).start(),
        _revenue(spark, where).trigger(processingTime=EVERY).start(),
    ]
    while not asked.is_set() and all(query.isActive for query in queries):
        _tell(queries)
        asked.wait(0.5)
    for query in queries:
        query.stop()
    # Both go on where they stopped, read what is left and end.
    for make in (_archive, _revenue):
        make(spark, where).trigger(availableNow=True).start().awaitTermination()
    say(state="done", **_what_the_archive_holds(where.lake / "orders"))
    spark.stop()


def _archive(spark: "SparkSession", where: Where) -> Any:
    from tidelog.spark.pipelines.archive import Archive, archive

    wanted = Archive(
        topic=where.topic,
        to=where.lake / "orders",
        bootstrap_servers=where.bootstrap,
        value="json",
        schema=SCHEMA,
        starting=where.starting,
        group="archive",
    )
    return archive(spark, wanted)


def _revenue(spark: "SparkSession", where: Where) -> Any:
    from pyspark.sql import functions as F

    events = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", where.bootstrap)
        .option("subscribe", where.topic)
        .option("startingOffsets", where.starting)
        .option("kafka.group.id", "revenue")
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event"))
        .select("event.*")
        .withColumn("time", (F.col("at") / 1000).cast("timestamp"))
    )
    by_minute = (
        events.where("type = 'PaymentCaptured'")
        .withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("time", "1 minute"))
        .agg(F.sum("cents").alias("cents"))
        .select(
            F.date_format("window.start", "HH:mm").alias("key"),
            F.to_json(F.struct(F.col("window.start").alias("minute"), "cents")).alias("value"),
        )
    )

    def tell(minutes: Any, batch: int) -> None:
        """A minute that changed is told anew. Told twice, it says the same."""
        writer = minutes.write.format("tidelog").mode("append")
        writer.option("kafka.bootstrap.servers", where.bootstrap).option("topic", where.revenue_topic).save()

    return (
        by_minute.writeStream.foreachBatch(tell)
        .option("checkpointLocation", str(where.lake / "_checkpoints" / "revenue"))
        .queryName("revenue")
        .outputMode("update")
    )


def _tell(queries: list[Any]) -> None:
    archive, revenue = (query.recentProgress for query in queries)
    say(
        state="running",
        archived=sum(each["numInputRows"] for each in archive),
        counted=sum(each["numInputRows"] for each in revenue),
    )


def _what_the_archive_holds(path: Path) -> dict[str, int]:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    table = ds.dataset(path, partitioning="hive", exclude_invalid_files=False).to_table(["event_id", "type", "cents"])
    first = table.group_by("event_id").aggregate([("type", "min"), ("cents", "min")])
    paid = first.filter(pc.equal(first["type_min"], "PaymentCaptured"))
    return {
        "rows": table.num_rows,
        "distinct": first.num_rows,
        "revenue_cents": pc.sum(paid["cents_min"]).as_py() or 0,
    }


def _wait_for_word(asked: threading.Event) -> None:
    sys.stdin.readline()
    asked.set()


def say(**facts: Any) -> None:
    print(json.dumps({"at": time.time(), **facts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
