"""Writes docs/reference/{settings,cli,apis}.md and the README's API table from the tables, the command tree and a
running broker. A test fails when they are out of date.

python docs/generate.py           # write
python docs/generate.py --check   # exit 1 if something would change
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from tidelog.broker.node import Node
from tidelog.broker.requests import Endpoint
from tidelog.cli.app import app
from tidelog.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting, load, render
from tidelog.wire.messages import API

REFERENCE = Path(__file__).parent / "reference"
README = Path(__file__).parent.parent / "README.md"
_TABLE_BEGINS = "<!-- apis: written by docs/generate.py -->"
_TABLE_ENDS = "<!-- end of apis -->"
_GENERATED = "<!-- Written by docs/generate.py; do not edit. -->"


def settings() -> str:
    topic_of = {name: each.name for each in TOPIC_SETTINGS.values() for name in each.inherits}
    return "\n".join(
        [
            "# Settings",
            _GENERATED,
            "",
            "Names, types and defaults are Kafka's unless a setting says it is Tidelog's own. A broker setting is",
            "given, strongest first, by `tidelog serve --set NAME=VALUE`, by a variable (`TIDELOG_LOG_RETENTION_MS`)",
            "or by a line in the file named with `--config`. A topic setting is given when the topic is created or",
            "with `tidelog config set NAME=VALUE --topic TOPIC`; what a topic does not say, its broker decides.",
            "",
            "## Broker",
            "",
            "| setting | default | valid | meaning |",
            "|---|---|---|---|",
            *(_row(each, _broker_note(each, topic_of)) for each in BROKER_SETTINGS.values()),
            "",
            "## Topic",
            "",
            "| setting | default | valid | meaning |",
            "|---|---|---|---|",
            *(_row(each, f" Broker: {_names(each.inherits)}.") for each in TOPIC_SETTINGS.values()),
            "",
            "## Group",
            "",
            "Of groups of the consumer protocol (KIP-848), by `tidelog config set NAME=VALUE --group GROUP`; what",
            "a group does not say, the broker decides.",
            "",
            "| setting | default | valid | meaning |",
            "|---|---|---|---|",
            *(_row(each, f" Broker: {_names(each.inherits)}.") for each in GROUP_SETTINGS.values()),
            "",
        ]
    )


def _broker_note(setting: Setting, topic_of: Mapping[str, str]) -> str:
    notes = []
    if setting.name in topic_of:
        notes.append(f"topic: `{topic_of[setting.name]}`")
    if setting.dynamic:
        notes.append("changes at run time")
    return f" ({'; '.join(notes)})" if notes else ""


def _row(setting: Setting, note: str) -> str:
    default = render(setting.default)
    shown = "unset" if default is None else f"`{default}`"
    return f"| `{setting.name}` | {shown} | {_cell(setting.valid_words)} | {_cell(setting.doc)}{note} |"


def _names(names: tuple[str, ...]) -> str:
    return ", then ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def cli() -> str:
    lines = ["# Commands", _GENERATED, ""]
    for path, command in _walk("tidelog", get_command(app)):
        lines += [f"## `{path}`", "", *_section(command)]
    return "\n".join(lines)


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _walk(f"{path} {name}", command.commands[name])


def _section(command: Any) -> Iterator[str]:
    yield " ".join((command.help or "").split())
    yield ""
    parameters = [each for each in command.params if each.name != "help"]
    if parameters:
        yield "| parameter | meaning |"
        yield "|---|---|"
        yield from (f"| {_parameter(each)} | {_cell(each.help or '')}{_default(each)} |" for each in parameters)
        yield ""


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{str(parameter.metavar or parameter.name).upper()}`"
    spellings = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{each}`" for each in spellings)


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is None or isinstance(default, (bool, list, tuple)) or parameter.param_type_name == "argument":
        return ""
    return f" Default: `{getattr(default, 'value', default)}`."


def apis() -> str:
    return "\n".join(
        [
            "# Kafka APIs this broker serves",
            _GENERATED,
            "",
            "Exactly what ApiVersions answers, and the file that does it; each file opens with what it does not do.",
            "A broker that is alone has no quorum to describe and nowhere to move replicas to: 43, 45, 46, 55 and 64",
            "are served by brokers of a cluster.",
            "",
            *_api_table(),
            "",
        ]
    )


@cache
def _api_table() -> tuple[str, ...]:
    rows = ["| key | API | versions | handler |", "|---|---|---|---|"]
    for endpoint in sorted(each for each in asyncio.run(_served()) if each.advertised):
        handler = (endpoint.handle or endpoint.handle_raw).__func__  # type: ignore[union-attr]
        file = handler.__module__.rpartition(".")[2]
        versions = f"{endpoint.lowest}-{endpoint.max_version}"
        rows.append(f"| {endpoint.api_key} | {API[endpoint.api_key].name} | {versions} | `broker/handlers/{file}.py` |")
    return tuple(rows)


async def _served() -> list[Endpoint]:
    """Asks the wiring itself: a broker is started for it, on any port, as the only one of its cluster."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        voters = f"1@127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as directory:
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory, "controller.quorum.voters": voters}
        node = Node(load(flags=given))
        await node.start()
        await node.stop()
    return node.endpoints


def readme() -> str:
    before, rest = README.read_text().split(_TABLE_BEGINS)
    return before + _TABLE_BEGINS + "\n" + "\n".join(_api_table()) + "\n" + _TABLE_ENDS + rest.split(_TABLE_ENDS)[1]


PAGES: dict[Path, Callable[[], str]] = {
    REFERENCE / "settings.md": settings,
    REFERENCE / "cli.md": cli,
    REFERENCE / "apis.md": apis,
    README: readme,
}


def main() -> int:
    REFERENCE.mkdir(exist_ok=True)
    stale = []
    for path, page in PAGES.items():
        text = page()
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    print(f"out of date: {', '.join(stale)}" if stale else "up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
