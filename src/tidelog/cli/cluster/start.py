"""`tidelog cluster start`: brokers in processes, watched until Ctrl-C; one line for everything that happens to them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

from tidelog.cli.cluster import state as cluster_state
from tidelog.cli.cluster.admin import Administration
from tidelog.cli.cluster.commands import HERE
from tidelog.cli.cluster.network import Namespaces
from tidelog.cli.cluster.picture import Picture, news
from tidelog.cli.cluster.ports import taken
from tidelog.cli.cluster.processes import Processes
from tidelog.cli.cluster.state import ClusterState, NodeState
from tidelog.cli.problems import Problem
from tidelog.errors import KafkaError

CONTROLLER_PORTS: Final = 100
"""From a broker's port for clients to its port for brokers: 9092 and 9192."""
_LOOK_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 1.0
_SIGHT_SECONDS: Final = 10.0


def processes(nodes: int, port: int, data_dir: Path, settings: dict[str, str], *, namespaces: bool) -> Processes:
    """Ready to be started. Raises a Problem if the ports or the directory are in use."""
    numbers = range(1, nodes + 1)
    state = cluster_state.read(data_dir)
    if state is not None and cluster_state.is_alive(state.pid, *cluster_state.RUNNERS) and state.pid != os.getpid():
        raise Problem(f"a cluster runs in {data_dir} already", "Ctrl-C stops it; --data-dir names another place")
    there = [path for path in data_dir.glob("node-*/data") if path.is_dir()]
    if there and len(there) != nodes:
        raise Problem(
            f"{data_dir} holds a cluster of {len(there)} nodes, not of {nodes}",
            f"start it with --nodes {len(there)}, or a new one with another --data-dir",
        )
    network = None
    if namespaces:
        Namespaces.check()
        network = Namespaces(str(data_dir.resolve()), numbers)
        ports = dict.fromkeys(numbers, port)
    else:
        ports = {node: port + node - 1 for node in numbers}
    controllers = {node: each + CONTROLLER_PORTS for node, each in ports.items()}
    if network is None and (busy := taken([*ports.values(), *controllers.values()])):
        raise Problem(f"port {busy[0]} is in use", "name other ports with --port, the first of them")
    return Processes(ports, controllers, settings, data_dir, network)


