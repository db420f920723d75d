"""`tidelog serve` as a process of its own, so that it can be killed, traced and measured."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidelog.cli.cluster.ports import hold_ports
from tidelog.client.connection import Connection
from tidelog.wire.messages.data import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record

READY_S = 30


class Server:
    """`prefix` is put before the command: a tracer that injects faults. `with` ends in a SIGKILL, never in a wait."""

    def __init__(
        self, data_dir: Path, *, prefix: Sequence[str] = (), settings: Mapping[str, str] | None = None, port: int = 0
    ) -> None:
        self.data_dir = data_dir
        self._held = [] if port else hold_ports(1)
        self.port = port or self._held[0].port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._prefix = prefix
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, prefix: Sequence[str] | None = None) -> Self:
        self._process = self._launch(self._prefix if prefix is None else prefix)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "the broker ended while starting"
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return self
            except OSError:
                time.sleep(0.01)
        raise AssertionError("the broker did not start")

    def start_and_kill_after(self, seconds: float) -> None:
        """A start that is cut off wherever it happens to be by then."""
        self._process = self._launch(self._prefix)
        time.sleep(seconds)
        self.kill()

    def _launch(self, prefix: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [*prefix, sys.executable, "-m", "tidelog", "serve"]
        command += ["--port", str(self.port), "--data-dir", str(self.data_dir)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """A clean shutdown; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        for each in self._held:
            each.close()

    def connect(self, timeout: float = 10) -> Connection:
        return Connection("127.0.0.1", self.port, timeout)


def produce(connection: Connection, topic: str, value: bytes, acks: int = -1) -> Any:
    """One record to partition 0; the partition's part of the answer, whose `error_code` and `base_offset` matter."""
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, value, ())])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    topics = (TopicProduceData(name=topic, partition_data=(partition,)),)
    answer = connection.call(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics), version=9)
    return answer.responses[0].partition_responses[0]
