"""Sending: brokers that restart, topics that are created by writing, requests on the way when a connection breaks."""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.server import Server
from tests.spark.kit import Topics, read_all
from tests.spark.sink_kit import batch_sink, be_task, committed, frame

from tidelog.client.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.spark.sink.options import parse_options
from tidelog.spark.sink.writer import write_rows

ROWS = 2000
FRAMES = 40


def written(bootstrap: str, topic: str, rows: Iterator[Any], **settings: Any) -> int:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": "20000"}
    options = parse_options({**given, **{k: str(v) for k, v in settings.items()}}, streaming=False)
    with Cluster(bootstrap, timeout_s=30) as cluster:
        return write_rows(options, cluster, rows, None, 0)


@pytest.mark.parametrize("kills", [1, 3])
def test_rows_arrive_once_and_in_order_though_the_broker_is_killed_while_they_do(tmp_path: Path, kills: int) -> None:
    with Server(tmp_path / "data", settings={"num.partitions": "3"}) as server:

        def rows() -> Iterator[Any]:
            for number in range(FRAMES):
                if number % (FRAMES // (kills + 1)) == FRAMES // (kills + 1) - 1:
                    restarts.append(threading.Timer(0.02, restart))
                    restarts[-1].start()
                    time.sleep(0.03)
                yield frame(f"{number:03d}-{i:05d}-{'x' * 100}" for i in range(ROWS))

        def restart() -> None:
            with lock:
                server.kill()
                server.start()

        lock = threading.Lock()
        restarts: list[threading.Timer] = []
        assert written(server.bootstrap, "t", rows()) == FRAMES * ROWS
        for each in restarts:
            each.join()
        found = read_all({"kafka.bootstrap.servers": server.bootstrap, "subscribe": "t"})
    by_partition: dict[int, list[bytes]] = {}
    for row in found:
        by_partition.setdefault(row["partition"], []).append(row["value"])
    assert sum(map(len, by_partition.values())) == FRAMES * ROWS
    for values in by_partition.values():  # rising in every partition: in order, and none twice
        assert all(a < b for a, b in pairwise(values))


def test_a_topic_is_created_by_writing_to_it_where_the_broker_allows_that(topics: Topics) -> None:
    name = f"made-by-writing-{time.time_ns()}"
    be_task(0)
    assert batch_sink(topics.bootstrap, name).write(iter([frame(["a"])])).rows == 1
    assert committed(topics.bootstrap, name) == ["a"]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_acks_and_codecs(topics: Topics, acks: str, codec: str) -> None:
    topic = topics.make(2)
    rows = [f"{number}-{'y' * 50}" for number in range(500)]
    settings = {"kafka.acks": acks, "kafka.compression.type": codec}
    assert written(topics.bootstrap, topic, iter([frame(rows)]), **settings) == 500
    deadline = time.monotonic() + 60
    while len(committed(topics.bootstrap, topic)) < 500 and time.monotonic() < deadline:  # acks=0 promises no moment
        time.sleep(0.02)
    assert committed(topics.bootstrap, topic) == sorted(rows)


def test_a_refusal_that_does_not_pass_is_raised_at_once_with_the_partition(topics: Topics) -> None:
    topic = topics.make(1, max_message_bytes="1000")
    with pytest.raises(KafkaError, match=f"{topic}-0: MESSAGE_TOO_LARGE"):
        written(topics.bootstrap, topic, iter([frame(["z" * 5000])]))


def test_a_broker_that_never_comes_is_given_up_in_time(topics: Topics) -> None:
    topic = topics.make(1)

    def rows() -> Iterator[Any]:
        yield frame(["a"])

    settings = {"kafka.delivery.timeout.ms": 300}
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": topic, **{k: str(v) for k, v in settings.items()}}
    options = parse_options(given, streaming=False)
    started = time.monotonic()
    with Cluster("127.0.0.1:1", timeout_s=0.3) as cluster, pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        write_rows(options, cluster, rows(), None, 0)
    assert time.monotonic() - started < 10
