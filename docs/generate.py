"""Writes docs/reference/{settings,cli}.md from the tables and the command tree. A test fails when they are out of date.

python docs/generate.py           # write
python docs/generate.py --check   # exit 1 if something would change
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from tidelog.cli.app import app
from tidelog.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting, render

REFERENCE = Path(__file__).parent / "reference"
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


PAGES: dict[str, Callable[[], str]] = {"settings.md": settings, "cli.md": cli}


def main() -> int:
    REFERENCE.mkdir(exist_ok=True)
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    print(f"out of date: {', '.join(stale)}" if stale else "up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
