"""`tidelog cluster break` and `heal`: what may happen to a broker, on purpose. Only to brokers of a cluster that
`tidelog cluster start` runs on this machine."""

import os
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidelog.cli.cluster import state as cluster_state
from tidelog.cli.cluster.network import Namespaces
from tidelog.cli.cluster.processes import READY
from tidelog.cli.cluster.state import ClusterState
from tidelog.cli.problems import Problem

_START_SECONDS: Final = 10.0
_READY_SECONDS: Final = 60.0


class How(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    ISOLATE = "isolate"


def break_node(directory: Path, node: int, how: How) -> str:
    """What was done, in words."""
    state = cluster_state.running(directory)
    target = state.node(node)
    if not _runs(target.pid):
        raise Problem(f"node {node} is not running", f"`tidelog cluster heal {node}` starts it again")
    if how is How.ISOLATE:
        network = _network(state)
        network.isolate(node)
        return f"node {node} runs, and nothing it sends or is sent arrives"
    if how is How.PAUSE:
        os.kill(target.pid, signal.SIGSTOP)
        return f"node {node} stands still (SIGSTOP): connections to it stay open, and nobody answers"
    os.kill(target.pid, signal.SIGKILL)
    return f"node {node} is dead (SIGKILL): it flushed nothing and said nothing"


def _network(state: ClusterState) -> Namespaces:
    if state.namespaces is None:
        raise Problem(
            "these brokers share one network: none of them can be cut off from it alone",
            "start the cluster with --namespaces (Linux, as root), or use --how pause: the others see the same silence",
        )
    Namespaces.check()
    return Namespaces(state.namespaces, (each.id for each in state.nodes))


def heal_node(directory: Path, node: int) -> str:
    """Whatever is wrong with it. Returns when it serves again."""
    state = cluster_state.running(directory)
    target = state.node(node)
    done = []
    if state.namespaces is not None and (network := _network(state)).is_isolated(node):
        network.rejoin(node)
        done.append("is reachable again")
    if not _runs(target.pid):
        if not cluster_state.wish_for(directory, node, _START_SECONDS):
            raise Problem(f"node {node} was not started again", "is the `tidelog cluster start` that runs it paused?")
        _wait_ready(directory, node)
        done.append("was started again and is ready")
    elif cluster_state.is_paused(target.pid):
        os.kill(target.pid, signal.SIGCONT)
        done.append("goes on")
    return f"node {node} {' and '.join(done) or 'needed nothing'}"


def _runs(pid: int) -> bool:
    return cluster_state.is_alive(pid, "serve")


def _wait_ready(directory: Path, node: int) -> None:
    log = directory / f"node-{node}" / "log.txt"
    deadline = time.monotonic() + _READY_SECONDS
    while READY not in log.read_text(errors="replace"):
        state = cluster_state.running(directory)
        if time.monotonic() > deadline or not _runs(state.node(node).pid):
            raise Problem(f"node {node} did not get ready", f"what it said is in {log}")
        time.sleep(0.05)
