"""What can be wrong with a broker that should join a cluster, told before it starts. Nothing here needs a network."""

from pathlib import Path
from typing import Final

from tidelog.cli.problems import Problem
from tidelog.config import BrokerConfig, Listener
from tidelog.config.listeners import parse_voters
from tidelog.storage.checkpoints import META_PROPERTIES, decode_properties

EXAMPLE: Final = "1@127.0.0.1:9192,2@127.0.0.1:9292,3@127.0.0.1:9392"
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})


def check_voters(text: str) -> str:
    """The list as it should be in the setting. Says which of them is wrong, and how."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise Problem("--voters is empty", f"name every voter as id@host:port, such as {EXAMPLE}")
    seen: dict[int, tuple[str, int]] = {}
    for part in parts:
        try:
            ((node, address),) = parse_voters((part,)).items()
        except ValueError:
            raise Problem(
                f"--voters: {part} is not id@host:port", f"name every voter as id@host:port, such as {EXAMPLE}"
            ) from None
        if node in seen:
            raise Problem(f"--voters names node {node} twice", "every voter has an id of its own")
        if address in seen.values():
            raise Problem(f"--voters gives {address[0]}:{address[1]} to two nodes", "every voter has its own address")
        seen[node] = address
    return ",".join(parts)


def controller_listener(config: BrokerConfig, port: int) -> str | None:
    """What --controller-port adds to the settings; None if the list of voters says it already."""
    if config.controller_quorum_voters is None:
        raise Problem(
            "--controller-port is for a broker in a cluster, and --voters does not say which",
            f"name the cluster's voters, the same for every broker, such as --voters {EXAMPLE}",
        )
    named = config.voters.get(config.node_id)
    if named is None:
        host = config.listener_addresses[0].host
        return f"{'127.0.0.1' if host == 'localhost' else host}:{port}"
    if named[1] != port:
        raise Problem(
            f"the voters say that node {config.node_id} listens for brokers on port {named[1]}, "
            f"and --controller-port says {port}",
            "the others look for it where the voters say: leave out --controller-port, or correct both",
        )
    return None


def check_cluster(config: BrokerConfig) -> None:
    """Raises a Problem for settings that cannot work in a cluster."""
    if config.controller_quorum_voters is None:
        return
    voters = config.voters
    known = ", ".join(map(str, sorted(voters)))
    if "node.id" not in config.given:
        raise Problem("a broker in a cluster needs an id", f"say which it is with --node-id; the voters are {known}")
    if config.node_id not in voters and config.controller_listener is None:
        raise Problem(
            f"node {config.node_id} is not among the voters {known}",
            "is --node-id right? A broker without a vote says where it listens for brokers: --controller-port PORT",
        )
    address = config.controller_address
    assert address is not None
    for listener in config.listener_addresses:
        if listener.port == address[1] and _same_host(listener, address[0]):
            raise Problem(
                f"port {listener.port} is given twice: for clients and for brokers",
                "give clients another one with --port",
            )


def _same_host(listener: Listener, host: str) -> bool:
    names = {listener.host, host}
    return len(names) == 1 or bool(names & _EVERYWHERE) or names <= {"localhost", "127.0.0.1", "::1"}


def check_directory(config: BrokerConfig) -> None:
    """Raises a Problem if the directory is another broker's or another cluster's: two histories would be mixed."""
    directory = Path(config.log_dirs[0])
    try:
        found = decode_properties((directory / META_PROPERTIES).read_bytes())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise Problem(f"{directory} is not a directory", "give --data-dir a directory, or a new name") from None
    node, cluster = found.get("node.id"), found.get("cluster.id")
    if node is not None and node != str(config.node_id):
        raise Problem(
            f"{directory} is the directory of node {node}, and this is node {config.node_id}",
            f"give every node its own --data-dir, or start it with --node-id {node}",
        )
    if cluster is not None and config.cluster_id and cluster != config.cluster_id:
        raise Problem(
            f"{directory} belongs to cluster {cluster}, and cluster.id is {config.cluster_id}",
            "use the directory of that cluster, or an empty one; what is in this one stays as it is",
        )
