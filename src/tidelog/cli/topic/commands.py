"""`tidelog topic …`: create, list, describe, alter, delete, and where a key lives. Moving is in `topic_moves`."""

import os
import sys
from typing import Annotated, Final

import typer

from tidelog.cli.connecting import TIMEOUT_SECONDS, Cluster, admin_api, result
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import count, note, print_json, print_table, size
from tidelog.cli.problems import Problem
from tidelog.cli.render import json_bytes, printable
from tidelog.cli.topic.moves import elect, reassign
from tidelog.cli.topic.report import TopicReport, gather
from tidelog.config import parse_assignments

app = typer.Typer(
    help="Create, list, describe, alter and delete topics; find a key's partition; move replicas and leaders.",
    no_args_is_help=True,
)

MAX_PARTITIONS: Final = 100_000  # both are librdkafka's
MAX_REPLICAS: Final = 10_000

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="NAME=VALUE", help="A topic setting, such as retention.ms=60000. Repeatable."
    ),
]


@app.command()
def create(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=MAX_PARTITIONS, help="How many; the broker's num.partitions if not said."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, max=MAX_REPLICAS, help="Copies of each partition."),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it is there already.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a topic."""
    settings = parse_assignments(config or ())
    cluster = Cluster.dial(bootstrap, properties)
    from confluent_kafka import KafkaError, KafkaException

    new = admin_api().NewTopic(
        topic, num_partitions=partitions or -1, replication_factor=replication_factor or -1, config=settings
    )
    created = True
    try:
        result(cluster.admin.create_topics([new]))
    except KafkaException as refused:
        if not (if_not_exists and refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
            raise
        created = False
    found = cluster.await_topic(topic)
    if output is Output.JSON:
        print_json({"topic": topic, "partitions": found, "created": created})
        return
    print(f"{'created topic' if created else 'there is already a topic'} {topic} with {count(found, 'partition')}")
    note(f"  next: tidelog produce {topic}      tidelog consume {topic} --from-beginning")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also topics whose name begins with __.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List topics."""
    topics = sorted(Cluster.dial(bootstrap, properties).topics().topics.values(), key=lambda each: str(each.topic))
    rows = [
        (each.topic, len(each.partitions), len(each.partitions[0].replicas) if 0 in each.partitions else 0)
        for each in topics
        if internal or not each.topic.startswith("__")
    ]
    if output is Output.JSON:
        print_json([{"topic": name, "partitions": parts, "replication_factor": copies} for name, parts, copies in rows])
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows, right=frozenset({"PARTITIONS", "REPLICAS"}))
    else:
        print("no topics yet")
        note("  next: tidelog topic create orders --partitions 12")


@app.command()
def describe(
    topic: TopicArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a topic's partitions, offsets, sizes, skew, ordering scope and chosen settings."""
    report = gather(Cluster.dial(bootstrap, properties), topic)
    if output is Output.JSON:
        print_json(report.to_json())
        return
    _print_report(report)


def _print_report(report: TopicReport) -> None:
    print(f"{report.topic}: {count(len(report.partitions), 'partition')}, {count(report.records, 'record')}")
    print(f"ordering: {report.ordering}")
    if report.skew is not None:
        print(f"skew: {report.skew} (fullest / mean; 1.0 is even)")
    print()
    columns = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "RECORDS", "SIZE")
    rows = [
        (
            each.partition,
            each.leader,
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
            each.start_offset,
            each.end_offset,
            each.records,
            None if each.size_bytes is None else size(each.size_bytes),
        )
        for each in report.partitions
    ]
    print_table(columns, rows, right=frozenset(columns) - {"REPLICAS", "IN SYNC"})
    chosen = [(each.name, each.value, each.source) for each in report.configs if not each.is_default]
    if chosen:
        print()
        print_table(("SETTING", "VALUE", "SET BY"), chosen)


@app.command()
def alter(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, max=MAX_PARTITIONS, help="Grow to this many.")
    ] = None,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Return a setting to the broker's. Repeatable.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add partitions to a topic, or change its settings."""
    from tidelog.cli.config import alter_configs

    settings: dict[str, str | None] = {**parse_assignments(config or ()), **dict.fromkeys(unset or ())}
    if partitions is None and not settings:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --unset")
    cluster = Cluster.dial(bootstrap, properties)
    before = len(cluster.topics(topic).topics[topic].partitions)
    if partitions is not None and partitions < before:
        raise Problem(
            f"{topic} has {before} partitions and cannot shrink to {partitions}",
            "records would be lost: make a new topic and copy into it",
        )
    if settings:
        alter_configs(cluster, "topic", topic, settings)
    if partitions is not None and partitions > before:
        result(cluster.admin.create_partitions([admin_api().NewPartitions(topic, partitions)]))
    if output is Output.JSON:
        print_json({"topic": topic, "partitions": partitions or before, "configs": settings})
        return
    for name, value in settings.items():
        print(f"{topic}: {name} is now {value}" if value is not None else f"{topic}: {name} is the broker's again")
    if partitions == before:
        print(f"{topic}: has {count(before, 'partition')} already")
    elif partitions is not None:
        print(f"{topic}: {before} → {count(partitions, 'partition')}")
        note("  careful: from now on most keys go to another partition than their older records")


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete topics and all their records."""
    cluster = Cluster.dial(bootstrap, properties)
    topics = list(dict.fromkeys(topics))
    for topic in topics:
        cluster.topics(topic)
    if not yes and sys.stdin.isatty():
        typer.confirm(
            f"Delete {', '.join(topics)} and all records in {'it' if len(topics) == 1 else 'them'}?", abort=True
        )
    for future in cluster.admin.delete_topics(topics).values():
        future.result(TIMEOUT_SECONDS)
    if output is Output.JSON:
        print_json({"deleted": topics})
        return
    for topic in topics:
        print(f"deleted topic {topic}")


@app.command()
def locate(
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The record key, as text.")],
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say which partition a key lives in, and which clients agree."""
    from zlib import crc32

    from tidelog.partitioning import partition_for

    partitions = len(Cluster.dial(bootstrap, properties).topics(topic).topics[topic].partitions)
    encoded = os.fsencode(key)  # a key of any bytes, as the shell gave it
    # An empty key is none to librdkafka's default partitioner, and lands anywhere.
    home, librdkafka = partition_for(encoded, partitions), crc32(encoded) % partitions if encoded else None
    if output is Output.JSON:
        print_json(
            {
                "topic": topic,
                "key": json_bytes(encoded),
                "partitions": partitions,
                "partition": home,
                "partitioners": {"murmur2": home, "consistent_random": librdkafka},
            }
        )
        return
    name = printable(encoded) or "the empty key"
    elsewhere = "any partition" if librdkafka is None else f"partition {librdkafka}"
    print(f"{name} lives in partition {home} of {topic} ({count(partitions, 'partition')})")
    print(f"  murmur2 (Tidelog, Java, kafka-python, aiokafka, franz-go)        partition {home}")
    print(f"  consistent_random (librdkafka's default: confluent-kafka, kcat)  {elsewhere}")
    if home == librdkafka:
        print("  both agree on this key")
    else:
        print("  they differ: give librdkafka clients partitioner=murmur2_random to write this key where Java does")


app.command()(reassign)
app.command()(elect)
