"""`tidelog pipeline causal`: several topics as one history in which no effect stands before its cause."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.output import count, print_json, print_table
from tidelog.cli.pipeline.options import ConfOption, MasterOption
from tidelog.cli.render import json_bytes, printable
from tidelog.config import parse_assignments

if TYPE_CHECKING:
    from tidelog.spark.causal_checks import Causal, Summary

CONSOLE = "console"
_WIDTH = 60


def causal(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="What is merged.")],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR|TOPIC|console", help="A new directory (it has a /), a topic, or the terminal."
        ),
    ] = CONSOLE,
    from_: Annotated[
        str, typer.Option("--from", metavar="WHERE", help='earliest, a time, or {"topic": {"0": 23}, …}.')
    ] = "earliest",
    until: Annotated[
        str, typer.Option("--until", metavar="WHERE", help='latest, a time, or {"topic": {"0": 99}, …}.')
    ] = "latest",
    limit: Annotated[int, typer.Option("--limit", min=0, help="So many records are shown on the console.")] = 50,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Merge topics in the order of cause and effect, by stamps of tidelog.causality. Exits with 1 on a violation."""
    from tidelog.cli.pipeline.batch import batch_job, source_end, source_start

    start, end = source_start(from_), source_end(until, "--until")
    named = list(dict.fromkeys(topics))
    is_directory = "/" in to
    wanted_topics = named if is_directory or to == CONSOLE else [*named, to]
    name, settings = f"causal {' '.join(named)}", parse_assignments(conf or ())
    shown: list[dict[str, Any]] = []
    with batch_job(name, wanted_topics, bootstrap, master, settings, output) as (spark, step):
        from tidelog.spark.causal import Wanted, to_directory, to_topic
        from tidelog.spark.causal_checks import Causal

        wanted = Wanted(topics=tuple(named), bootstrap_servers=bootstrap, start=start, end=end)
        _refuse_itself(to, named)
        with Causal(spark, wanted) as merge:
            step("causes …")
            summary = merge.summary()
            step(f"writing {to} …")
            if to == CONSOLE:
                shown = _first(merge, limit)
            elif is_directory:
                to_directory(merge.merged(), Path(to))
            else:
                to_topic(merge.merged(), to, bootstrap)
    if output is Output.JSON:
        told = {**asdict(summary), "violations": summary.violations, "to": to}
        print_json({**told, "history": [_as_json(row) for row in shown]} if to == CONSOLE else told)
    else:
        _print(summary, shown, to)
    if summary.violations:
        raise typer.Exit(1)


def _refuse_itself(to: str, topics: list[str]) -> None:
    from tidelog.spark.bounds import InvalidOption

    if to in topics:
        raise InvalidOption(f"{to} cannot be merged into itself")


def _first(merge: "Causal", limit: int) -> list[dict[str, Any]]:
    from tidelog.spark.causal import ORDER

    found = [row.asDict(recursive=True) for row in merge.merged().orderBy(*ORDER).limit(limit).collect()]
    before: dict[str, Any] | None = None
    for row in found:
        row["beside"] = before is not None and _is_beside(before, row)
        before = row
    return found


def _is_beside(before: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a record is concurrent with the one above it, which is not after it: is it before it?"""
    if before["node"] is None or row["node"] is None:
        return False
    known = {entry["node"]: entry["count"] for entry in row["vector"]}
    return bool(known.get(before["node"], 0) < before["count"])


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "time": row["time"].isoformat(),
        "event": row["event"],
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "key": json_bytes(_bytes(row["key"])),
        "value": json_bytes(_bytes(row["value"])),
        "concurrent": row["concurrent"],
        "concurrent_with_previous": row["beside"],
    }


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _print(summary: "Summary", shown: list[dict[str, Any]], to: str) -> None:
    if shown:
        rows = [
            (
                row["time"].isoformat(sep=" ", timespec="milliseconds")[:23],
                "‖" if row["beside"] else "",
                row["event"],
                row["concurrent"],
                f"{row['topic']}-{row['partition']}@{row['offset']}",
                printable(_bytes(row["key"])),
                printable(_bytes(row["value"]))[:_WIDTH],
            )
            for row in shown
        ]
        print_table(("TIME", "", "EVENT", "CONCURRENT", "PLACE", "KEY", "VALUE"), rows, right=frozenset({"CONCURRENT"}))
        print()
    print(
        f"{count(summary.records, 'record')} of {count(len(summary.topics), 'topic')}: {summary.stamped:,} stamped by "
        f"{count(summary.nodes, 'node')}, {summary.unstamped:,} without a stamp (placed by their timestamps), "
        f"{summary.unreadable:,} with one that cannot be read"
    )
    print(f"{count(summary.concurrent, 'record')} concurrent with another, {count(summary.pairs, 'pair')}")
    for name, says in (
        ("missing", "causes are missing"),
        ("inverted", "effects stand before their cause in a partition"),
        ("clock", "effects have a time that is not after their cause's"),
    ):
        number = getattr(summary, name)
        print(f"{'violation' if number else 'ok':<10} {number:,} {says}")
        for example in summary.examples.get(name, []):
            print(f"{'':<11}{example}")
    if summary.repeated:
        print(f"{'warning':<10} {summary.repeated:,} records have a stamp that another one has")
        for example in summary.examples["repeated"]:
            print(f"{'':<11}{example}")
    if summary.older:
        print(f"{'note':<10} {summary.older:,} causes lie before what was read")
    if to != CONSOLE:
        print(f"written to {to}")
