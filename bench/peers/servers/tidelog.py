"""Our own broker, started as a user does: `tidelog serve`, its defaults but for what a row states."""

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from bench.peers.servers.broker import HOST, Broker, Node, free_ports
from bench.peers.servers.kafka_protocol import wait_ready
from bench.target import compile_package


class Tidelog:
    side = "tidelog"

    def version(self) -> str:
        compile_package()
        return f"Tidelog {version('tidelog')} ({_commit()}), Python {sys.version.split()[0]}"

    def prepare(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        """Ready to start."""
        ports, peer_ports = free_ports(nodes), free_ports(nodes)
        voters = ",".join(f"{number + 1}@{HOST}:{port}" for number, port in enumerate(peer_ports))
        made = []
        for number, port in enumerate(ports):
            home = directory / f"tidelog-{number + 1}"
            home.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "tidelog", "serve", "--port", str(port), "--data-dir", str(home / "data")]
            if nodes > 1:
                command += ["--node-id", str(number + 1), "--voters", voters]
            for name, value in settings.items():
                command += ["--set", f"{name}={value}"]
            made.append(Node(command=command, log=home / "server.log", data_dir=home / "data", port=port))
        return Broker(
            side=self.side,
            nodes=made,
            work_dir=directory,
            quick=quick,
            synced={"flush.on.ack": "true"},
            cached={"flush.on.ack": "false"},
        )

    def launch(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        broker = self.prepare(directory, nodes=nodes, quick=quick, settings=settings)
        for node in broker.nodes:
            node.start()
        wait_ready(broker.nodes)
        return broker


def _commit() -> str:
    """What is measured is the working tree: a figure without this cannot be repeated."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"
