"""A running broker, or three, as the rows see it: an address, processes, directories, topics."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka.admin
from confluent_kafka import TopicPartition

from bench.peers import processes

STOP_SECONDS = 30
HOST = "127.0.0.1"
ADMIN: Any = confluent_kafka.admin  # it does not tell mypy which of its names are public


AT_ONCE = 5_000
"""Partitions that one request asks for: Kafka refuses 10,000."""


@dataclass(slots=True, kw_only=True)
class Node:
    """One process. `command` starts it again on the same data."""

    command: list[str]
    log: Path
    data_dir: Path
    port: int
    environment: dict[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the run, which then stops its servers in order
                env=self.environment,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # helpers that outlived it
            os.killpg(process.pid, signal.SIGKILL)
        self.process = None


@dataclass(slots=True, kw_only=True)
class Broker:
    side: str
    nodes: list[Node]
    work_dir: Path
    quick: bool
    # The topic's settings for "acknowledged means on disk" and for "acknowledged means in the page cache".
    synced: Mapping[str, str] = field(default_factory=dict)
    cached: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        return self.nodes[0].port

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self.nodes if node.process is not None)

    def scaled(self, count: int) -> int:
        return max(count // 10, 1) if self.quick else count

    def cpu_s(self) -> float:
        return processes.cpu_s(self.pids)

    def rss_mb(self) -> float:
        return processes.rss_mb(self.pids)

    def disk_bytes(self) -> int:
        return processes.disk_bytes(*(node.data_dir for node in self.nodes))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        for node in self.nodes:  # all are told before one is waited for: the last of three has no quorum to wait for
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(how)
        for node in self.nodes:
            node.end(how)

    # -- topics of brokers that speak Kafka's protocol ----------------------------------------------------------------

    def admin(self) -> Any:
        return ADMIN.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, synced: bool = False
    ) -> str:
        topic = f"{name}-{time.time_ns() // 1000 % 10**9}"
        settings = {**(self.synced if synced else self.cached), **(config or {})}
        admin = self.admin()  # held in a name: its requests end with it
        new = ADMIN.NewTopic(topic, min(partitions, AT_ONCE), len(self.nodes), config=settings)
        admin.create_topics([new], operation_timeout=120, request_timeout=120)[topic].result(150)
        if partitions > AT_ONCE:
            self.wait_for_leaders(topic, AT_ONCE)
            more = ADMIN.NewPartitions(topic, partitions)
            admin.create_partitions([more], operation_timeout=120, request_timeout=120)[topic].result(150)
        self.wait_for_leaders(topic, partitions)
        return topic

    def wait_for_leaders(self, topic: str, partitions: int, timeout_s: float = 120) -> None:
        """Apache Kafka answers before its brokers lead the topic; raw load does not read the errors it would get."""
        admin = self.admin()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            known = admin.list_topics(timeout=30).topics
            if topic in known and len(known[topic].partitions) == partitions:
                latest = {TopicPartition(topic, p): ADMIN.OffsetSpec.latest() for p in range(partitions)}
                if all(answer.exception(60) is None for answer in admin.list_offsets(latest).values()):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{topic} has no leaders after {timeout_s:g} s")

    def leader_port(self, topic: str, partition: int = 0) -> int:
        known = self.admin().list_topics(topic, timeout=30)
        port: int = known.brokers[known.topics[topic].partitions[partition].leader].port
        return port

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=120, request_timeout=120)[topic].result(150)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        admin = self.admin()
        where = TopicPartition(topic, partition)
        offset: int = admin.list_offsets({where: ADMIN.OffsetSpec.latest()})[where].result(60).offset
        return offset

    def check_end(self, topic: str, expected: int, partitions: int = 1) -> None:
        """Raw load does not read its answers: what is in the log says whether they were acknowledgements."""
        got = sum(self.end_offset(topic, partition) for partition in range(partitions))
        if got != expected:
            raise RuntimeError(f"{self.side}: {topic} ends at {got}, {expected} were sent")


class Launcher(Protocol):
    """Knows how one peer is fetched and started."""

    @property
    def side(self) -> str: ...

    def version(self) -> str:
        """Fetches the peer where it is missing. Raises Absent where it cannot be had."""
        ...

    def prepare(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        """All that comes before the start."""
        ...

    def launch(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        """Started and ready."""
        ...


class Absent(RuntimeError):
    """This peer, or what a row needs of it, does not exist here; the message goes into the results."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def wait_until(ready: Callable[[], bool], nodes: Sequence[Node], timeout_s: float = 90, pause_s: float = 0.005) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if ready():
            return
        for node in nodes:
            if node.process is None or node.process.poll() is not None:
                raise RuntimeError(f"{node.command[0]} stopped while starting: {last_words(node)}")
        time.sleep(pause_s)
    raise TimeoutError(f"not ready after {timeout_s:g} s: {last_words(nodes[0])}")


def last_words(node: Node) -> str:
    return node.log.read_text(errors="replace")[-1500:] if node.log.exists() else ""
