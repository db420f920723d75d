"""Options that every command spells the same way."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


DEFAULT_BOOTSTRAP = "localhost:9092"

BootstrapOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="TIDELOG_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker of the cluster; several are separated by commas.",
    ),
]

PropertyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the Kafka client (librdkafka's names), such as security.protocol=SSL. May be repeated.",
    ),
]

OutputOption: TypeAlias = Annotated[
    Output, typer.Option("--output", "-o", help="text is for people; json has stable keys for programs.")
]
