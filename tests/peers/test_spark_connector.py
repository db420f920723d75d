"""Spark's own Kafka connector, unmodified, on our broker: batch and stream, source and sink."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.testing import Broker

from .spark_connector import connector, python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1500)]

_CONNECTOR = """
import sys, tempfile
from pyspark.sql import SparkSession, functions as f
jars, bootstrap, topic, copy = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
kafka = {"kafka.bootstrap.servers": bootstrap}

rows = spark.range(3000).selectExpr("cast(id as string) as key", "concat('v', id) as value")
rows.write.format("kafka").options(**kafka, topic=topic).save()

read = spark.read.format("kafka").options(**kafka, subscribe=topic, includeHeaders="true").load()
assert read.count() == 3000
assert read.select("value").distinct().count() == 3000
assert {row.partition for row in read.select("partition").distinct().collect()} == {0, 1, 2}
assert read.where("topic = '%s' and offset is not null and timestampType = 0" % topic).count() == 3000

stream = (spark.readStream.format("kafka").options(**kafka, subscribe=topic, startingOffsets="earliest",
          maxOffsetsPerTrigger="1000").load())
query = (stream.select("key", f.upper(f.col("value").cast("string")).alias("value")).writeStream.format("kafka")
         .options(**kafka, topic=copy, checkpointLocation=tempfile.mkdtemp()).trigger(availableNow=True).start())
assert query.awaitTermination(240)
assert query.exception() is None
committed = {"subscribePattern": copy, "kafka.isolation.level": "read_committed"}
copied = spark.read.format("kafka").options(**kafka, **committed).load()
assert {bytes(row.value) for row in copied.select("value").collect()} == {b"V%d" % i for i in range(3000)}
print("ok")
"""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_sparks_own_connector_reads_and_writes_our_topics(bootstrap: str, tmp_path: Path) -> None:
    topic, copy = (f"connector-{uuid.uuid4().hex[:8]}" for _ in range(2))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, 3, 1), NewTopic(copy, 2, 1)]).values():
        made.result(30)
    program = tmp_path / "program.py"
    program.write_text(_CONNECTOR)
    command = [str(python()), str(program), connector(), bootstrap, topic, copy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.strip().endswith("ok")
