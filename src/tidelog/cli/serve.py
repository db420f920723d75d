"""`tidelog serve`: read the settings, run the broker, alone or as one of a cluster."""

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.problems import Problem
from tidelog.cli.serve_cluster import check_cluster, check_directory, check_voters, controller_listener
from tidelog.config import BrokerConfig, Listener, load, parse_assignments


def serve(
    *,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65_535, help="Port to listen on; 0 is any.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 is every interface.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", "-d", metavar="DIR", help="Where the log is kept (log.dirs).")
    ] = None,
    node_id: Annotated[int | None, typer.Option("--node-id", metavar="ID", help="This broker's id (node.id).")] = None,
    voters: Annotated[
        str | None,
        typer.Option(
            "--voters",
            metavar="ID@HOST:PORT,...",
            help="""Be one of a cluster: the brokers that keep its metadata, and where each listens for brokers. The
            same list for every broker (controller.quorum.voters).""",
        ),
    ] = None,
    controller_port: Annotated[
        int | None,
        typer.Option(
            "--controller-port",
            min=1,
            max=65_535,
            help="""Port to listen on for other brokers. A voter's is in the list of voters; a broker without a vote
            needs it (controller.listener).""",
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar="TIDELOG_CONFIG", metavar="FILE", help="A server.properties file."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any broker setting, by Kafka's name. Repeatable."),
    ] = None,
) -> None:
    """Start a broker, alone or with --voters as one of a cluster.

    Flags beat TIDELOG_* variables, which beat the file; `tidelog config list` explains settings.
    """
    config = broker_config(
        port=port,
        host=host,
        data_dir=data_dir,
        node_id=node_id,
        voters=voters,
        controller_port=controller_port,
        config_file=config_file,
        assignments=assignments or (),
        environment=os.environ,
    )
    check_cluster(config)
    check_directory(config)
    # Modules stay: while they are made, and ever after, the collector would look for garbage in them in vain.
    gc.disable()
    from tidelog.broker.main import run

    gc.freeze()
    gc.enable()
    raise typer.Exit(run(config))


def broker_config(
    *,
    port: int | None = None,
    host: str | None = None,
    data_dir: Path | None = None,
    node_id: int | None = None,
    voters: str | None = None,
    controller_port: int | None = None,
    config_file: Path | None = None,
    assignments: Sequence[str] = (),
    environment: Mapping[str, str],
) -> BrokerConfig:
    flags = parse_assignments(assignments)
    properties = _read(config_file)
    file_name = str(config_file) if config_file else ""
    if data_dir is not None:
        flags["log.dirs"] = str(data_dir)
    if node_id is not None:
        flags["node.id"] = str(node_id)
    if voters is not None:
        flags["controller.quorum.voters"] = check_voters(voters)
    if port is not None or host is not None:
        if "listeners" in flags:
            raise typer.BadParameter(
                "--port and --host say where to listen, and so does --set listeners: give only one"
            )
        # The half that was not given stays what the other sources say.
        weaker = load(flags=flags, environment=environment, properties=properties, properties_name=file_name)
        listener = weaker.listener_addresses[0]
        flags["listeners"] = str(
            Listener(listener.name, listener.host if host is None else host, listener.port if port is None else port)
        )
    if controller_port is not None:
        weaker = load(flags=flags, environment=environment, properties=properties, properties_name=file_name)
        said = controller_listener(weaker, controller_port)
        if said is not None:
            flags["controller.listener"] = said
    return load(flags=flags, environment=environment, properties=properties, properties_name=file_name)


def _read(config_file: Path | None) -> str:
    if config_file is None:
        return ""
    try:
        return config_file.read_text(encoding="utf-8")
    except UnicodeDecodeError as undecodable:
        raise Problem(f"{config_file} is not text: {undecodable.reason}", "is it the right file?") from None
