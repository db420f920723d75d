"""Ten million records into Spark: our data source on Tidelog, Spark's own Kafka connector on Apache Kafka.

Each side is what a user of it has: our source comes with the newest PySpark, Spark's connector with the newest release
whose jars could be had. Both read the same records on two cores.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.peers.spark_connector import SPARK, connector, python

from bench import native
from bench.peers import raw
from bench.peers.rows.row import Row
from bench.peers.samples import Better, Metric, Values
from bench.peers.servers.broker import Broker

PARTITIONS, PER_BATCH, RECORD_BYTES, RECORDS = 2, 9000, 100, 10_000_000
_TOPICS: dict[int, tuple[str, int]] = {}  # by broker process: written once, read in every round

_PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
how, bootstrap, topic, jars, rows = sys.argv[1:]
if how == "tidelog":
    from tidelog.spark import session
    spark = session("bench", "local[2]", **{"spark.ui.enabled": False})
else:
    spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
             .config("spark.driver.host", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
frame = spark.read.format(how).options(**options).load()
assert frame.count() == int(rows)
def rate(run):
    began = time.perf_counter()
    run()
    return int(rows) / (time.perf_counter() - began) / 1e6
count = max(rate(frame.count) for _ in range(2))
everything = max(rate(lambda: frame.write.format("noop").mode("overwrite").save()) for _ in range(2))
print(json.dumps({"count": count, "all": everything}))
spark.stop()
"""


def read(broker: Broker) -> Values:
    key = broker.pids[0]
    if key not in _TOPICS:
        _TOPICS[key] = _filled(broker)
    topic, rows = _TOPICS[key]
    ours = broker.side == "tidelog"
    interpreter, jars = (sys.executable, "") if ours else (str(python()), connector())
    program = broker.work_dir / "spark.py"
    program.write_text(_PROGRAM)
    cpu = broker.cpu_s()
    said = _run([interpreter, str(program), "tidelog" if ours else "kafka", broker.bootstrap, topic, jars, str(rows)])
    return {"count": said["count"], "all": said["all"], "cpu_s": (broker.cpu_s() - cpu) / (5 * rows) * 1e6}


def _filled(broker: Broker) -> tuple[str, int]:
    topic = broker.make_topic("spark", partitions=PARTITIONS)
    batches = max(1, broker.scaled(RECORDS) // PARTITIONS // PER_BATCH)
    batch = raw.batch(PER_BATCH, RECORD_BYTES, now_ms=int(time.time() * 1000))
    request = broker.work_dir / "request"
    for partition in range(PARTITIONS):
        request.write_bytes(raw.produce(topic, batch, partition=partition))
        native.run("blast", "send", broker.host, broker.port, request, batches, 4)
    rows = batches * PER_BATCH * PARTITIONS
    broker.check_end(topic, rows, PARTITIONS)
    return topic, rows


def _run(command: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


ROWS = (
    Row(
        name="spark-read",
        title=f"Spark reads 10 M records of 100 B: our source, against Spark's Kafka connector {SPARK}",
        guarantee="every record once",
        metrics=(
            Metric("all", "M rows/s, all columns", Better.HIGHER, target=1.5),
            Metric("count", "M rows/s, count()", Better.HIGHER, target=1.5),
            Metric("cpu_s", "broker CPU s per M rows"),
        ),
        measure=read,
        rounds_most=3,
        warm=False,
    ),
)
