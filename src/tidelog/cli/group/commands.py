"""`tidelog group …`: list, describe, members, lag, delete; the rest of the tree is added by its own files."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connecting import TIMEOUT_SECONDS, Cluster
from tidelog.cli.group import diagnose, reset, timeline
from tidelog.cli.group.reset import GroupArgument
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import note, print_json, print_table
from tidelog.cli.problems import Problem
from tidelog.cli.render import shown

if TYPE_CHECKING:
    from tidelog.cli.group.report import LagTables

app = typer.Typer(help="Consumer groups: who reads what, how far behind, why; and reset them.", no_args_is_help=True)

SecondsOption = Annotated[
    float,
    typer.Option(
        "--seconds", min=0, metavar="SECONDS", help="How long to measure rates if the coordinator keeps none."
    ),
]


@app.command("list")
def list_(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state, such as Stable. Repeatable."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic or consumer. Repeatable."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List consumer groups."""
    from tidelog.observe.group import STATES, list_groups

    known = {each.lower() for each in (*STATES.values(), "Assigning", "Reconciling")}
    for each in state or ():
        if each.lower() not in known:
            raise typer.BadParameter(f"--state {each}: expected one of {', '.join(STATES.values())}")
    for each in type_ or ():
        if each.lower() not in ("classic", "consumer"):
            raise typer.BadParameter(f"--type {each}: expected classic or consumer")
    groups = list_groups(Cluster.dial(bootstrap, properties), state or (), type_ or ())
    if output is Output.JSON:
        print_json(groups)
    elif groups:
        print_table(("GROUP", "TYPE", "STATE"), [(shown(each.group), each.type, each.state) for each in groups])
    else:
        print("no groups of that kind" if state or type_ else "no groups yet")


@app.command()
def describe(
    group: GroupArgument,
    *,
    seconds: SecondsOption = 1.0,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a group: its state, offsets, lag and owners.

    Per partition: committed and end offset, lag in records and in seconds, its trend, and who reads it.
    """
    from tidelog.cli.group.report import gather, print_report

    report = gather(Cluster.dial(bootstrap, properties), group, seconds)
    if output is Output.JSON:
        print_json(report)
        return
    print_report(report)
    note(f"  next: tidelog group diagnose {group}      tidelog group timeline {group}")


@app.command()
def members(
    group: GroupArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a group's members: where they run and what they own.

    With what each of them has left to do.
    """
    from tidelog.cli.group.report import gather, short_partitions

    report = gather(Cluster.dial(bootstrap, properties), group, 0)
    if output is Output.JSON:
        print_json(report.members)
        return
    if not report.members:
        print(f"{group} has no members")
        return
    columns = ("MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS", "LAG", "ASSIGNMENT")
    rows = [
        (
            shown(one.member_id),
            shown(one.client_id),
            one.host,
            one.instance_id and shown(one.instance_id),
            len(one.partitions),
            one.lag_records,
            short_partitions(one.partitions),
        )
        for one in report.members
    ]
    print_table(columns, rows, right=frozenset({"PARTITIONS", "LAG"}))


@app.command()
def lag(
    group: Annotated[str | None, typer.Argument(metavar="GROUP", help="One group, by partition; all if none.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C, each time with the trend.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Between two looks of --watch.")
    ] = 2.0,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show how far behind groups are, in records and in seconds."""
    from tidelog.cli.group.report import LagTables

    tables = LagTables(Cluster.dial(bootstrap, properties), group)
    try:
        while True:
            rows = tables.look()
            if output is Output.JSON:
                print_json(rows)
            else:
                _show_lag(tables, rows, again=watch)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        if not watch:
            raise


def _show_lag(tables: "LagTables", rows: Sequence[object], *, again: bool) -> None:
    if again and sys.stdout.isatty():
        print("\033[H\033[2J", end="")  # draw over what was there
    if rows:
        tables.show(rows)
    else:
        print("no groups yet" if tables.group is None else f"{tables.group} has committed nothing and owns nothing")
    if again:
        print(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="One or more groups.")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Delete only the offsets of this topic. Repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete groups and their committed offsets. A group with members is refused."""
    cluster = Cluster.dial(bootstrap, properties)
    what = f"the offsets of {', '.join(topic)} in {', '.join(groups)}" if topic else f"{', '.join(groups)}"
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {what}?", abort=True)
    deleted: list[dict[str, object]] = []
    for group in groups:
        if topic:
            from tidelog.cli.group.offsets import delete_offsets

            gone = delete_offsets(cluster, group, topic)
            deleted.append({"group": group, "partitions": gone})
        else:
            _delete(cluster, group)
            deleted.append({"group": group})
    if output is Output.JSON:
        print_json({"deleted": deleted})
        return
    for group in groups:
        print(f"deleted the offsets of {', '.join(topic)} in group {group}" if topic else f"deleted group {group}")


def _delete(cluster: Cluster, group: str) -> None:
    from confluent_kafka import KafkaException

    try:
        cluster.admin.delete_consumer_groups([group])[group].result(TIMEOUT_SECONDS)
    except KafkaException as refused:
        name = refused.args[0].name()
        if name == "NON_EMPTY_GROUP":
            hint = f"`tidelog group members {group}` shows them; stop them first"
            raise Problem(f"group {group} has members and cannot be deleted", hint) from None
        if name == "GROUP_ID_NOT_FOUND":
            raise Problem(f"there is no group {group}", "`tidelog group list` shows the groups there are") from None
        raise


app.command()(reset.reset)
app.command()(reset.seek)
app.command()(timeline.timeline)
app.command()(diagnose.diagnose)
