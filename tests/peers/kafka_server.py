"""A real Apache Kafka for tests: fetched once from Maven Central, one KRaft node on a port of its own.

    with KafkaServer() as kafka:
        AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    print(kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", "00000000000000000000.log"))

Needs `java` (17 or newer) and `mvn` on the PATH. As a program, `python -m tests.peers.kafka_server PORT` runs one until
Ctrl-C.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

VERSION = "4.3.1"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
READY_SECONDS = 60
_ARTIFACTS = (
    "org.apache.kafka:kafka_2.13:VERSION",
    "org.apache.kafka:kafka-tools:VERSION",
    "org.slf4j:slf4j-simple:1.7.36",  # a logger, so that a server that does not start says why
)
_HEAP = (
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)  # starts a third faster; throughput is not the point


def jars(version: str = VERSION) -> Path:
    """The directory with Kafka's jars and all they need, downloaded on first use."""
    return downloaded(CACHE / version, [artifact.replace("VERSION", version) for artifact in _ARTIFACTS])


def downloaded(directory: Path, artifacts: Iterable[str]) -> Path:
    """Artifacts of Maven Central (`group:name:version`) with all they need at run time, in this directory."""
    if (directory / "complete").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    (directory / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run([*copy, f"-DoutputDirectory={directory}"], cwd=directory, check=True, timeout=600)
    (directory / "complete").touch()
    return directory


def java_command(main_class: str, *args: str, version: str = VERSION) -> list[str]:
    directory = jars(version)
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", *_HEAP, logging, "-cp", f"{directory}/*", main_class, *args]


def kafka_tool(main_class: str, *args: str, version: str = VERSION, timeout: float = 60) -> str:
    """Run one of Kafka's command-line tools by its main class; returns what it printed. Raises if it fails.

    Both streams: DumpLogSegments exits with 0 and tells the mismatches it found on stderr.
    """
    command = java_command(main_class, *args, version=version)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{main_class} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class KafkaServer:
    """One node that is broker and controller. `settings` are added to its server.properties."""

    def __init__(self, port: int = 0, *, settings: dict[str, str] | None = None, version: str = VERSION) -> None:
        self.port = port or free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.directory = Path(tempfile.mkdtemp(prefix="kafka-peer-"))
        self.data_dir = self.directory / "data"
        self._version = version
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def _start(self) -> None:
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        cluster_id = "cGVlci1rYWZrYS1zZXJ2ZQ"
        kafka_tool(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties), "--standalone",
            version=self._version,
        )  # fmt: skip
        with (self.directory / "server.log").open("wb") as log:
            command = java_command("kafka.Kafka", str(properties), version=self._version)
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait_until_ready(time.monotonic() + READY_SECONDS)

    def _properties(self) -> dict[str, str]:
        controller_port = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }

    def _wait_until_ready(self, deadline: float) -> None:
        """A bound port is not enough: the broker answers metadata only once it is registered and unfenced."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        process = self._process
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}, logger=None)
        while time.monotonic() < deadline:
            if process is None or process.poll() is not None:
                raise RuntimeError(f"Kafka stopped while starting\n{self.log[-4000:]}")
            try:
                if admin.list_topics(timeout=2).brokers:
                    return
            except KafkaException:
                time.sleep(0.1)
        raise TimeoutError(f"Kafka was not ready in {READY_SECONDS} s\n{self.log[-4000:]}")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the Java process ends with this one
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with KafkaServer(port) as kafka:
        print(f"Apache Kafka {VERSION} on {kafka.bootstrap_servers}, pid {os.getpid()}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
