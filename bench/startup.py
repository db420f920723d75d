"""Start to first answer, on an empty directory and on one with a thousand partitions; memory after all the load."""

import signal
import tempfile
from pathlib import Path

from bench.results import Limits, Result
from bench.target import Target, free_port, start_broker


def measure(target: Target, _limits: Limits) -> list[Result]:
    if not target.ours:
        return []
    empty = min(_start(partitions=0, target=target) for _ in range(3))
    full = _start(partitions=1000, target=target)
    return [
        Result(name="start to first answer", value=empty, unit="s", target="< 0.5", ok=empty < 0.5),
        Result(name="start with 1,000 partitions", value=full, unit="s"),
    ]


def memory(target: Target, _limits: Limits) -> list[Result]:
    """To be asked last: resident memory once everything else has run through this broker."""
    if target.pid is None:
        return []
    rss = target.rss_mb()
    return [Result(name="resident memory after load", value=rss, unit="MB", target="< 80", ok=rss < 80)]


def _start(partitions: int, target: Target) -> float:
    with tempfile.TemporaryDirectory(dir=target.work_dir) as directory:
        data_dir, port = Path(directory) / "data", free_port()
        if partitions:
            process, _ = start_broker(data_dir, port)
            other = Target(
                host="127.0.0.1", port=port, pid=process.pid, ours=True, work_dir=target.work_dir, quick=True
            )
            other.make_topic("start", partitions=partitions)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        process, took = start_broker(data_dir, port)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return took
