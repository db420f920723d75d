"""What runs on this machine: `tidelog pipeline list`, `status` and `stop`."""

from typing import Annotated, Any, TypeAlias

import typer

from tidelog.cli.options import Output, OutputOption
from tidelog.cli.output import print_json, print_table
from tidelog.cli.problems import Problem

NameArgument: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="As `tidelog pipeline list` shows it.")]


def list_(output: OutputOption = Output.TEXT) -> None:
    """The pipelines of this machine, running and ended."""
    from tidelog.spark.pipelines.registry import entries

    found = entries()
    if output is Output.JSON:
        print_json([_facts(each) for each in found])
        return
    rows = [
        (e.name, e.shown_state, e.kind, ", ".join(e.topics), e.to, e.progress.get("rows", 0), e.progress.get("lag"))
        for e in found
    ]
    print_table(
        ("NAME", "STATE", "KIND", "TOPIC", "TO", "ROWS", "LAG"), rows, right=frozenset({"ROWS", "LAG"})
    )  # fmt: skip


def status(name: NameArgument, output: OutputOption = Output.TEXT) -> None:
    """How a pipeline is doing: its last batch, its rate, its lag, or what it ended of."""
    facts = _facts(_find(name))
    if output is Output.JSON:
        print_json(facts)
        return
    for key, fact in facts.items():
        if fact is not None:
            print(f"{key:<12} {f'{fact:,.1f}' if isinstance(fact, float) else fact}")


def stop(
    name: NameArgument,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for its end.")] = 60.0,
) -> None:
    """Ask a pipeline to end. Nothing is lost: it goes on where it stopped when it is started again."""
    from tidelog.spark.pipelines.registry import ask_to_stop

    entry = _find(name)
    if not entry.alive:
        print(f"{name} does not run: {entry.shown_state}")
        return
    if not ask_to_stop(entry, wait):
        raise Problem(f"{name} did not end within {wait:.0f} s", f"its process is {entry.pid}")
    print(f"{name} stopped")


def _find(name: str) -> Any:
    from tidelog.spark.pipelines.registry import find

    entry = find(name)
    if entry is None:
        raise Problem(f"there is no pipeline {name}", "`tidelog pipeline list` shows those there are")
    return entry


def _facts(entry: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    return {
        "name": entry.name,
        "state": entry.shown_state,
        "kind": entry.kind,
        "topics": ", ".join(entry.topics),
        "to": entry.to,
        "pid": entry.pid,
        "started": datetime.fromtimestamp(entry.started, UTC).isoformat(timespec="seconds"),
        **entry.progress,
        **({"error": entry.error} if entry.error else {}),
    }
