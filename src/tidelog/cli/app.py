"""The command tree, and what `tidelog` alone says."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from tidelog import __version__

# In the order a newcomer meets them. The module of a group has its `app`, that of a command a function of its name.
MODULES: Final = {
    "demo": "tidelog.cli.demo",
    "serve": "tidelog.cli.serve",
    "topic": "tidelog.cli.topic.commands",
    "produce": "tidelog.cli.produce",
    "consume": "tidelog.cli.consume",
    "group": "tidelog.cli.group.commands",
    "txn": "tidelog.cli.txn.commands",
    "pipeline": "tidelog.cli.pipeline.commands",
    "cluster": "tidelog.cli.cluster.commands",
    "config": "tidelog.cli.config",
    "log": "tidelog.cli.log",
    "version": "tidelog.cli.version",
}

WHAT_NEXT: Final = """\
tidelog {version}: a commit log that speaks Kafka's wire protocol

  tidelog demo                                 see it work: a broker, an orders generator, records flowing
  tidelog serve                                start a broker on localhost:9092
  tidelog topic create orders --partitions 12
  echo '42:{{"item": "tea"}}' | tidelog produce orders --key-separator :
  tidelog consume orders --from-beginning

tidelog --help lists every command.
"""


class Commands(Mapping[str, Any]):
    """Every command, each imported and built when it is first asked for: the others would take longer than it does."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(name, MODULES[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class Root(TyperGroup):
    """Asks for the commands it needs: for one if that is run, for all to list them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()  # type: ignore[assignment]  # nothing is added later

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


def _typer(**options: Any) -> typer.Typer:
    # No rich markup: help then starts in a tenth of a second, and an error is one line instead of a box.
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, **options)


def _build(name: str, module_name: str) -> Any:
    module, parent = import_module(module_name), _typer()
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name)(getattr(module, name))
    return get_group(parent).commands[name]


app = _typer(cls=Root)


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
