"""`tidelog config …`: read and change the settings of topics, groups and brokers."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidelog.cli.connecting import Cluster, admin_api, result
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption, PropertyOption
from tidelog.cli.output import print_json, print_table
from tidelog.cli.problems import Problem
from tidelog.cli.topic.report import configs
from tidelog.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Setting, parse_assignments, render

app = typer.Typer(help="Read and change the settings of topics, groups and brokers.", no_args_is_help=True)

TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic meant.")]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group meant.")]
BrokerOption = Annotated[int | None, typer.Option("--broker", metavar="ID", help="The broker meant, by node.id.")]


@app.command("list")
def list_settings(
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List every setting there is with its meaning; with --topic, --group or --broker, the values in force."""
    if topic is None and group is None and broker is None:
        _list_known(output)
        return
    kind, name = _resource(topic, group, broker)
    found = configs(_cluster(bootstrap, properties, topic, broker).admin, kind, name)
    if output is Output.JSON:
        print_json({each.name: {"value": each.value, "source": each.source} for each in found})
    else:
        print_table(("SETTING", "VALUE", "SET BY"), [(each.name, each.value, each.source) for each in found])


def _list_known(output: Output) -> None:
    scopes = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "group": GROUP_SETTINGS}
    if output is Output.JSON:
        print_json({scope: {each.name: _known(each) for each in table.values()} for scope, table in scopes.items()})
        return
    for scope, table in scopes.items():
        print(f"{scope} settings")
        for setting in table.values():
            default = render(setting.default)
            print(f"\n  {setting.name} = {'(unset)' if default is None else default}")
            print(f"      {setting.doc}")
            print(f"      {setting.valid_words}{'; changes at run time' if setting.dynamic else ''}")
        print()


def _known(setting: Setting) -> dict[str, object]:
    return {
        "type": setting.type.name,
        "default": render(setting.default),
        "valid": setting.valid_words,
        "doc": setting.doc,
        "inherits": setting.inherits,
        "dynamic": setting.dynamic or bool(setting.inherits),
    }


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The setting, such as retention.ms.")],
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the value of one setting."""
    kind, resource = _resource(topic, group, broker)
    found = {each.name: each for each in configs(_cluster(bootstrap, properties, topic, broker).admin, kind, resource)}
    if name not in found:
        raise _no_such(name, kind, found)
    if output is Output.JSON:
        print_json({"name": name, "value": found[name].value, "source": found[name].source})
    else:
        print("" if found[name].value is None else found[name].value)


@app.command("set")
def set_(
    assignments: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="What to change.")],
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change settings of a topic, a group or a running broker."""
    _change(
        dict(parse_assignments(assignments)),
        topic=topic,
        group=group,
        broker=broker,
        bootstrap=bootstrap,
        properties=properties,
        output=output,
    )


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings to return to what they inherit.")],
    *,
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    properties: PropertyOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Return settings to what they inherit."""
    kind, resource = _resource(topic, group, broker)
    found = {each.name: each for each in configs(_cluster(bootstrap, properties, topic, broker).admin, kind, resource)}
    for name in names:
        if name not in found:  # a broker has nothing to remove then, and says that it did
            raise _no_such(name, kind, found)
    _change(
        dict.fromkeys(names),
        topic=topic,
        group=group,
        broker=broker,
        bootstrap=bootstrap,
        properties=properties,
        output=output,
    )


def _change(
    changes: dict[str, str | None],
    *,
    topic: str | None,
    group: str | None,
    broker: int | None,
    bootstrap: str,
    properties: list[str] | None,
    output: Output,
) -> None:
    kind, name = _resource(topic, group, broker)
    cluster = _cluster(bootstrap, properties, topic, broker)
    alter_configs(cluster, kind, name, changes)
    after = {each.name: each for each in configs(cluster.admin, kind, name) if each.name in changes}
    if output is Output.JSON:
        print_json({each.name: {"value": each.value, "source": each.source} for each in after.values()})
        return
    for each in after.values():
        print(f"{name}: {each.name} = {'(unset)' if each.value is None else each.value}  ({each.source})")


def alter_configs(cluster: Cluster, kind: str, name: str, changes: Mapping[str, str | None]) -> None:
    """Set each setting to its new value; None returns it to what it inherits."""
    api = admin_api()
    set_to, delete = api.AlterConfigOpType.SET, api.AlterConfigOpType.DELETE
    entries = [
        api.ConfigEntry(setting, value, incremental_operation=delete if value is None else set_to)
        for setting, value in changes.items()
    ]
    resource = api.ConfigResource(api.ConfigResource.Type[kind.upper()], name, incremental_configs=entries)
    result(cluster.admin.incremental_alter_configs([resource]))


def _cluster(bootstrap: str, properties: list[str] | None, topic: str | None, broker: int | None) -> Cluster:
    cluster = Cluster.dial(bootstrap, properties)
    if topic is not None:
        cluster.topics(topic)
    if broker is not None:
        there = cluster.topics().brokers  # the library would wait for one that is not there
        if broker not in there:
            raise Problem(f"there is no broker {broker}", f"those there are: {', '.join(map(str, sorted(there)))}")
    return cluster


def _resource(topic: str | None, group: str | None, broker: int | None) -> tuple[str, str]:
    named = {"topic": topic, "group": group, "broker": None if broker is None else str(broker)}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1 or not given[0][1]:
        raise typer.BadParameter("say whose setting it is, with one of --topic TOPIC, --group GROUP or --broker ID")
    return given[0]


def _no_such(name: str, kind: str, found: Mapping[str, Any]) -> Problem:
    from difflib import get_close_matches

    near = get_close_matches(name, found, n=1)
    hint = f"did you mean {near[0]}?" if near else f"`tidelog config list --{kind} …` shows those there are"
    return Problem(f"there is no {kind} setting {name}", hint)
