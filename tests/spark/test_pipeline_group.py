"""A pipeline's place in its consumer group: there when the pipeline has ended, however late Spark tells of it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.spark.kit import Topics

from tidelog.spark.pipelines.archive import Archive, archive
from tidelog.spark.pipelines.running import Ended, run

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
RECORDS = 10


class Slow(StreamingQueryListener):
    """Takes its time over the first report, and all the others wait: Spark gives them to listeners one by one."""

    def __init__(self) -> None:
        self.may_go_on, self.told = threading.Event(), threading.Semaphore(0)
        self.at_each: dict[str, Callable[[], int]] = {}
        self.seen: list[int] = []

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        end = str(event.progress.sources[0].endOffset)
        for topic, look in self.at_each.items():
            if topic in end:
                assert self.may_go_on.wait(120)
                self.seen.append(look())
                self.told.release()

    def onQueryTerminated(self, event: Any) -> None:
        pass


@pytest.fixture
def slow(spark: Any) -> Iterator[Slow]:
    listener = Slow()
    spark.streams.addListener(listener)
    yield listener
    listener.may_go_on.set()
    spark.streams.removeListener(listener)


class Archivist:
    """An archive of ten records, and the group that shows how far it is."""

    def __init__(self, spark: Any, topics: Topics, to: Path) -> None:
        self.spark, self.topic = spark, topics.make(1)
        topics.fill(self.topic, range(RECORDS))
        self.wanted = Archive(
            topic=self.topic,
            to=to,
            bootstrap_servers=topics.bootstrap,
            offsets_per_trigger=4,
            group=f"archivist-{self.topic}",
        )
        settings = {"bootstrap.servers": topics.bootstrap, "group.id": self.wanted.group, "log_level": 0}
        self._consumer = Consumer(settings)

    def run(self, **how: Any) -> Ended:
        return run(archive(self.spark, self.wanted), **how)

    def position(self) -> int:
        (place,) = self._consumer.committed([TopicPartition(self.topic, 0)], timeout=20)
        return int(place.offset)


def test_the_last_position_is_there_when_a_run_has_ended(
    spark: Any, topics: Topics, tmp_path: Path, slow: Slow
) -> None:
    once, stopped = (Archivist(spark, topics, tmp_path / name) for name in ("once", "stopped"))
    slow.at_each = {each.topic: each.position for each in (once, stopped)}
    assert once.run(once=True).batches == 3
    assert once.position() == RECORDS
    # One that waits for its next batch when it is stopped: nobody but Spark's reports tells of the last.
    asked = threading.Event()
    ended = stopped.run(once=False, every="1 hour", stop=asked, on_progress=lambda _: asked.set())
    assert (ended.rows, stopped.position()) == (4, 4)
    # Reports of batches before the last come now, and do not take it back.
    slow.may_go_on.set()
    for _ in range(4):
        assert slow.told.acquire(timeout=60)
    assert slow.seen == [RECORDS, RECORDS, RECORDS, 4]