class Run:
    """From the first process to the last."""

    def __init__(self, cluster: Processes, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say
        self._stop = False
        self._ended: set[int] = set()
        self._paused: set[int] = set()
        self._starting: set[int] = set()
        self._seen: Picture | None = None

    def until_stopped(self) -> None:
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        network = self._cluster.network
        try:
            if isinstance(network, Namespaces):
                network.create()
            began = time.monotonic()
            self._start()
            self._see_all_of_them()
            if not self._stop:
                self._announce(time.monotonic() - began)
            self._watch()
        finally:
            self._end()
            if isinstance(network, Namespaces):
                network.remove()
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextmanager
    def while_in_use(self) -> Iterator[None]:
        """Start it, and stop it in the end; a thread does meanwhile what `tidelog cluster heal` wishes."""
        watch = threading.Thread(target=self._watch, name="cluster-watch", daemon=True)
        try:
            self._start()
            watch.start()
            yield
        finally:
            self._stop = True
            if watch.is_alive():
                watch.join()
            self._end()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop = True

    def _start(self) -> None:
        for node in self._cluster.nodes:
            self._cluster.start_node(node)
        self._remember()
        waiting = set(self._cluster.nodes)
        while waiting and not self._stop:
            for node in sorted(waiting):
                if self._cluster.is_ready(node):
                    waiting.discard(node)
                elif not self._cluster.is_running(node):
                    raise Problem(
                        f"node {node} did not start: {last_words(self._cluster.log_of(node))}",
                        f"all it said is in {self._cluster.directory_of(node) / 'log.txt'}",
                    )
            time.sleep(0.01)

    def _see_all_of_them(self) -> None:
        """Before they are called ready: a node lost right afterwards is missed only by those who saw it once."""
        patience = time.monotonic() + _SIGHT_SECONDS
        while not self._stop and time.monotonic() < patience:
            self._watch_cluster()
            if self._seen is not None and not set(self._cluster.nodes) & set(self._seen.absent):
                return
            time.sleep(0.01)

    def _announce(self, seconds: float) -> None:
        cluster = self._cluster
        told = "1 broker is" if len(cluster.nodes) == 1 else f"{len(cluster.nodes)} brokers are"
        self._say(f"{told} ready after {seconds:.1f} s: {cluster.bootstrap_servers}")
        where = "" if cluster.data_dir == HERE else f" -d {cluster.data_dir}"
        print(
            f"\n"
            f"  look:  tidelog cluster status -b {cluster.address_of(cluster.nodes[0])}\n"
            f"  break: tidelog cluster break {cluster.nodes[-1]} --how kill{where}\n"
            f"  heal:  tidelog cluster heal {cluster.nodes[-1]}{where}\n"
            f"  stop:  Ctrl-C; the data stays in {cluster.data_dir}\n",
            flush=True,
        )

    def _remember(self) -> None:
        cluster = self._cluster
        network = cluster.network
        nodes = tuple(
            NodeState(
                id=node,
                pid=cluster.pid_of(node),
                port=cluster.ports[node],
                controller_port=cluster.controller_ports[node],
                address=cluster.address_of(node),
            )
            for node in cluster.nodes
        )
        state = ClusterState(
            pid=os.getpid(),
            bootstrap=cluster.bootstrap_servers,
            nodes=nodes,
            namespaces=network.tag if isinstance(network, Namespaces) else None,
        )
        cluster_state.write(cluster.data_dir, state)

    # -- watching -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop:
            for node in self._cluster.nodes:
                self._watch_process(node)
            self._watch_cluster()
            time.sleep(_LOOK_SECONDS)

    def _watch_process(self, node: int) -> None:
        cluster = self._cluster
        wish = cluster.directory_of(node) / cluster_state.WISH
        if not cluster.is_running(node):
            if node not in self._ended:
                self._ended.add(node)
                self._starting.discard(node)
                self._say(f"node {node}: its process has ended, {how_it_ended(cluster.exit_code(node))}")
            if wish.exists():
                cluster.start_node(node)
                self._ended.discard(node)
                self._starting.add(node)
                self._remember()
                wish.unlink(missing_ok=True)
                self._say(f"node {node}: starts again")
            return
        wish.unlink(missing_ok=True)
        if node in self._starting and cluster.is_ready(node):
            self._starting.discard(node)
            self._say(f"node {node}: ready")
        paused = cluster_state.is_paused(cluster.pid_of(node))
        if paused != (node in self._paused):
            self._paused ^= {node}
            self._say(f"node {node}: {'is paused' if paused else 'goes on'}")

    def _watch_cluster(self) -> None:
        """As a client sees it: asked of a node that can answer, for a paused one would keep us waiting."""
        network = self._cluster.network
        asked = [
            node
            for node in self._cluster.nodes
            if node not in self._ended | self._paused | self._starting
            and not (isinstance(network, Namespaces) and network.is_isolated(node))
        ]
        if not asked:
            return
        # A new connection every time: the node that was asked before may have died since.
        admin = Administration.at(self._cluster.address_of(asked[0]), timeout_s=_ANSWER_SECONDS)
        try:
            seen = admin.look_once()
        except (OSError, KafkaError):
            return
        finally:
            admin.close()
        for line in news(self._seen, seen) if self._seen is not None else ():
            self._say(line)
        self._seen = seen

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if any(self._cluster.is_running(node) for node in self._cluster.nodes):
            self._say("stopping ...")
        killed = self._cluster.stop_all()
        (self._cluster.data_dir / cluster_state.FILE).unlink(missing_ok=True)
        for node in killed:
            self._say(f"node {node}: did not stop in time and was killed")


def how_it_ended(code: int | None) -> str:
    if code is None:
        return "somehow"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "stopped cleanly" if code == 0 else f"with exit code {code}"


def last_words(said: str) -> str:
    """What is wrong, and not what to do next about it, which is said after it."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("  next: ")]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"


def say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S}  {text}", flush=True)
