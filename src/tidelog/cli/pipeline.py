"""`tidelog pipeline …`: ready pipelines on Spark, each one command, each goes on where it stopped."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.pipeline_watch import list_, status, stop
from tidelog.config import parse_assignments

app = typer.Typer(
    help="Pipelines on Spark: archive, view, replay and route topics, exactly once.", no_args_is_help=True
)

TopicArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="What is read.")]
OnceOption: TypeAlias = Annotated[
    bool, typer.Option("--once", help="Everything that is there now, then end; the next run goes on behind it.")
]
EveryOption: TypeAlias = Annotated[
    str | None, typer.Option("--every", metavar="INTERVAL", help='How often a batch begins, such as "30 seconds".')
]
MasterOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", envvar="SPARK_MASTER", help="Spark's master; local[*] unless given."),
]
NameOption: TypeAlias = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="For list, status and stop. KIND-TOPIC unless given.")
]
ConfOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated.")
]
FromOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help='Where the first run begins: earliest, latest, a time, or {"topic": {"0": 23}}.',
    ),
]
GroupOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Publish the position to this group, for `tidelog group lag`."),
]
BatchOption: TypeAlias = Annotated[int, typer.Option("--batch-records", min=1, help="The most that one batch reads.")]


class Format(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


class Value(StrEnum):
    RAW = "raw"
    STRING = "string"
    JSON = "json"


ValueOption: TypeAlias = Annotated[
    Value, typer.Option("--value", help="What values are: bytes, text, or JSON whose fields become columns.")
]
SchemaOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--schema", metavar="DDL", help='Of JSON values, such as "id bigint, amount double". Else inferred.'),
]


@app.command()
def archive(
    topic: TopicArgument,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory of the archive.")],
    format_: Annotated[
        Format, typer.Option("--format", help="Files for any reader, or a Delta table.")
    ] = Format.PARQUET,
    value: ValueOption = Value.STRING,
    schema: SchemaOption = None,
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", metavar="FIELD", help="The JSON field whose day divides; else the record's time."),
    ] = None,
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
    starting, timestamp = _start(from_)

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.archive import Archive
        from tidelog.spark.pipelines.archive import archive as build

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
        return build(spark, wanted)

    # A file per batch and day: without an interval a quiet topic would become thousands of tiny ones.
    interval = every or (None if once else "1 minute")
    _run(
        make,
        "archive",
        topic,
        str(to),
        bootstrap,
        name=name,
        once=once,
        every=interval,
        master=master,
        conf=conf,
        output=output,
    )


@app.command()
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
    _run(
        make,
        "view",
        topic,
        str(to),
        bootstrap,
        name=name,
        once=once,
        every=interval,
        master=master,
        conf=conf,
        output=output,
    )


@app.command()
def replay(
    topic: TopicArgument,
    *,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where the records go.")],
    from_: FromOption = "earliest",
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Leave out records of this time and later.")
    ] = None,
    new_time: Annotated[
        bool, typer.Option("--new-time", help="Records get the time of the replay instead of the one they had.")
    ] = False,
    to_bootstrap: Annotated[
        str | None, typer.Option("--to-bootstrap-server", metavar="HOST:PORT", help="Another cluster to write to.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="Where the position is kept between runs.")
    ] = None,
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
    """Copy a topic's records into another, exactly once, with headers that say where each was first."""
    chosen = name or f"replay-{topic}-{to}"
    start, end = _start(from_), None if until is None else _time(until, "--until")

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.topics import replay as build

        wanted = _route(topic, bootstrap, to_bootstrap, checkpoint, chosen, start, batch_records, group)
        return build(spark, wanted, to, until_timestamp=end, keep_time=not new_time)

    _run(
        make,
        "replay",
        topic,
        to,
        bootstrap,
        name=chosen,
        once=once,
        every=every,
        master=master,
        conf=conf,
        output=output,
    )


@app.command()
def route(
    topic: TopicArgument,
    *,
    rule: Annotated[
        list[str],
        typer.Option(
            "--rule", metavar="TOPIC=CONDITION", help="Records for which the SQL condition holds. Repeatable."
        ),
    ],
    otherwise: Annotated[
        str | None, typer.Option("--else", metavar="TOPIC", help="For records that no rule takes; else they stay out.")
    ] = None,
    value: ValueOption = Value.STRING,
    schema: SchemaOption = None,
    from_: FromOption = "earliest",
    to_bootstrap: Annotated[
        str | None, typer.Option("--to-bootstrap-server", metavar="HOST:PORT", help="Another cluster to write to.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="Where the position is kept between runs.")
    ] = None,
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
    """Divide a topic into topics by conditions in SQL, exactly once."""
    chosen = name or f"route-{topic}"
    rules, start = parse_assignments(rule), _start(from_)

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.topics import route as build

        wanted = _route(topic, bootstrap, to_bootstrap, checkpoint, chosen, start, batch_records, group)
        return build(spark, wanted, rules, otherwise=otherwise, value=value.value, schema=schema)

    targets = ", ".join([*rules, *([otherwise] if otherwise else [])])
    _run(
        make,
        "route",
        topic,
        targets,
        bootstrap,
        name=chosen,
        once=once,
        every=every,
        master=master,
        conf=conf,
        output=output,
    )


def _run(
    make: Any, kind: str, topic: str, to: str, bootstrap: str, *, name: str | None, conf: list[str] | None, **more: Any
) -> None:
    from tidelog.cli.pipeline_run import run_pipeline

    settings = parse_assignments(conf or ())
    run_pipeline(
        make,
        name=name or f"{kind}-{topic}",
        kind=kind,
        topics=[topic],
        to=to,
        bootstrap=bootstrap,
        conf=settings,
        **more,
    )


def _route(
    topic: str,
    bootstrap: str,
    to_bootstrap: str | None,
    checkpoint: Path | None,
    name: str,
    start: tuple[str, int | None],
    batch_records: int,
    group: str | None,
) -> Any:
    from tidelog.spark.pipelines.registry import safe_name, state_dir
    from tidelog.spark.pipelines.topics import Route

    return Route(
        topic=topic,
        bootstrap_servers=bootstrap,
        bootstrap_servers_to=to_bootstrap,
        checkpoint=checkpoint or state_dir() / "checkpoints" / safe_name(name),
        starting=start[0],
        starting_timestamp=start[1],
        offsets_per_trigger=batch_records,
        group=group,
    )


def _start(text: str) -> tuple[str, int | None]:
    if text in ("earliest", "latest") or text.lstrip().startswith("{"):
        return text, None
    return "earliest", _time(text, "--from")


def _time(text: str, option: str) -> int:
    from datetime import UTC, datetime

    from tidelog.cli.positions import parse_time

    return parse_time(text, datetime.now(UTC), option=option)


app.command("list")(list_)
app.command()(status)
app.command()(stop)
