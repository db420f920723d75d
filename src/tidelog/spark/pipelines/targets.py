"""Where results go: a topic, a directory of files (a lake), or the terminal."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.files import FORMATS

TOPIC, LAKE, CONSOLE = "topic", "lake", "console"


@dataclass(frozen=True, slots=True)
class Target:
    kind: str
    name: str

    @property
    def path(self) -> Path:
        return Path(self.name)


def parse_target(text: str, *, console: bool = False) -> Target:
    """A path has a slash in it, which no topic's name has."""
    if text == CONSOLE and console:
        return Target(CONSOLE, text)
    if not text.strip():
        raise InvalidOption("--to is empty: name a topic, or a directory with a slash in it")
    return Target(LAKE if "/" in text else TOPIC, text)


def to_topic(
    frame: DataFrame,
    topic: str | None,
    *,
    bootstrap_servers: str,
    checkpoint: Path,
    name: str,
    compression: str = "none",
) -> DataStreamWriter:
    """Exactly once. `topic` is where all rows go, unless they say so themselves in a column."""
    writer = frame.writeStream.format("tidelog").queryName(name)
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("kafka.compression.type", compression)
    if topic is not None:
        writer = writer.option("topic", topic)
    return writer.option("checkpointLocation", str(checkpoint.absolute()))


def to_lake(
    frame: DataFrame,
    to: Path,
    *,
    format: str,
    checkpoint: Path,
    name: str,
    target_file_mb: float = 128.0,
    compression: str = "zstd",
) -> DataStreamWriter:
    """Exactly once, for any reader. The frame has a column `date`, by which files lie in directories."""
    from tidelog.spark.pipelines.archive_sink import NAME, ArchiveDataSource

    if format not in FORMATS:
        raise InvalidOption(f"format is {format!r}; it may be {' or '.join(FORMATS)}")
    spark = frame.sparkSession
    spark.dataSource.register(ArchiveDataSource)
    # As many files as there are cores, not as many as there are slices of the log.
    frame = frame.coalesce(max(1, spark.sparkContext.defaultParallelism))
    writer = frame.writeStream.format(NAME).queryName(name)
    return (
        writer.option("path", str(to.absolute()))
        .option("archive.format", format)
        .option("target.file.mb", str(target_file_mb))
        .option("compression", compression)
        .option("checkpointLocation", str(checkpoint.absolute()))
    )
