"""How a pipeline reads a topic: the options of the source, from what all pipelines are told alike."""

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession


class Reading(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def starting(self) -> str: ...
    @property
    def starting_timestamp(self) -> int | None: ...
    @property
    def isolation(self) -> str: ...
    @property
    def offsets_per_trigger(self) -> int: ...
    @property
    def group(self) -> str | None: ...


def read(spark: SparkSession, wanted: Reading, topic: str, *, in_order: bool = False) -> DataFrame:
    """A stream of the topic, with headers."""
    options = stream_options(wanted, topic, in_order=in_order)
    return spark.readStream.format("tidelog").options(**options).load()


def stream_options(wanted: Reading, topic: str, *, in_order: bool = False) -> dict[str, str]:
    """`in_order`: a batch's records of a partition are read by one task, so that a sink writes them as they were."""
    options = sample_options(wanted, topic) | {
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(wanted.offsets_per_trigger),
    }
    if wanted.starting_timestamp is not None:
        options["startingTimestamp"] = str(wanted.starting_timestamp)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = wanted.starting
    if wanted.group:
        options["kafka.group.id"] = wanted.group
    if in_order:
        # No partition has more than the whole batch; without this, big ones would be divided between tasks.
        options["maxRecordsPerPartition"] = str(wanted.offsets_per_trigger)
    return options


def sample_options(wanted: Reading, topic: str) -> dict[str, str]:
    """Of the topic as it is, for a look at its first records."""
    return {
        "kafka.bootstrap.servers": wanted.bootstrap_servers,
        "subscribe": topic,
        "kafka.isolation.level": wanted.isolation,
    }
