"""Members, commits and arrivals for group scenarios, on whichever Kafka."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(bootstrap: str, topic: str, counts: list[int], at_ms: int = 0) -> None:
    """So many records to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=at_ms)
    assert producer.flush(20) == 0


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """As a consumer that was there and left."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(*where, offset) for where, offset in offsets.items()]
    for each in consumer.commit(offsets=wanted, asynchronous=False):
        assert each.error is None
    consumer.close()


class Worker:
    """A member that polls in a thread, remembers what it saw, and takes its time over each record; or, `paused`, one
    that polls and reads nothing at all."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.assigned = 0
        self._delay = settings.pop("delay", 0.0)
        self._paused = settings.pop("paused", False)
        self._incremental = settings.get("group.protocol") == "consumer"
        common = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, "auto.offset.reset": "earliest"}
        pace = {"auto.commit.interval.ms": 100, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        if self._incremental:
            pace = {"auto.commit.interval.ms": 100}  # the broker sets the others
        self._consumer = Consumer({**common, **pace, **settings})
        self._consumer.subscribe(topics, on_assign=self._on_assign)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = len(partitions)
        if self._paused:
            assign = consumer.incremental_assign if self._incremental else consumer.assign
            assign(partitions)
            consumer.pause(partitions)

    def _work(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset()))
                self._stop.wait(self._delay)
        self._consumer.close()

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def steady_arrivals(bootstrap: str, topic: str, rates: dict[int, int]) -> Iterator[None]:
    """Records a second to partitions, until the block ends."""
    stop = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        while not stop.wait(0.1):
            for partition, rate in rates.items():
                for _ in range(rate // 10):
                    producer.produce(topic, b"x", partition=partition)
            producer.poll(0)
        producer.flush(20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def until(holds: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
