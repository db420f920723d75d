"""A pipeline of your own, declared: what there is to be, and Spark finds out in which order to make it.

    tidelog serve &
    tidelog topic create orders --partitions 4
    tidelog topic create big-orders --partitions 4
    python examples/orders.py 1000
    tidelog pipeline run examples/spark_declarative.py --once
    tidelog consume big-orders --from-beginning

Spark's own declarative pipelines (`pyspark.pipelines`), with the source and the sink `tidelog`. The broker's address
and every `--option NAME=VALUE` are settings of the session: `tidelog.bootstrap`, `tidelog.option.NAME`.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BOOTSTRAP = spark.conf.get("tidelog.bootstrap")
LEAST = int(spark.conf.get("tidelog.option.least", "1000"))
SCHEMA = "customer string, item string, cents bigint"


@dp.temporary_view
def orders() -> DataFrame:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", spark.conf.get("tidelog.option.topic", "orders"))
        .option("startingOffsets", "earliest")
        .load()
    )
    return rows.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")


dp.create_sink(
    "big_orders",
    "tidelog",
    {"kafka.bootstrap.servers": BOOTSTRAP, "topic": spark.conf.get("tidelog.option.to", "big-orders")},
)


@dp.append_flow(target="big_orders")
def to_big_orders() -> DataFrame:
    big = spark.readStream.table("orders").where(F.col("cents") >= LEAST)
    return big.select(F.col("customer").alias("key"), F.to_json(F.struct("*")).alias("value"))
