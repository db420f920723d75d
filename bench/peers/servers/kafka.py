"""Apache Kafka in KRaft mode, with the heap and collector that its start script chooses and its defaults otherwise."""

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.peers.kafka_server import VERSION, jars

from bench.peers.servers.broker import HOST, Broker, Node, free_ports
from bench.peers.servers.kafka_protocol import wait_ready

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh pass to Java.
JAVA_OPTIONS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
_CLUSTER_ID = base64.urlsafe_b64encode(uuid.UUID(int=7).bytes).decode().rstrip("=")


class Kafka:
    side = "kafka"

    def version(self) -> str:
        jars()
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
        return f"Apache Kafka {VERSION}, {java.stderr.splitlines()[0]}"

    def prepare(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        """Formatted and ready to start."""
        ports, controller_ports = free_ports(nodes), free_ports(nodes)
        directory_ids = [base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in ports]
        voters = ",".join(
            f"{number + 1}@{HOST}:{port}:{directory_ids[number]}" for number, port in enumerate(controller_ports)
        )
        made = []
        for number, port in enumerate(ports):
            home = directory / f"kafka-{number + 1}"
            home.mkdir(parents=True, exist_ok=True)
            properties = home / "server.properties"
            lines = _properties(number + 1, port, controller_ports, home / "data", {**settings})
            properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), "-I", voters)
            command = ["java", *JAVA_OPTIONS, "-cp", f"{jars()}/*", "kafka.Kafka", str(properties)]
            made.append(Node(command=command, log=home / "server.log", data_dir=home / "data", port=port))
        return Broker(side=self.side, nodes=made, work_dir=directory, quick=quick, synced={"flush.messages": "1"})

    def launch(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        broker = self.prepare(directory, nodes=nodes, quick=quick, settings=settings)
        for node in broker.nodes:
            node.start()
        wait_ready(broker.nodes)
        return broker


def _properties(
    node: int, port: int, controller_ports: list[int], data_dir: Path, settings: Mapping[str, str]
) -> dict[str, str]:
    copies = str(min(3, len(controller_ports)))
    isr = str(min(2, len(controller_ports)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_ports[node - 1]}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{each}" for each in controller_ports),
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": isr,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": isr,
        "group.initial.rebalance.delay.ms": "0",
        # Deleted topics give their disk back at once, as ours do: one row's dirty pages are not the next one's load.
        "log.segment.delete.delay.ms": "1000",
        **settings,
    }


def _java(main_class: str, *arguments: str) -> None:
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{main_class} exited {done.returncode}\n{done.stdout}{done.stderr}")
