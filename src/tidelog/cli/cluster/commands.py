"""`tidelog cluster …`: start one on this machine, look at any, break one for practice, add and remove brokers."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.connecting import Cluster
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, note, print_json
from tidelog.cli.problems import Problem
from tidelog.config import parse_assignments

app = typer.Typer(
    help="Start a cluster here, look at any cluster, break one for practice, add and remove brokers.",
    no_args_is_help=True,
)

DirectoryOption = Annotated[
    Path, typer.Option("--data-dir", "-d", metavar="DIR", help="Where the cluster keeps its data and its state.")
]
NodeArgument = Annotated[int, typer.Argument(metavar="NODE", help="The id of the broker.")]
HERE = Path("tidelog-cluster")


@app.command()
def start(
    *,
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=9, help="How many brokers; all of them vote.")] = 3,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65_000,
            help="The first broker's port; the others have the next ones, and 100 more is for brokers.",
        ),
    ] = 9092,
    data_dir: DirectoryOption = HERE,
    namespaces: Annotated[
        bool,
        typer.Option(
            "--namespaces",
            help="Give every broker a network of its own, so that one can be isolated. Linux, as root.",
        ),
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of every broker. Repeatable."),
    ] = None,
) -> None:
    """Start a cluster on this machine, to try it.

    Every broker is a process of its own. It tells what happens to them until Ctrl-C. Their data stays.
    """
    from tidelog.cli.cluster.start import Run, processes, say

    settings = parse_assignments(assignments or ())
    data_dir.mkdir(parents=True, exist_ok=True)
    Run(processes(nodes, port, data_dir, settings, namespaces=namespaces), say).until_stopped()


@app.command()
def status(
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show brokers, quorum and what is missing.

    What each broker leads and holds, how far the voters of the quorum have got, and partitions that lack a leader or
    replicas. Exits with 1 if a broker is down or a partition lacks something, so that scripts can wait for health.
    """
    from tidelog.cli.cluster.admin import Administration, look_over_tls
    from tidelog.cli.cluster.view import print_picture
    from tidelog.observe.clients import speaks_plainly

    kafka = Cluster.dial(bootstrap, properties)
    # A broker that stands still keeps whoever asks it waiting; the next one named may answer.
    seen = Administration.of(kafka, timeout_s=5).look() if speaks_plainly(kafka) else look_over_tls(kafka)
    if output is Output.JSON:
        print_json(seen.to_json())
    else:
        print_picture(seen)
    if not seen.is_healthy:
        raise typer.Exit(1)


@app.command("break")
def break_(
    node: NodeArgument,
    *,
    how: Annotated[
        str,
        typer.Option(
            "--how", metavar="kill|pause|isolate", help="kill is -9; pause is SIGSTOP; isolate cuts the network off."
        ),
    ] = "kill",
    data_dir: DirectoryOption = HERE,
) -> None:
    """Break a broker, for practice.

    Only one of a cluster that `tidelog cluster start` runs on this machine. `tidelog cluster status` shows what the
    others make of it, `tidelog cluster heal` undoes it.
    """
    from tidelog.cli.cluster.breaking import How, break_node

    if how not in set(How):
        raise typer.BadParameter(f"--how {how}: expected one of {', '.join(How)}")
    print(break_node(data_dir, node, How(how)))
    note(f"  next: tidelog cluster status      tidelog cluster heal {node}")


@app.command()
def heal(node: NodeArgument, *, data_dir: DirectoryOption = HERE) -> None:
    """Undo what break did to a broker.

    It is started again if it was killed, goes on if it was paused, and is plugged in if it was isolated.
    """
    from tidelog.cli.cluster.breaking import heal_node

    print(heal_node(data_dir, node))


AtOnceOption = Annotated[
    int, typer.Option("--at-once", min=1, help="Partitions that move at the same time: more is faster, and felt more.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan, as a file for `topic reassign --plan`.")]


@app.command()
def add(
    node: Annotated[int | None, typer.Argument(metavar="NODE", help="The id of the new broker.")] = None,
    *,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Give every broker its share of replicas and leaders.")
    ] = False,
    voter: Annotated[
        bool, typer.Option("--voter", help="Give it a vote in the metadata quorum, once it runs.")
    ] = False,
    at_once: AtOnceOption = 50,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
) -> None:
    """Add a broker to a cluster.

    Prints the command that starts it. Once it runs, --rebalance gives every broker its share of replicas and leaders,
    and --voter makes it one of those that keep the metadata.
    """
    from tidelog.cli.cluster.add import command_for, evened_out, give_vote
    from tidelog.cli.cluster.admin import Administration
    from tidelog.cli.cluster.moves import plan_to_json
    from tidelog.cli.cluster.progress import carry_out

    admin = Administration.of(Cluster.dial(bootstrap, properties))
    seen = admin.look()
    here = {each.id for each in seen.brokers}
    if not (rebalance or dry_run or voter):
        for line in command_for(seen, node, bootstrap):
            print(line)
        return
    if node is not None and node not in here:
        raise Problem(f"broker {node} is not there yet", f"`tidelog cluster add {node}` prints how to start it")
    if voter and not dry_run:
        print(give_vote(admin, seen, node))
        if not rebalance:
            return
    plan = evened_out(seen)
    if dry_run:
        print_json(plan_to_json(plan))
        return
    if not plan:
        print("every broker has its share already")
        return
    carry_out(admin, plan, at_once=at_once)
    print(f"{count(len(plan), 'partition')} moved")
    for each in admin.look().brokers:
        print(f"  broker {each.id}: {count(each.replicas, 'replica')}, first of {count(each.preferred, 'partition')}")


@app.command()
def decommission(
    node: NodeArgument,
    *,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Where no other broker is left for a replica, do with one less.")
    ] = False,
    at_once: AtOnceOption = 50,
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
) -> None:
    """Take a broker out of a cluster.

    Moves all its replicas to the others and takes its vote away, if it has one. Run it while the broker runs, stop the
    broker when it says so, and run it again to have the broker forgotten.
    """
    from tidelog.cli.cluster.admin import Administration
    from tidelog.cli.cluster.leave import Leaving

    admin = Administration.of(Cluster.dial(bootstrap, properties))
    leaving = Leaving(admin, node, may_shrink=shrink)
    if dry_run:
        from tidelog.cli.cluster.moves import plan_to_json

        print_json(plan_to_json(leaving.plan()))
        return
    plan = leaving.plan()
    if plan and not yes and sys.stdin.isatty():
        typer.confirm(f"Move {count(len(plan), 'replica')} away from broker {node}?", abort=True)
    for line in leaving.carry_out(plan, at_once):
        print(line)
