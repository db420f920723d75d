"""`tidelog topic reassign` and `elect`: which brokers hold a topic's partitions, and which of them lead."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, note, print_json, print_table
from tidelog.cli.problems import Problem
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.cli.cluster.admin import Administration
    from tidelog.cli.cluster.moves import Plan
    from tidelog.cli.cluster.picture import PartitionSeen

OptionalTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic; all of them if not said.")]
PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition. Repeatable.")
]


def reassign(
    topic: OptionalTopic = None,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NODE,...", help="The brokers that should hold it; they take turns at leading."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="A plan as kafka-reassign-partitions reads it; - is stdin."),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is under way.")] = False,
    partition: PartitionOption = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Partitions that move at the same time.")] = 50,
    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="RATE|none",
            help="Copy no faster than this on each broker, such as 50MB a second. none lifts a limit that was left.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show progress until all have arrived.")] = True,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move replicas to other brokers.

    Nobody who reads or writes has to stop for it: the new replicas catch up first, and only then do the old ones go.
    Without --to, --plan or --cancel it shows what is being moved. A --throttle ends when all have arrived.
    """
    from tidelog.cli.cluster.admin import Administration

    if sum((to is not None, plan is not None, cancel)) > 1:
        raise typer.BadParameter("--to, --plan and --cancel are three different wishes: give one")
    kafka = Cluster.dial(bootstrap, properties)
    admin = Administration.of(kafka)
    if cancel:
        _cancel(admin, topic, partition, output)
    elif to is None and plan is None:
        if throttle is not None:
            _lift(kafka, admin, topic, throttle)
        _show(admin, topic, partition, output)
    else:
        wanted = _wanted(admin, topic, partition, to, plan)
        _move(kafka, admin, wanted, at_once=at_once, wait=wait, throttle=throttle)
        if output is Output.JSON:
            from tidelog.cli.cluster.moves import plan_to_json

            print_json(plan_to_json(wanted))
        elif wait:
            print(f"{count(len(wanted), 'partition')} moved")


def _move(
    kafka: Cluster, admin: "Administration", plan: "Plan", *, at_once: int, wait: bool, throttle: str | None
) -> None:
    from tidelog.cli.cluster.progress import carry_out
    from tidelog.cli.cluster.throttle import lift, limit, parse_rate

    rate = None if throttle is None else parse_rate(throttle)
    if rate is None:
        carry_out(admin, plan, at_once=at_once, wait=wait)
        return
    limit(kafka, admin.look(), plan, rate)
    arrived = False
    try:
        carry_out(admin, plan, at_once=at_once, wait=wait)
        arrived = wait
    finally:
        if arrived:
            lift(kafka, admin.look(), (place.topic for place in plan))
        else:
            note(f"  the limit of {rate:,} bytes a second stays: tidelog topic reassign --throttle none lifts it")


def _lift(kafka: Cluster, admin: "Administration", topic: str | None, throttle: str) -> None:
    from tidelog.cli.cluster.throttle import lift, parse_rate

    if parse_rate(throttle) is not None:
        raise typer.BadParameter("--throttle limits a move: say where to with --to or --plan")
    seen = admin.look()
    lift(kafka, seen, (each.topic for each in seen.partitions if topic in (None, each.topic)))


def _wanted(
    admin: "Administration", topic: str | None, partition: list[int] | None, to: str | None, plan: Path | None
) -> "Plan":
    from tidelog.cli.cluster.moves import plan_from_json, spread_over

    if plan is not None:
        if topic is not None or partition:
            raise typer.BadParameter("the plan says what to move: give no topic beside it")
        return plan_from_json(sys.stdin.read() if str(plan) == "-" else plan.read_text(encoding="utf-8"))
    if topic is None:
        raise typer.BadParameter("--to moves one topic: say which")
    assert to is not None
    brokers = parse_nodes(to)
    seen = admin.look()
    here = {each.id for each in seen.brokers}
    if unknown := [node for node in brokers if node not in here]:
        raise Problem(f"there is no broker {unknown[0]}", f"those there are: {', '.join(map(str, sorted(here)))}")
    found = _partitions_of(list(seen.partitions), topic, partition)
    return spread_over(topic, [each.partition for each in found], brokers)


