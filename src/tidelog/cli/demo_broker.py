"""The demo's brokers: those that are already there, or child processes that end with the demo."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.cli.cluster.start import Run, processes

SETTINGS: Final = {"min.insync.replicas": "2"}
"""Of more than one broker: what is acknowledged survives any one of them."""


class Brokers(NamedTuple):
    bootstrap: str
    started: int
    """How many were started here."""


@contextmanager
def brokers_at(port: int, data_dir: Path, nodes: int) -> Iterator[Brokers]:
    """Starts brokers unless somebody listens on the port. `tidelog cluster break` knows those that are started."""
    if _listening(port):
        yield Brokers(f"127.0.0.1:{port}", 0)
        return
    data_dir.mkdir(parents=True, exist_ok=True)
    cluster = processes(nodes, port, data_dir, SETTINGS if nodes > 1 else {}, namespaces=False)
    with Run(cluster, lambda line: None).while_in_use():
        yield Brokers(cluster.bootstrap_servers, nodes)


def _listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
