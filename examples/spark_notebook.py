"""A look at a topic, cell by cell: paste it into a notebook, or run it in an editor that knows `# %%`.

    tidelog serve &
    python examples/orders.py 1000
    python examples/spark_notebook.py

The first two cells come first; the others may be run in any order.
"""

# %% A session. Nothing is registered and no jar is added: the format `tidelog` is found by PySpark itself.
import os

from pyspark.sql import functions as F

from tidelog.spark import session

bootstrap = os.environ.get("TIDELOG_BOOTSTRAP", "localhost:9092")
topic = os.environ.get("ORDERS_TOPIC", "orders")
spark = session("a look at orders")

# %% The topic as a table: key, value, partition, offset, timestamp. With a schema, values are columns.
orders = (
    spark.read.format("tidelog")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("value.format", "json")
    .option("value.schema", "customer string, item string, cents bigint")
    .load()
)
orders.select("key", "value.*", "partition", "offset").show(5, truncate=False)

# %% How the records lie: as many in each partition as the keys make it.
orders.groupBy("partition").agg(F.count("*").alias("records"), F.max("offset")).orderBy("partition").show()

# %% What sells best, in SQL.
orders.select("value.*").createOrReplaceTempView("orders")
spark.sql("select item, count(*) as sold, sum(cents) as cents from orders group by item order by cents desc").show()

# %% A record that is not what the schema says is kept: `_error` says why, `_raw` has its bytes.
unreadable = orders.where("_error is not null")
print(f"{orders.count()} orders, {unreadable.count()} of them unreadable")