def _partitions_of(
    seen: "list[PartitionSeen]", topic: str | None, partition: list[int] | None
) -> "list[PartitionSeen]":
    found = [each for each in seen if topic is None or each.topic == topic]
    if topic is not None and not found:
        raise Problem(f"there is no topic {topic}", "`tidelog topic list` shows the topics there are")
    if not partition:
        return found
    if topic is None:
        raise typer.BadParameter("--partition is one of a topic: say which topic")
    if missing := set(partition) - {each.partition for each in found}:
        raise Problem(f"{topic} has no partition {min(missing)}", f"`tidelog topic describe {topic}` shows them")
    return [each for each in found if each.partition in partition]


def parse_nodes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"--to {text}: expected broker ids, such as 1,2,3")
    nodes = list(map(int, parts))
    if len(set(nodes)) != len(nodes):
        raise typer.BadParameter(f"--to {text}: names a broker twice")
    return nodes


def _show(admin: "Administration", topic: str | None, partition: list[int] | None, output: Output) -> None:
    moving = {
        place: each
        for place, each in sorted(admin.moving().items())
        if topic in (None, place.topic) and (not partition or place.partition in partition)
    }
    if output is Output.JSON:
        print_json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "replicas": each.replicas,
                    "adding": each.adding_replicas,
                    "removing": each.removing_replicas,
                }
                for place, each in moving.items()
            ]
        )
    elif moving:
        rows = [
            (
                place,
                *(",".join(map(str, nodes)) for nodes in (each.replicas, each.adding_replicas, each.removing_replicas)),
            )
            for place, each in moving.items()
        ]
        print_table(("PARTITION", "ON", "COMING", "GOING"), rows)
        note("  next: tidelog topic reassign TOPIC --cancel takes it back")
    else:
        print("nothing is being moved")


def _cancel(admin: "Administration", topic: str | None, partition: list[int] | None, output: Output) -> None:
    moving = [
        place
        for place in sorted(admin.moving())
        if topic in (None, place.topic) and (not partition or place.partition in partition)
    ]
    refused = admin.reassign(dict.fromkeys(moving)) if moving else {}
    over = {place for place, error in refused.items() if error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    for place, error in refused.items():
        if place not in over:
            raise Problem(f"{place}: {error}", "`tidelog topic reassign` shows what is being moved")
    taken_back = [place for place in moving if place not in over]
    if output is Output.JSON:
        print_json([{"topic": place.topic, "partition": place.partition} for place in taken_back])
    else:
        print(f"{count(len(taken_back), 'reassignment')} taken back" if taken_back else "nothing is being moved")


def elect(
    topic: OptionalTopic = None,
    *,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Let any replica lead that is there, also one that lacks records.")
    ] = False,
    partition: PartitionOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --unclean.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the preferred replicas lead again.

    The preferred replica is the first of a partition's list. With --unclean partitions without a leader get one at any
    price: what the new leader does not have is lost, so it is for replicas in sync that will never come back.
    """
    from tidelog.cli.cluster.admin import Administration

    admin = Administration.of(Cluster.dial(bootstrap, properties))
    found = _partitions_of(list(admin.look().partitions), topic, partition)
    needy = [each for each in found if (each.is_offline if unclean else each.leader != each.replicas[0])]
    if unclean and needy and not yes and sys.stdin.isatty():
        typer.confirm(f"Elect leaders of {count(len(needy), 'partition')}, and lose what they do not have?", abort=True)
    held, refused = 0, dict[TopicPartition, KafkaError]()
    if needy:
        held, refused = admin.elect((TopicPartition(each.topic, each.partition) for each in needy), unclean=unclean)
    refused = {place: error for place, error in refused.items() if error.code is not ErrorCode.ELECTION_NOT_NEEDED}
    if output is Output.JSON:
        errors = [
            {"topic": place.topic, "partition": place.partition, "error": error.code.name, "message": str(error)}
            for place, error in sorted(refused.items())
        ]
        print_json({"elected": held, "refused": errors})
    else:
        nothing = "every partition has a leader" if unclean else "every partition is led by its preferred replica"
        print(f"{count(held, 'leader')} elected" if needy else nothing)
        for place, error in sorted(refused.items()):
            print(f"  {place}: {error}", file=sys.stderr)
    if refused:
        raise typer.Exit(1)
