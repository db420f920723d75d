"""Pipelines under kill -9: the sink holds the input once, and every key in its order.

`CHAOS_KILLS=20 pytest tests/chaos/test_spark_kills.py` is the long run; what every test run does is short.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from tests.spark.kit import OWN_PROCESSES, until_decided

from .server import Server
from .spark_pipeline import Input, Pipeline

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
SEED = int(os.environ.get("CHAOS_SEED", "7"))
BATCH = 250
PER_RUN = 2000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 240 * KILLS), pytest.mark.xdist_group(OWN_PROCESSES)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("in", 3, 1), NewTopic("out", 5, 1)]).values():
            future.result(30)
        yield running


def through_kills(pipeline: Pipeline, given: Input) -> None:
    """Every other kill takes one Python worker instead of the driver."""
    dice = random.Random(SEED)
    done = 0
    try:
        while done < KILLS:
            given.add(PER_RUN)
            pipeline.start(BATCH)
            workers = done % 2 == 1
            done += pipeline.kill_at_random(dice, 3.0, workers=workers)
            if workers:
                pipeline.settle()
        given.add(100)
        pipeline.start(PER_RUN)  # what was planned before it was killed stays as it was
        pipeline.finish()
    finally:
        pipeline.close()
    print(f"{pipeline.driver_kills} driver kills, {pipeline.worker_kills} worker kills, {given.count} records")
    assert pipeline.driver_kills >= (KILLS + 1) // 2


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_an_archive_holds_every_record_once(server: Server, tmp_path: Path, kind: str) -> None:
    to, given = tmp_path / "lake", Input(server, "in")
    arguments = ["archive", "in", "--to", str(to), "--format", kind, "-b", server.bootstrap]
    through_kills(Pipeline(arguments, to / "_tidelog" / "checkpoint", tmp_path / "state"), given)
    rows = _parquet(to) if kind == "parquet" else _delta(to)
    assert sorted(int(value.split(":")[1]) for _, _, value in rows) == list(range(given.count))
    assert len({(partition, offset) for partition, offset, _ in rows}) == given.count
    assert not list(to.rglob("*.staged"))


def test_topic_to_topic_every_record_is_there_once_and_keys_keep_their_order(server: Server, tmp_path: Path) -> None:
    given = Input(server, "in")
    arguments = ["replay", "in", "--to", "out", "--checkpoint", str(tmp_path / "check"), "-b", server.bootstrap]
    through_kills(Pipeline(arguments, tmp_path / "check", tmp_path / "state"), given)
    last: dict[bytes, int] = {}
    seen = 0
    for key, value in _committed(server, "out", 5):
        number = int(value.split(b":")[1])
        assert number > last.get(key, -1), f"{key!r}: {number} behind {last.get(key)}"
        last[key] = number
        seen += 1
    assert seen == given.count


def _parquet(to: Path) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select partition, \"offset\", value from read_parquet('{to}/**/*.parquet')").fetchall()


def _delta(to: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(to)).to_pyarrow_table(columns=["partition", "offset", "value"]).to_pydict()
    return list(zip(table["partition"], table["offset"], table["value"], strict=True))


def _committed(server: Server, topic: str, partitions: int) -> Iterator[tuple[bytes, bytes]]:
    """What a plain consumer of committed records is given, partition by partition."""
    until_decided(server.bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(60)
        assert message is not None, "a reader of committed records is held up"
        if message.error():
            ended.add(message.partition())
            continue
        yield message.key(), message.value()
    consumer.close()
