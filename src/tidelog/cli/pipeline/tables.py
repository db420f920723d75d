"""From topic to table: `tidelog pipeline archive` and `view`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.pipeline.options import (
    BatchOption,
    ConfOption,
    DeadLetterOption,
    EveryOption,
    Format,
    FormatOption,
    FromOption,
    GroupOption,
    MasterOption,
    NameOption,
    OnceOption,
    Runs,
    SchemaOption,
    TopicArgument,
    Value,
    ValueOption,
    parse_start,
    run,
)


def archive(
    topic: TopicArgument,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory of the archive.")],
    format_: FormatOption = Format.PARQUET,
    value: ValueOption = Value.STRING,
    schema: SchemaOption = None,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="FIELD", help="The JSON field whose day divides; else the record's time."),
    ] = None,
    dead_letter: DeadLetterOption = None,
    target_file_mb: Annotated[float, typer.Option("--target-file-mb", min=0.01, help="Files grow up to this.")] = 128,
    from_: FromOption = "earliest",
    batch_records: BatchOption = 5_000_000,
    group: GroupOption = None,
    once: OnceOption = False,
    every: EveryOption = None,
    name: NameOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep a topic as Parquet files or a Delta table, divided by day, every record once."""
    starting, timestamp = parse_start(from_)

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.archive import Archive, archive_dead_letters
        from tidelog.spark.pipelines.archive import archive as build
        from tidelog.spark.pipelines.running import Queries

        wanted = Archive(
            topic=topic,
            to=to,
            bootstrap_servers=bootstrap,
            format=format_.value,
            value=value.value,
            schema=schema,
            event_time=event_time,
            starting=starting,
            starting_timestamp=timestamp,
            target_file_mb=target_file_mb,
            offsets_per_trigger=batch_records,
            group=group,
        )
        main = build(spark, wanted)
        return Queries(main, [archive_dead_letters(spark, wanted, dead_letter)] if dead_letter else [])

    # A file per batch and day: without an interval a quiet topic would become thousands of tiny ones.
    interval = every or (None if once else "1 minute")
    runs = Runs(name, once, interval, master, conf, output)
    run(make, "archive", topic, str(to), bootstrap, runs, targets={bootstrap: [dead_letter]} if dead_letter else None)


def view(
    topic: TopicArgument,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory of the table.")],
    value: ValueOption = Value.STRING,
    schema: SchemaOption = None,
    batch_records: BatchOption = 1_000_000,
    group: GroupOption = None,
    once: OnceOption = False,
    every: EveryOption = None,
    name: NameOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep the latest value of every key as a Delta table; a null value deletes its row."""

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.view import View
        from tidelog.spark.pipelines.view import view as build

        wanted = View(
            topic=topic,
            to=to,
            bootstrap_servers=bootstrap,
            value=value.value,
            schema=schema,
            offsets_per_trigger=batch_records,
            group=group,
        )
        return build(spark, wanted)

    interval = every or (None if once else "10 seconds")
    run(make, "view", topic, str(to), bootstrap, Runs(name, once, interval, master, conf, output))
