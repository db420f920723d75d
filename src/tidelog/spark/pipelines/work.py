"""What `dedup`, `aggregate` and `join` have in common: pipelines that remember, for as long as a watermark says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.dead_letters import dead_letters
from tidelog.spark.pipelines.durations import interval, milliseconds
from tidelog.spark.pipelines.fields import TIME
from tidelog.spark.pipelines.reading import read, sample_options
from tidelog.spark.pipelines.settling import settle
from tidelog.spark.pipelines.targets import LAKE, TOPIC, Target, to_lake, to_topic
from tidelog.spark.pipelines.values import infer_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`home` is the directory of what the pipeline remembers: its checkpoint, and what it was told at first."""

    topic: str
    bootstrap_servers: str
    to: Target
    home: Path
    schema: str | None = None
    event_time: str | None = None
    watermark: str = "10 minutes"
    dead_letter: str | None = None
    format: str = "parquet"
    bootstrap_servers_to: str | None = None
    starting: str = "earliest"
    starting_timestamp: int | None = None
    isolation: str = "read_committed"
    offsets_per_trigger: int = 1_000_000
    group: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    @property
    def servers_to(self) -> str:
        return self.bootstrap_servers_to or self.bootstrap_servers

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,)

    def check(self) -> None:
        """What can be said before anything is read."""
        milliseconds(self.watermark, "--watermark", least=0)
        if self.bootstrap_servers_to is None and self.to.kind == TOPIC and self.to.name in self.topics:
            raise InvalidOption(f"{self.to.name} would be written into itself, without end")

    def told(self, **more: Any) -> dict[str, Any]:
        """What a later run may not change."""
        return {"topic": self.topic, "event_time": self.event_time, "to": self.to.kind, **more}


def settled(
    spark: SparkSession,
    wanted: Work,
    said: dict[str, Any],
    *,
    topic: str | None = None,
    schema: str | None = None,
    file: str = "pipeline.json",
    typed: bool = True,
) -> StructType | None:
    def infer() -> StructType:
        return infer_schema(spark, sample_options(wanted, topic or wanted.topic))

    path = wanted.home / file
    return settle(path, str(wanted.home), said, schema=schema, infer=infer if typed else None)


def marked(frame: DataFrame, wanted: Work) -> DataFrame:
    """Events older than this, measured from the latest one seen, may be forgotten and are no longer waited for."""
    return frame.withWatermark(TIME, interval(milliseconds(wanted.watermark, "--watermark", least=0)))


def write(frame: DataFrame, wanted: Work, name: str) -> DataStreamWriter:
    """Exactly once: to a topic `key` and `value`, to a lake any columns and `date`."""
    if wanted.to.kind == LAKE:
        return to_lake(frame, wanted.to.path, format=wanted.format, checkpoint=wanted.checkpoint, name=name)
    return to_topic(frame, wanted.to.name, bootstrap_servers=wanted.servers_to, checkpoint=wanted.checkpoint, name=name)


def beside(
    spark: SparkSession, wanted: Work, sides: Mapping[str, Callable[[DataFrame], DataFrame]]
) -> list[DataStreamWriter]:
    """The queries that keep the rejected records of each topic, if that is wanted; `sides` open the records."""
    if wanted.dead_letter is None:
        return []
    # The group shows how far the pipeline is, not how far these are.
    silent = replace(wanted, group=None)
    return [
        dead_letters(
            opened(read(spark, silent, topic)),
            wanted.dead_letter,
            source=topic,
            bootstrap_servers=wanted.servers_to,
            checkpoint=wanted.home / "dead-letters" / topic,
        )
        for topic, opened in sides.items()
    ]
