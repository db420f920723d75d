"""A pipeline's place in its consumer group: there when the pipeline has ended, however late Spark tells of it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.spark.kit import Topics

from tidelog.spark.pipelines.archive import Archive, archive
from tidelog.spark.pipelines.running import run

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(180)]
RECORDS = 10


class Slow(StreamingQueryListener):
    """Takes its time over the first report. Spark gives reports to listeners one after the other."""

    def __init__(self) -> None:
        self.may_go_on, self.saw_last = threading.Event(), threading.Event()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        assert self.may_go_on.wait(120)

    def onQueryTerminated(self, event: Any) -> None:
        self.saw_last.set()


@pytest.fixture
def slow(spark: Any) -> Iterator[Slow]:
    listener = Slow()
    spark.streams.addListener(listener)
    yield listener
    listener.may_go_on.set()
    spark.streams.removeListener(listener)


def test_the_last_position_is_there_when_the_run_has_ended(
    spark: Any, topics: Topics, tmp_path: Path, slow: Slow
) -> None:
    topic = topics.make(1)
    topics.fill(topic, range(RECORDS))
    group = f"archivist-{topic}"
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group, "log_level": 0})

    def position() -> int:
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
        return int(place.offset)

    wanted = Archive(
        topic=topic, to=tmp_path / "lake", bootstrap_servers=topics.bootstrap, offsets_per_trigger=4, group=group
    )
    assert run(archive(spark, wanted), once=True).batches == 3
    assert not slow.saw_last.is_set()
    assert position() == RECORDS
    # Reports of batches before the last come now, and do not take it back.
    slow.may_go_on.set()
    assert slow.saw_last.wait(60)
    assert position() == RECORDS
    consumer.close()
