"""`tidelog group timeline`: what happened to a group lately, as its coordinator remembers it."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, print_json, print_table
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.groups.history import GroupEvent
    from tidelog.groups.insight import GroupInsight

PIPE_WIDTH: Final = 100


def timeline(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    *,
    last: Annotated[
        str | None, typer.Option("--last", metavar="AGE", help="Only events of this age, such as 10m or PT1H.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Draw what happened to a group: who came, who went, and why.

    With its generations, and how long it stood still.
    Only a Tidelog coordinator remembers that, since it started, up to a bounded number of events per group.
    """
    from tidelog.cli.group.problems import existing
    from tidelog.cli.group.reset_plan import parse_duration
    from tidelog.observe import memory
    from tidelog.observe.group import describe_group

    age = None if last is None else parse_duration(last, "--last")
    cluster = Cluster.dial(bootstrap, properties)
    with existing(group):
        told = memory.ask(cluster, describe_group(cluster, group).coordinator, group)
    if told.insight is None:
        raise Problem(f"no history of {group}: {told.missing_because}", f"`tidelog group describe {group}`")
    insight = told.insight
    events = [
        event for event in insight.events if age is None or event.at_ms >= insight.now_ms - age.total_seconds() * 1000
    ]
    if output is Output.JSON:
        members = [{"member_id": one.member_id, "client_id": one.client_id} for one in insight.members]
        head = {"group": group, "state": insight.state, "generation": insight.generation, "now_ms": insight.now_ms}
        print_json({**head, "members": members, "events": events})
        return
    _print(insight, events)


def _print(insight: "GroupInsight", events: "list[GroupEvent]") -> None:
    from tidelog.cli.group.timeline_view import LEGEND, clock, draw, why
    from tidelog.cli.render import shown

    print(
        f"{insight.group_id}: {insight.state}, {'epoch' if insight.type == 'consumer' else 'generation'} "
        f"{insight.generation}, {count(len(insight.members), 'member')}, {count(len(events), 'event')}"
    )
    if not events:
        print("nothing happened, or it is forgotten: events are kept since the coordinator started")
        return
    width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else PIPE_WIDTH
    members = [(one.member_id, one.client_id) for one in insight.members]
    print()
    for line in draw(events, members, from_ms=events[0].at_ms, to_ms=insight.now_ms, width=width):
        print(line)
    print(LEGEND)
    print()
    rows = [
        (clock(one.at_ms), one.kind.value, shown(one.client_id or one.member_id) or None, one.generation, why(one))
        for one in events
    ]
    print_table(("TIME", "EVENT", "WHO", "GENERATION", "WHY"), rows, right=frozenset({"GENERATION"}))
