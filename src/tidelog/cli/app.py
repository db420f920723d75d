"""The command tree, and what `tidelog` alone says."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidelog import __version__
from tidelog.cli import config, consume, demo, log, produce, serve
from tidelog.cli.cluster import commands as cluster
from tidelog.cli.group import commands as group
from tidelog.cli.pipeline import commands as pipeline
from tidelog.cli.topic import commands as topic
from tidelog.cli.txn import commands as txn


# No rich markup: help then starts in a tenth of a second, and an error is one line instead of a box.
class InOrder(TyperGroup):
    """Commands in the order a newcomer meets them, not commands first and groups after."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = ["demo", "serve", "topic", "produce", "consume", "group", "txn", "pipeline", "cluster"]
        order += ["config", "log", "version"]
        return sorted(self.commands, key=order.index)


app = typer.Typer(cls=InOrder, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

app.command()(serve.serve)
app.add_typer(topic.app, name="topic")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(log.app, name="log")
app.command()(demo.demo)

WHAT_NEXT = """\
tidelog {version}: a commit log that speaks Kafka's wire protocol

  tidelog demo                                 see it work: a broker, an orders generator, records flowing
  tidelog serve                                start a broker on localhost:9092
  tidelog topic create orders --partitions 12
  echo '42:{{"item": "tea"}}' | tidelog produce orders --key-separator :
  tidelog consume orders --from-beginning

tidelog --help lists every command.
"""


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A commit log that speaks Kafka's wire protocol: the broker, and tools that work on any Kafka."""
    if version:
        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(WHAT_NEXT.format(version=__version__), end="")


@app.command("version")
def show_version() -> None:
    """Print the versions of tidelog and what it runs on."""
    import platform

    import confluent_kafka

    print(f"tidelog {__version__}")
    print(f"python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}")
