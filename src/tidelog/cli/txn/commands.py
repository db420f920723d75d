"""`tidelog txn …`: transactions that are open, who holds up readers, and how to end one that nobody ends."""

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, note, print_json
from tidelog.cli.problems import Problem
from tidelog.cli.render import shown

if TYPE_CHECKING:
    from tidelog.cli.txn.cluster import Transactions

app = typer.Typer(help="Transactions: which are open, whom they hold up, and end one that hangs.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional.id.")]
TopicOption = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only partitions of this topic.")]


@app.command("list")
def list_(
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only transactions in this state, such as Ongoing. Repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="Only of this producer id. Repeatable.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="AGE", help="Only those open for longer, such as 30s or PT5M."),
    ] = None,
    match: Annotated[
        str | None, typer.Option("--match", metavar="REGEX", help="Only ids that match this, as a whole.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List transactional ids, with the state of their last transaction and for how long it has been open."""
    from tidelog.cli.group.reset_plan import parse_duration
    from tidelog.cli.txn.cluster import STATES
    from tidelog.cli.txn.view import print_transactions

    states = {each.lower() for each in state or ()}
    if unknown := states - {each.lower() for each in STATES}:
        raise typer.BadParameter(f"--state {unknown.pop()}: expected one of {', '.join(STATES)}")
    shortest_ms = None if longer_than is None else parse_duration(longer_than, "--longer-than").total_seconds() * 1000
    try:
        pattern = re.compile(match or "", re.DOTALL)
    except re.error as wrong:
        raise typer.BadParameter(f"--match {match}: {wrong}") from None
    found = [
        each
        for each in _dial(bootstrap, properties).all(producer_id or ())
        if (not states or each.state.lower() in states)
        and (match is None or pattern.fullmatch(each.transactional_id))
        and (shortest_ms is None or (each.duration_ms is not None and each.duration_ms > shortest_ms))
    ]
    if output is Output.JSON:
        print_json(found)
    elif found:
        print_transactions(found)
    else:
        chosen = states or producer_id or longer_than or match
        print("no transactions of that kind" if chosen else "no transactional ids yet")


@app.command()
def describe(
    transactional_id: IdArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a transactional id: its transaction's state, age and timeout, its coordinator, and the partitions in it.

    For each of these: where the transaction begins, and how many records readers of committed records wait for.
    """
    from tidelog.cli.txn.view import gather, print_report

    report = gather(_dial(bootstrap, properties), transactional_id)
    if output is Output.JSON:
        print_json(report)
        return
    print_report(report)
    if report.transaction.is_running:
        note(f"  next: tidelog txn abort {transactional_id}      tidelog txn find-hanging")


@app.command("find-hanging")
def find_hanging(
    *,
    topic: TopicOption = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this one, of --topic.")] = None,
    idle: Annotated[
        str,
        typer.Option("--idle", metavar="AGE", help="Only transactions that wrote nothing for so long."),
    ] = "15m",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Find transactions that are open in a partition and that no coordinator is going to end. Exit code 1: some are.

    Readers of committed records wait behind them for ever, and their partition is not compacted. Two looks a second
    apart tell them from those that are just ending.
    """
    from tidelog.cli.group.reset_plan import parse_duration
    from tidelog.cli.txn.hanging import find
    from tidelog.cli.txn.view import print_hanging

    idle_ms = int(parse_duration(idle, "--idle").total_seconds() * 1000)
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    cluster = Cluster.dial(bootstrap, properties)
    transactions = _ask(cluster)
    if topic is not None:
        cluster.topics(topic)
    places = [
        place
        for place in transactions.partitions(None if topic is None else [topic])
        if partition is None or place.partition == partition
    ]
    if not places and partition is not None:
        raise Problem(f"{topic} has no partition {partition}", f"`tidelog topic describe {topic}` shows its partitions")
    found = find(transactions, places, idle_ms)
    if output is Output.JSON:
        print_json(found)
    elif found:
        print_hanging(found)
    else:
        print(f"no hanging transactions in {count(len(places), 'partition')}")
    if found:
        raise typer.Exit(1)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="End the transaction that is open under this transactional.id.")
    ] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="End a hanging transaction in this topic instead…")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="…in this partition of it…")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="…that begins at this offset, as find-hanging shows it.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if its coordinator has it for open: the producer may still be at work."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """End a transaction: by its id, or, when it hangs, in one partition.

    By its id: the coordinator aborts it in every partition, and its producer is fenced: its next request fails, and it
    has to start anew. In one partition: an abort marker is written there and nowhere else, past the coordinator.
    """
    from tidelog.cli.txn.abort import abort_hanging, abort_live

    hanging = (topic, partition, start_offset)
    if (transactional_id is None) == (hanging == (None, None, None)):
        raise typer.BadParameter("give the transactional id, or --topic, --partition and --start-offset")
    if force and transactional_id is not None:
        raise typer.BadParameter("--force is for --topic, --partition and --start-offset; an id needs none")
    ask_first = not yes and sys.stdin.isatty()
    cluster = Cluster.dial(bootstrap, properties)
    if transactional_id is not None:
        ended = abort_live(_ask(cluster), transactional_id, ask_first)
        if output is Output.JSON:
            print_json({"aborted": ended})
            return
        where = count(len(ended.partitions), "partition")
        print(f"aborted the transaction of {shown(transactional_id)} in {where}; its producer is fenced")
        return
    if topic is None or partition is None or start_offset is None:
        raise typer.BadParameter("--topic, --partition and --start-offset belong together")
    cluster.topics(topic)
    marked = abort_hanging(_ask(cluster), topic, partition, start_offset, force=force, ask_first=ask_first)
    if output is Output.JSON:
        print_json({"aborted": marked})
        return
    print(f"aborted the transaction of producer id {marked.producer_id} in {topic}-{partition} from {start_offset} on")


def _dial(bootstrap: str, properties: list[str] | None) -> "Transactions":
    return _ask(Cluster.dial(bootstrap, properties))


def _ask(cluster: Cluster) -> "Transactions":
    from tidelog.cli.txn.cluster import Transactions

    return Transactions.of(cluster, cluster.bootstrap)
