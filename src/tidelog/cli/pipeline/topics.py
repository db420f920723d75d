"""From topic to topic: `tidelog pipeline replay` and `route`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.pipeline.options import (
    BatchOption,
    CheckpointOption,
    ConfOption,
    EveryOption,
    FromOption,
    GroupOption,
    MasterOption,
    NameOption,
    OnceOption,
    Runs,
    SchemaOption,
    ToBootstrapOption,
    TopicArgument,
    Value,
    ValueOption,
    checkpoint_of,
    parse_start,
    parse_when,
    run,
)
from tidelog.config import parse_assignments


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
    """Copy a topic's records into another, exactly once, with headers that say where each was first."""
    chosen = name or f"replay-{topic}-{to}"
    start, end = parse_start(from_), None if until is None else parse_when(until, "--until")

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.topics import replay as build

        wanted = _route(topic, bootstrap, to_bootstrap, checkpoint, chosen, start, batch_records, group)
        return build(spark, wanted, to, until_timestamp=end, keep_time=not new_time)

    run(make, "replay", topic, to, bootstrap, Runs(chosen, once, every, master, conf, output))


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
    """Divide a topic into topics by conditions in SQL, exactly once."""
    chosen = name or f"route-{topic}"
    rules, start = parse_assignments(rule), parse_start(from_)

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.topics import route as build

        wanted = _route(topic, bootstrap, to_bootstrap, checkpoint, chosen, start, batch_records, group)
        return build(spark, wanted, rules, otherwise=otherwise, value=value.value, schema=schema)

    targets = ", ".join([*rules, *([otherwise] if otherwise else [])])
    run(make, "route", topic, targets, bootstrap, Runs(chosen, once, every, master, conf, output))


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
    from tidelog.spark.pipelines.topics import Route

    return Route(
        topic=topic,
        bootstrap_servers=bootstrap,
        bootstrap_servers_to=to_bootstrap,
        checkpoint=checkpoint or checkpoint_of(name),
        starting=start[0],
        starting_timestamp=start[1],
        offsets_per_trigger=batch_records,
        group=group,
    )
