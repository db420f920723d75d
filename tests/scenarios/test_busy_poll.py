"""A broker whose loop stays awake between close requests (`busy.poll.max.us`): it rests when they end, and what needs
a thread comes through meanwhile."""

import os
import threading
import time
from pathlib import Path

import pytest
from tests.chaos.server import Server, produce

from tidelog.cli import run
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@pytest.mark.parametrize("longest_us", ["10000", "0"])
def test_it_rests_when_nobody_asks_and_threads_come_through(tmp_path: Path, longest_us: str) -> None:
    with Server(tmp_path, settings={"busy.poll.max.us": longest_us}) as server:
        at = ["-b", server.bootstrap]
        assert run(["topic", "create", "cached", "--config", "flush.on.ack=false", *at]) == 0
        assert run(["topic", "create", "synced", *at]) == 0
        quick, slow = (Connection("127.0.0.1", server.port, timeout=30) for _ in range(2))
        ended = threading.Event()

        def hurry() -> None:
            while not ended.is_set():
                produce(quick, "cached", b"x")

        hurrying = threading.Thread(target=hurry)
        hurrying.start()
        try:
            codes = {produce(slow, "synced", b"y").error_code for _ in range(50)}
        finally:
            ended.set()
            hurrying.join()
        assert codes == {ErrorCode.NONE}
        time.sleep(0.1)
        began, before = time.monotonic(), cpu_s(server.pid)
        time.sleep(1)
        used = (cpu_s(server.pid) - before) / (time.monotonic() - began)
        assert used < 0.25, f"of a core, though nobody asks anything: {used:.2f}"
