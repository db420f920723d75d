"""`tidelog group reset` and `seek`: move a group's committed offsets, after showing what that means."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, print_json, print_table
from tidelog.cli.positions import parse_time
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.cli.group.reset_plan import Change, Target
    from tidelog.ids import TopicPartition


def _named(group: str) -> str:
    if not group:
        raise typer.BadParameter("the group's id is empty: is a variable of the shell not set?")
    return group


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", callback=_named, help="The group's id.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Also with live members: they are removed, and rejoin at the new offsets."),
]
PARTITION_HELP = "Only this partition of the topic. Repeatable."


def reset(
    group: GroupArgument,
    *,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to reset. Repeatable.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics the group has committed offsets for.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, metavar="N", help=PARTITION_HELP)
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: skip all that is unread.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where it is, clamped to what exists.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", "--to-datetime", metavar="TIME", help="To the first record at or after 2026-01-31T12:00, say."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="PT1H", help="To the first record of the last PT1H (or 1h)."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="By N records forward, or back if negative.")
    ] = None,
    from_csv: Annotated[
        Path | None,
        typer.Option("--from-csv", metavar="FILE", help="To the offsets of topic,partition,offset lines; - is stdin."),
    ] = None,
    export_csv: Annotated[
        Path | None,
        typer.Option("--export-csv", metavar="FILE", help="Write the new offsets in the form --from-csv reads."),
    ] = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move a group to other offsets, and show what that means.

    --dry-run only shows it. A group with members is refused unless --force removes them for it.
    """
    target = _target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_time=to_time,
        by_duration=by_duration,
        shift_by=shift_by,
        from_csv=from_csv,
    )
    if sum((bool(topic), all_topics, from_csv is not None)) != 1:
        raise typer.BadParameter("give one of --topic, --all-topics and --from-csv")
    if partition and len(topic or ()) != 1:
        raise typer.BadParameter("--partition needs exactly one --topic")
    cluster = Cluster.dial(bootstrap, properties)
    if from_csv is not None:
        partitions = _given(cluster, target)
    else:
        partitions = _partitions(cluster, group, topic, partition)
    changes = _plan(cluster, group, target, partitions)
    _carry_out(cluster, group, changes, dry_run=dry_run, force=force, output=output, export=export_csv)


