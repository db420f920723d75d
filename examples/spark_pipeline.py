"""A pipeline of your own as a plain function: what every customer spent, minute by minute, as a topic and as a table.

    tidelog serve &
    tidelog topic create orders --partitions 4
    tidelog topic create spending --partitions 4
    python examples/orders.py 1000
    tidelog pipeline run examples/spark_pipeline.py --once
    tidelog consume spending --from-beginning

`tidelog pipeline run` calls `pipeline` with a session and starts what it returns. Parameters are options: `bootstrap`
is the command's own, `--option lake=/data/lake` gives others. Run again, it goes on where it stopped.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "customer string, item string, cents bigint, at bigint"


def read_orders(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", "spending")  # `tidelog group lag spending` shows how far it is
        .load()
    )
    orders = rows.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")
    return orders.withColumn("at", F.timestamp_millis("at"))


def spending(orders: DataFrame) -> DataFrame:
    """A row for every customer and minute. Plain frames in and out: easy to test without a broker."""
    return (
        orders.withWatermark("at", "30 seconds")
        .groupBy(F.window("at", "1 minute"), "customer")
        .agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("orders"))
        .select("customer", F.col("window.start").alias("minute"), "cents", "orders")
    )


def pipeline(
    spark: SparkSession, bootstrap: str, topic: str = "orders", to: str = "spending", lake: Path = Path("lake")
) -> dict[str, Any]:
    orders = read_orders(spark, bootstrap, topic)
    told = spending(orders).select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return {
        "spending": told.writeStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("topic", to),
        "orders-table": orders.writeStream.format("parquet").option("path", str(lake / "orders")),
    }
