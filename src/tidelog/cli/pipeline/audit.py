"""`tidelog pipeline audit`: does a topic keep the ordering contract?"""

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.output import count, print_json
from tidelog.cli.pipeline.options import ConfOption, MasterOption
from tidelog.cli.problems import Problem
from tidelog.config import parse_assignments

if TYPE_CHECKING:
    from tidelog.spark.audit.result import Report

_STYLES: Final = {"ok": "green", "warning": "yellow", "violation": "bold red", "skipped": "dim"}
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def audit(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What is looked at.")],
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="WHERE", help='earliest, a time, or {"topic": {"0": 23}}.')
    ] = "earliest",
    to: Annotated[
        str, typer.Option("--to", metavar="WHERE", help='latest, a time, or {"topic": {"0": 99}}.')
    ] = "latest",
    event_time: Annotated[
        str | None,
        typer.Option(
            "--event-time",
            metavar="FIELD",
            help="When it happened: a JSON field or header:NAME; else the record's time.",
        ),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(
            "--sequence", metavar="FIELD", help="A number that only rises within a key: a field or header:NAME."
        ),
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option("--event-id", metavar="FIELD", help="What no two records share: a field, header:NAME or key."),
    ] = None,
    late: Annotated[
        str, typer.Option("--late", metavar="AGE", help="Later than this is late, such as 30s or 5m.")
    ] = "1m",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML page with plots here.")
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Prove a topic's order: gaps, duplicates, keys out of order or place, late events. Exits with 1 on a violation."""
    from tidelog.cli.pipeline.batch import batch_job, source_end, source_start

    start, end, late_ms = source_start(from_), source_end(to), _age(late)
    with batch_job(f"audit {topic}", [topic], bootstrap, master, parse_assignments(conf or ()), output) as (
        spark,
        step,
    ):
        from tidelog.spark.audit import Wanted
        from tidelog.spark.audit import audit as run

        wanted = Wanted(
            topic=topic,
            bootstrap_servers=bootstrap,
            start=start,
            end=end,
            event_time=event_time,
            sequence=sequence,
            event_id=event_id,
            late_ms=late_ms,
        )
        found = run(spark, wanted, step)
    if report is not None:
        from tidelog.spark.audit.page import page

        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(page(found), encoding="utf-8")
    if output is Output.JSON:
        print_json({**asdict(found), "records": found.records, "verdict": found.verdict})
    else:
        _print(found)
    if found.verdict == "violation":
        raise typer.Exit(1)


def _print(found: "Report") -> None:
    from rich.console import Console
    from rich.text import Text

    # Into a pipe nothing is wrapped: grep sees whole lines.
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    records, partitions = count(found.records, "record"), count(len(found.partitions), "partition")
    console.print(Text(f"{found.topic}: {records} in {partitions}, {found.seconds:.1f} s"))
    for check in found.checks:
        line = Text(f"{check.verdict:<10}", style=_STYLES[check.verdict])
        console.print(line + Text(f"{check.name:<11} {check.says}", style=""))
        for example in check.examples:
            console.print(Text(f"{'':<22}{example}", style="dim"))


def _age(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text.strip())
    if found is None:
        raise Problem(f"--late {text}: expected an age such as 500ms, 30s, 5m or 2h")
    return int(found[1]) * _UNITS[found[2]]
