"""`format("tidelog")` from a Connect client, with no call that registers it: a client, a server, and its workers."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.spark.kit import OWN_PROCESSES, quick_spark

from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group(OWN_PROCESSES), pytest.mark.timeout(300)]

_CLIENT = """
import sys, tempfile
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert isinstance(spark, ConnectSession)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.read.format("tidelog").options(**options).load()
assert sorted(int(bytes(row.value)) for row in rows.collect()) == list(range(100))
stream = spark.readStream.format("tidelog").options(**options).load()
query = (stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", tempfile.mkdtemp())
         .trigger(availableNow=True).start())
query.awaitTermination(120)
assert spark.table("seen").count() == 100
print("ok")
spark.stop()
"""


def test_a_connect_client_reads_topics(tidelog_broker: Broker, tmp_path: Path) -> None:
    topic = f"connect-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    program = tmp_path / "client.py"
    program.write_text(_CLIENT)
    done = subprocess.run(
        [sys.executable, str(program), tidelog_broker.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        # The server's workers are the ones who import us.
        env={**os.environ, **quick_spark(), "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "ok" in done.stdout.split()
