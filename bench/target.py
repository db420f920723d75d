"""The broker that is measured: one we start, or a given address; and its CPU and memory as the kernel counts them."""

import compileall
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

import tidelog

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    host: str
    port: int
    pid: int | None  # None: CPU and memory cannot be seen
    ours: bool
    work_dir: Path
    quick: bool

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def scaled(self, count: int) -> int:
        return max(count // 5, 1) if self.quick else count

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid) if self.pid else float("nan")

    def rss_mb(self) -> float:
        if self.pid is None:
            return float("nan")
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    def make_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str | None:
        """Creates a topic; None when this broker does not know one of the settings."""
        topic = f"bench-{name}-{time.time_ns() // 1000 % 10**9}"
        admin = self._admin()
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        try:
            admin.create_topics([new])[topic].result(60)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_CONFIG:
                return None
            raise
        _wait_for_leaders(admin, topic, partitions)
        return topic

    def delete_topic(self, topic: str) -> None:
        """Gives the disk back before the next measurement."""
        admin = self._admin()  # held in a name: its requests end with it
        admin.delete_topics([topic])[topic].result(60)


def _wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Apache Kafka answers before its brokers lead the topic; raw load would run into errors that it does not read."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=30).topics
        if topic in known and len(known[topic].partitions) == partitions:
            latest = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
            if all(answer.exception(60) is None for answer in admin.list_offsets(latest).values()):
                return
        time.sleep(0.05)
    raise RuntimeError(f"{topic} has no leaders after 60 s")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


def compile_package() -> None:
    """As `pip install` does: start-up is measured on compiled modules, also where Python is told not to write them."""
    compileall.compile_dir(str(Path(tidelog.__file__).parent), quiet=2)


def start_broker(data_dir: Path, port: int) -> tuple[subprocess.Popen[bytes], float]:
    """Starts `tidelog serve` and returns it with the seconds until it answered its first request."""
    command = [sys.executable, "-m", "tidelog", "serve", "--port", str(port), "--data-dir", str(data_dir)]
    log = (data_dir.parent / "broker.log").open("ab")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    while time.perf_counter() - began < 30:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended at once: see {log.name}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS)
                if connection.recv(4):
                    return process, time.perf_counter() - began
        except ConnectionRefusedError:
            time.sleep(0.002)
    process.kill()
    raise RuntimeError("the broker did not answer within 30 s")
