"""Our Spark source on Apache Kafka, in a process of its own: batch, read_committed, a stream and its group."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .kafka_server import KafkaServer

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

_OURS_ON_KAFKA = """
import sys, tempfile
from tidelog.spark import session
bootstrap, topic = sys.argv[1:]
spark = session("peer", "local[2]", **{"spark.ui.enabled": False})
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
rows = spark.read.format("tidelog").options(**options).load().orderBy("partition", "offset").collect()
assert len(rows) == 900, len(rows)
assert [bytes(r.value).decode() for r in rows] == [f"{r.partition}-{r.offset}" for r in rows]
assert all(bytes(r.headers[0].value) == b"peer" for r in rows)
committed = spark.read.format("tidelog").options(**options, **{"isolation.level": "read_committed"}).load()
assert committed.count() == 900
streamed = []
stream = spark.readStream.format("tidelog").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=400,
                                                    **{"kafka.group.id": "peer-" + topic}).load()
query = stream.writeStream.foreachBatch(lambda batch, _: streamed.append(batch.count())).option(
    "checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start()
assert query.awaitTermination(240)
assert streamed == [400, 400, 100], streamed
print("ok")
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with KafkaServer() as server:
        yield server.bootstrap_servers


def filled(bootstrap: str) -> str:
    """Three partitions of 300 records, half of them compressed."""
    topic = f"spark-peer-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held in a name: its requests end with it
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    for codec, numbers in (("none", range(150)), ("lz4", range(150, 300))):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for i in numbers:
            for p in range(3):
                producer.produce(topic, f"{p}-{i}".encode(), key=b"%d" % i, partition=p, headers={"from": b"peer"})
        assert producer.flush(60) == 0
    return topic


def run(script: str, tmp_path: Path, *arguments: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(script)
    command = [sys.executable, str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.strip().endswith("ok")


def test_our_source_reads_apache_kafka(kafka: str, tmp_path: Path) -> None:
    topic = filled(kafka)
    run(_OURS_ON_KAFKA, tmp_path, kafka, topic)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"peer-{topic}"})
    found = consumer.committed([TopicPartition(topic, p) for p in range(3)], timeout=30)
    assert [place.offset for place in found] == [300, 300, 300]


def test_a_topic_of_apache_kafka_is_audited(kafka: str) -> None:
    topic = filled(kafka)
    command = [sys.executable, "-m", "tidelog", "pipeline", "audit", topic, "-b", kafka, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    report = json.loads(done.stdout)
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    assert verdicts["offsets"] == verdicts["integrity"] == "ok", done.stdout
    assert verdicts["placement"] == "violation", "every key was written to all three partitions"
    assert (done.returncode, report["records"]) == (1, 900)