def seek(
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its partition.")],
    offset: Annotated[str, typer.Argument(metavar="OFFSET", help="The new offset: a number, earliest or latest.")],
    *,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move a group to an offset of one partition."""
    from tidelog.cli.group.reset_plan import Target, To

    if offset in (To.EARLIEST, To.LATEST):
        target = Target(To(offset))
    elif offset.isdecimal():
        target = Target(To.OFFSET, int(offset))
    else:
        raise typer.BadParameter(f"{offset}: expected an offset, earliest or latest")
    cluster = Cluster.dial(bootstrap, properties)
    changes = _plan(cluster, group, target, _partitions(cluster, group, [topic], [partition]))
    _carry_out(cluster, group, changes, dry_run=dry_run, force=force, output=output)


def _target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_time: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_csv: Path | None,
) -> "Target":
    from tidelog.cli.group.reset_plan import Target, To, parse_csv, parse_duration, since

    targets: list[Target] = []
    now = datetime.now(UTC)
    if to_earliest:
        targets.append(Target(To.EARLIEST))
    if to_latest:
        targets.append(Target(To.LATEST))
    if to_current:
        targets.append(Target(To.CURRENT))
    if to_offset is not None:
        targets.append(Target(To.OFFSET, to_offset))
    if to_time is not None:
        targets.append(Target(To.TIME, parse_time(to_time, now, option="--to-time")))
    if by_duration is not None:
        targets.append(Target(To.TIME, since(parse_duration(by_duration), now)))
    if shift_by is not None:
        targets.append(Target(To.SHIFT, shift_by))
    if from_csv is not None:
        text = sys.stdin.read() if str(from_csv) == "-" else from_csv.read_text()
        targets.append(Target(To.GIVEN, given=parse_csv(text.splitlines())))
    if len(targets) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-time, --by-duration, "
            "--shift-by and --from-csv"
        )
    return targets[0]


def _partitions(
    cluster: Cluster, group: str, topics: list[str] | None, only: list[int] | None
) -> "list[TopicPartition]":
    from tidelog.observe.group import committed_offsets

    if topics is None:
        committed = sorted(committed_offsets(cluster, group))
        if not committed:
            raise Problem(f"{group} has committed nothing yet", "name what to reset with --topic")
        return committed
    return [each for topic in topics for each in _of_topic(cluster, topic, only)]


def _given(cluster: Cluster, target: "Target") -> "list[TopicPartition]":
    found = []
    for topic in sorted({each.topic for each in target.given}):
        found += _of_topic(cluster, topic, [each.partition for each in target.given if each.topic == topic])
    return found


def _of_topic(cluster: Cluster, topic: str, only: list[int] | None) -> "list[TopicPartition]":
    """All its partitions, or these. They must be there, and so must the topic."""
    from tidelog.ids import TopicPartition

    there = sorted(cluster.topics(topic).topics[topic].partitions)
    for missing in sorted(set(only or ()) - set(there)):
        raise Problem(f"{topic} has no partition {missing}", f"it has {count(len(there), 'partition')}, from 0")
    return [TopicPartition(topic, each) for each in there if not only or each in only]


def _plan(cluster: Cluster, group: str, target: "Target", partitions: "list[TopicPartition]") -> "list[Change]":
    from tidelog.cli.group.reset_plan import Known, To, plan
    from tidelog.observe.group import committed_offsets
    from tidelog.observe.offsets import end_offsets, offsets_at, start_offsets

    starts, ends = start_offsets(cluster, partitions), end_offsets(cluster, partitions)
    for each in partitions:
        if each not in starts or each not in ends:
            raise Problem(f"partition {each} has no leader at {cluster.bootstrap}", "try again when its broker is back")
    committed = committed_offsets(cluster, group)
    at_time = offsets_at(cluster, partitions, target.number) if target.to is To.TIME else {}
    return plan(
        target,
        [
            Known(
                partition=each,
                start=starts[each],
                end=ends[each],
                committed=committed.get(each),
                at_time=at_time.get(each),
            )
            for each in partitions
        ],
    )


def _carry_out(
    cluster: Cluster,
    group: str,
    changes: "list[Change]",
    *,
    dry_run: bool,
    force: bool,
    output: Output,
    export: Path | None = None,
) -> None:
    from tidelog.cli.group.reset_plan import csv_lines

    if not dry_run:
        _commit(cluster, group, changes, force=force)
    if export is not None:
        export.write_text("".join(f"{line}\n" for line in csv_lines(changes)))
    if output is Output.JSON:
        print_json({"group": group, "executed": not dry_run, "partitions": changes})
        return
    columns = ("TOPIC", "PARTITION", "OLD", "NEW", "CHANGE")
    rows = [(one.topic, one.partition, one.old_offset, one.new_offset, one.effect) for one in changes]
    print_table(columns, rows, right=frozenset({"PARTITION", "OLD", "NEW"}))
    for one in changes:
        if one.warning:
            print(f"warning: {one.where}: {one.warning}", file=sys.stderr)
    print(f"{group}: nothing changed, this was a dry run" if dry_run else f"{group}: reset")


def _commit(cluster: Cluster, group: str, changes: "list[Change]", *, force: bool) -> None:
    from tidelog.cli.group.offsets import StillLive, commit_by_force, commit_offsets
    from tidelog.observe.group import describe_group

    offsets = {one.where: one.new_offset for one in changes}
    if force:
        commit_by_force(cluster, group, offsets)
        return
    view = describe_group(cluster, group)
    hint = "stop them, or let --force remove them for a moment; --dry-run shows what would change"
    if view.is_live:
        names = ", ".join(sorted({one.client_id for one in view.members})[:5])
        raise Problem(f"group {group} is live: {count(len(view.members), 'member')} ({names})", hint)
    try:
        commit_offsets(cluster, group, offsets)
    except StillLive:
        raise Problem(f"group {group} is live: somebody joined just now", hint) from None
