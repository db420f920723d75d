"""Pipelines as processes of their own, killed with SIGKILL: the driver with everything below it, or Python workers."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Producer

from .server import Server

KEYS = 40
CONF = [
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=1",
]
END_S = 600


class Input:
    """Records `key:number` in a topic of three partitions; the numbers of every key rise."""

    def __init__(self, server: Server, topic: str) -> None:
        self.topic, self.count = topic, 0
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "log_level": 0})

    def add(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            key = f"k{number % KEYS}"
            self._producer.produce(self.topic, f"{key}:{number}", key, partition=number % KEYS % 3)
        assert self._producer.flush(60) == 0
        self.count += count


class Pipeline:
    """`tidelog pipeline …`, started again and again. `--once`: a run that is not killed ends when it has caught up."""

    def __init__(self, arguments: Iterable[str], checkpoint: Path, state: Path) -> None:
        self._command = [sys.executable, "-m", "tidelog", "pipeline", *arguments, "--once", "--master", "local[2,4]"]
        self._command += [part for each in CONF for part in ("--conf", each)]
        self._checkpoint, self._state = checkpoint, state
        self._process: subprocess.Popen[str] | None = None
        self.driver_kills = self.worker_kills = 0

    def start(self, batch: int) -> None:
        """`batch` is the number of records that it takes at a time."""
        self._process = subprocess.Popen(
            [*self._command, "--batch-records", str(batch)],
            env=os.environ | {"XDG_STATE_HOME": str(self._state)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> None:
        assert self._process is not None
        _, says = self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0, says[-3000:]

    def kill_at_random(self, dice: random.Random, spread_s: float, *, workers: bool) -> bool:
        """Lets a run come to its first new batch, and a while on; False if it ended before."""
        assert self._process is not None
        if not self._wait_for_a_batch():
            return False
        time.sleep(dice.uniform(0, spread_s))
        if self._process.poll() is not None:
            return False
        if workers:
            self.worker_kills += self._kill_workers(dice)
            return True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self.driver_kills += 1
        return True

    def _wait_for_a_batch(self) -> bool:
        assert self._process is not None
        before = self._planned()
        deadline = time.monotonic() + END_S
        while self._planned() == before:
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "no batch was planned"
            time.sleep(0.02)
        return True

    def _planned(self) -> int:
        return len(list((self._checkpoint / "offsets").glob("[0-9]*")))

    def _kill_workers(self, dice: random.Random) -> int:
        """One of the processes in which tasks, planners and commits run. Spark tries again, or gives up and fails."""
        assert self._process is not None
        workers = [pid for pid in _session_of(self._process.pid) if b"pyspark" in _command(pid)]
        if not workers:
            return 0
        with suppress(ProcessLookupError):
            os.kill(dice.choice(workers), signal.SIGKILL)
        return 1

    def settle(self) -> None:
        """Waits for a run whose workers were killed: it may have ended well or failed, and either is right."""
        assert self._process is not None
        self._process.communicate(timeout=END_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def _session_of(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[3]) == leader:
                found.append(int(path.name))
    return found


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
