"""`tidelog group diagnose`: why a group lags, with the evidence and what to do about it."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, print_json
from tidelog.cli.render import shown

if TYPE_CHECKING:
    from tidelog.groups.diagnosis import Diagnosis, Finding, Limits
    from tidelog.groups.diagnosis_facts import GroupFacts
    from tidelog.observe.observer import Observer

WATCH_SECONDS_MIN: Final = 3.0
SPAN_SECONDS: Final = 10.0
"""Clients commit every five seconds unless told otherwise: less shows pauses between commits, not a pace."""
MARKS: Final = {0: "ok", 1: "warning", 2: "CRITICAL"}
EXIT_CODES: Final = {True: 0, False: 1, None: 3}


def diagnose(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    *,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0,
            metavar="SECONDS",
            help="How long to watch; 3 to 10 if not said, by what the coordinator knows.",
        ),
    ] = None,
    stuck_after: Annotated[
        str | None,
        typer.Option(
            "--stuck-after",
            metavar="AGE",
            help="A member that commits nothing for this long is stuck: 2m, say. Else 30s.",
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a group lags, with evidence and advice.

    Exits with 0 if nothing is wrong, with 1 if something is, and with 3 if it is too early to tell.

    A Tidelog coordinator is also asked for its history; on other Kafkas only what can be watched is judged.
    """
    from tidelog.cli.group.problems import existing
    from tidelog.groups.diagnosis import diagnose as judge
    from tidelog.observe.observer import Observer

    observer = Observer(Cluster.dial(bootstrap, properties), group)
    with existing(group):
        _watch(observer, group, seconds)
    facts = observer.facts(retention=True)
    diagnosis = judge(facts, _limits(stuck_after))
    if output is Output.JSON:
        print_json(_json(diagnosis, observer))
    else:
        _print(diagnosis, facts, observer)
    raise typer.Exit(EXIT_CODES[diagnosis.healthy])


def _limits(stuck_after: str | None) -> "Limits":
    from tidelog.cli.group.reset_plan import parse_duration
    from tidelog.groups.diagnosis import Limits

    if stuck_after is None:
        return Limits()
    return Limits(stuck_after_ms=round(parse_duration(stuck_after, "--stuck-after").total_seconds() * 1000))


def _watch(observer: "Observer", group: str, seconds: float | None) -> None:
    observer.look()
    if seconds is None:
        seconds = max(SPAN_SECONDS - observer.span_seconds, WATCH_SECONDS_MIN)
    if not seconds:
        return
    if not sys.stderr.isatty():
        observer.watch(seconds)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("watching {task.description}"), BarColumn(), TextColumn("{task.completed:.0f} s"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(group, total=seconds)
        observer.watch(seconds, lambda over: progress.update(task, completed=over))


def _json(diagnosis: "Diagnosis", observer: "Observer") -> dict[str, object]:
    lag = diagnosis.lag
    return {
        "group": diagnosis.group_id,
        "state": observer.view.state if observer.view is not None else None,
        "healthy": diagnosis.healthy,
        "lag": {
            "records": lag.records,
            "seconds": lag.seconds,
            "exact": lag.exact,
            "arrival_per_s": lag.arrival_per_s,
            "processed_per_s": lag.processed_per_s,
            "trend_per_s": lag.trend_per_s,
            "catch_up_seconds": lag.catch_up_s,
        },
        "history": observer.insight is not None,
        "history_missing_because": observer.missing_because or None,
        "findings": [
            {
                "kind": one.kind,
                "severity": one.severity.name.lower(),
                "subject": one.subject,
                "summary": one.summary,
                "evidence": one.evidence,
                "advice": one.advice,
            }
            for one in diagnosis.findings
        ],
    }


def _print(diagnosis: "Diagnosis", facts: "GroupFacts", observer: "Observer") -> None:
    from tidelog.cli.group.report import print_lag, summary

    view = observer.view or observer.look()
    print(f"{view.group_id}: {view.state}, {view.type}, {count(len(view.members), 'member')}")
    print_lag(summary(view, facts))
    for finding in diagnosis.findings:
        print()
        _print_finding(finding)
    if observer.missing_because:
        print()
        print(f"judged without history: {observer.missing_because}.")
        print("Rebalances and evictions are not seen; a longer --seconds sees more of the rest.")


def _print_finding(finding: "Finding") -> None:
    from tidelog.groups.diagnosis import Kind

    mark = "unsure" if finding.kind is Kind.TOO_EARLY else MARKS[finding.severity]
    print(f"{mark}: {finding.kind.value}: {shown(finding.summary)}")
    evidence = ", ".join(f"{name} {value}" for name, value in finding.evidence.items())
    if evidence:
        print(f"  evidence: {shown(evidence)}")
    if finding.advice:
        print(f"  do: {shown(finding.advice)}")
