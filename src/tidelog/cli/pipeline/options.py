"""Options and arguments that pipelines share, and what is common to running them."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from tidelog.cli.options import Output
from tidelog.config import parse_assignments

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

ToBootstrapOption: TypeAlias = Annotated[
    str | None, typer.Option("--to-bootstrap-server", metavar="HOST:PORT", help="Another cluster to write to.")
]
CheckpointOption: TypeAlias = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="DIR", help="Where the position is kept between runs.")
]


class Format(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


class Value(StrEnum):
    RAW = "raw"
    STRING = "string"
    JSON = "json"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="Files for any reader, or a Delta table.")]
DeadLetterOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--dead-letter", metavar="TOPIC", help="Where records go that cannot be used. They are counted."),
]
ValueOption: TypeAlias = Annotated[
    Value, typer.Option("--value", help="What values are: bytes, text, or JSON whose fields become columns.")
]
SchemaOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--schema", metavar="DDL", help='Of JSON values, such as "id bigint, amount double". Else inferred.'),
]


class Runs(NamedTuple):
    """How often and where, as all pipelines are told."""

    name: str | None
    once: bool
    every: str | None
    master: str | None
    conf: list[str] | None
    output: Output


def run(make: Any, kind: str, topic: str | Sequence[str], to: str, bootstrap: str, runs: Runs, **more: Any) -> None:
    from tidelog.cli.pipeline.run import run_pipeline

    topics = [topic] if isinstance(topic, str) else list(topic)
    run_pipeline(
        make,
        name=runs.name or "-".join([kind, *topics]),
        kind=kind,
        topics=topics,
        to=to,
        bootstrap=bootstrap,
        conf=parse_assignments(runs.conf or ()),
        once=runs.once,
        every=runs.every,
        master=runs.master,
        output=runs.output,
        **more,
    )


def checkpoint_of(name: str) -> Path:
    """Where a pipeline that writes to a topic keeps its position, unless it is told."""
    from tidelog.spark.pipelines.registry import safe_name, state_dir

    return state_dir() / "checkpoints" / safe_name(name)


def parse_start(text: str) -> tuple[str, int | None]:
    if text in ("earliest", "latest") or text.lstrip().startswith("{"):
        return text, None
    return "earliest", parse_when(text, "--from")


def parse_when(text: str, option: str) -> int:
    from datetime import UTC, datetime

    from tidelog.cli.positions import parse_time

    return parse_time(text, datetime.now(UTC), option=option)
