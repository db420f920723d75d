"""Pipelines that remember: `tidelog pipeline dedup`, `aggregate` and `join`."""

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.pipeline.options import (
    BatchOption,
    CheckpointOption,
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
    ToBootstrapOption,
    TopicArgument,
)
from tidelog.cli.pipeline.results import Results
from tidelog.cli.pipeline.work import Means, Reads, Writes, run_work

_TO = "a topic, or a directory: that has a slash in it"
ToOption: TypeAlias = Annotated[str, typer.Option("--to", metavar="TOPIC|DIR", help=f"Where results go: {_TO}.")]
EventTimeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--event-time", metavar="FIELD", help="The JSON field that says when; else the record's time."),
]
WatermarkOption: TypeAlias = Annotated[
    str,
    typer.Option("--watermark", metavar="DURATION", help="How late events may be, behind the latest one seen."),
]


class Mode(StrEnum):
    APPEND = "append"
    UPDATE = "update"


class How(StrEnum):
    INNER = "inner"
    LEFT = "left"


def dedup(
    topic: TopicArgument,
    *,
    on: Annotated[
        list[str],
        typer.Option("--on", metavar="FIELD|key", help="What duplicates have in common. May be repeated."),
    ],
    to: ToOption,
    event_time: EventTimeOption = None,
    watermark: WatermarkOption = "10 minutes",
    schema: SchemaOption = None,
    format_: FormatOption = Format.PARQUET,
    dead_letter: DeadLetterOption = None,
    from_: FromOption = "earliest",
    to_bootstrap: ToBootstrapOption = None,
    checkpoint: CheckpointOption = None,
    batch_records: BatchOption = 250_000,
    group: GroupOption = None,
    once: OnceOption = False,
    every: EveryOption = None,
    name: NameOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Leave out records that are the same in a field, or by key, as one shortly before; exactly once."""

    def plan(**common: Any) -> Any:
        from tidelog.spark.pipelines.dedup import Dedup
        from tidelog.spark.pipelines.dedup import dedup as build

        work = Dedup(on=tuple(on), **common)
        return work, lambda spark: build(spark, work)

    reads = Reads(topic, bootstrap, from_, batch_records, group)
    writes = Writes(to, to_bootstrap, checkpoint, format_, dead_letter)
    runs = Runs(name or f"dedup-{topic}", once, every, master, conf, output)
    run_work(plan, "dedup", reads, Means(schema, event_time, watermark), writes, runs)


def aggregate(
    topic: TopicArgument,
    *,
    measure: Annotated[
        list[str],
        typer.Option(
            "--measure",
            metavar="MEASURE",
            help='"sum(amount)", "count(*)", avg, min, max, approx_count_distinct; "… as NAME". May be repeated.',
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="TOPIC|DIR|console", help=f"Where results go: {_TO}; console shows them.")
    ],
    window: Annotated[str, typer.Option("--window", metavar="DURATION", help="How long a window is.")] = "1 minute",
    slide: Annotated[
        str | None,
        typer.Option("--slide", metavar="DURATION", help="How often one begins; else they do not overlap."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", metavar="FIELD|key", help="What rows are grouped by. May be repeated.")
    ] = None,
    event_time: EventTimeOption = None,
    watermark: WatermarkOption = "10 minutes",
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="append: a window once, when it is over; update: whenever it changes."),
    ] = Mode.APPEND,
    schema: SchemaOption = None,
    format_: FormatOption = Format.PARQUET,
    dead_letter: DeadLetterOption = None,
    from_: FromOption = "earliest",
    to_bootstrap: ToBootstrapOption = None,
    checkpoint: CheckpointOption = None,
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
    """Sums, counts and the like of JSON values, by window of event time and by fields."""
    groups = tuple(by or ())
    results = Results(output, 2 + len(groups)) if to == "console" else None

    def plan(**common: Any) -> Any:
        from tidelog.spark.pipelines.aggregate import Aggregate
        from tidelog.spark.pipelines.aggregate import aggregate as build

        work = Aggregate(by=groups, window=window, slide=slide, measures=tuple(measure), mode=mode.value, **common)
        return work, lambda spark: build(spark, work, results.take if results is not None else None)

    reads = Reads(topic, bootstrap, from_, batch_records, group)
    writes = Writes(to, to_bootstrap, checkpoint, format_, dead_letter)
    runs = Runs(name or f"aggregate-{topic}", once, every, master, conf, output)
    run_work(plan, "aggregate", reads, Means(schema, event_time, watermark), writes, runs, results)


def join(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A topic.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another topic.")],
    *,
    on: Annotated[
        str, typer.Option("--on", metavar="FIELD[=FIELD]", help="What belongs together is the same in; left and right.")
    ],
    to: ToOption,
    within: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="How far apart in time they may be.")
    ] = "10 minutes",
    how: Annotated[
        How, typer.Option("--how", help="left: events of LEFT that find no partner are told with null.")
    ] = How.INNER,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="FIELD[=FIELD]", help="The fields that say when; else the records' time."),
    ] = None,
    watermark: WatermarkOption = "10 minutes",
    schema: SchemaOption = None,
    schema_right: Annotated[
        str | None, typer.Option("--schema-right", metavar="DDL", help="Of RIGHT's values, as --schema is of LEFT's.")
    ] = None,
    format_: FormatOption = Format.PARQUET,
    dead_letter: DeadLetterOption = None,
    from_: FromOption = "earliest",
    to_bootstrap: ToBootstrapOption = None,
    checkpoint: CheckpointOption = None,
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
    """Events of two topics that belong together, within a time of each other, as one record each; exactly once."""
    on_left, _, on_right = on.partition("=")
    time_left, _, time_right = (event_time or "").partition("=")

    def plan(**common: Any) -> Any:
        from tidelog.spark.pipelines.join import Join
        from tidelog.spark.pipelines.join import join as build

        work = Join(
            right=right,
            on=on_left.strip(),
            on_right=on_right.strip() or None,
            within=within,
            how=how.value,
            schema_right=schema_right,
            event_time_right=time_right or None,
            **common,
        )
        return work, lambda spark: build(spark, work)

    reads = Reads(left, bootstrap, from_, batch_records, group)
    writes = Writes(to, to_bootstrap, checkpoint, format_, dead_letter)
    runs = Runs(name or f"join-{left}-{right}", once, every, master, conf, output)
    run_work(plan, "join", reads, Means(schema, time_left or None, watermark), writes, runs)
