"""Keeps the cores from going to sleep while latency is measured.

A virtual core that has nothing to do is handed back to its host, and waking it costs more than a request: what is
measured then is the hypervisor. Spinning processes of the lowest class there is (SCHED_IDLE) give way to everything at
once, and keep the core awake otherwise.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator

from bench.peers.clients import program


@contextlib.contextmanager
def awake() -> Iterator[tuple[int, ...]]:
    """One spinning process per core; yields their pids. They end with this process too."""
    spinning = [subprocess.Popen([program("awake")]) for _ in range(os.cpu_count() or 1)]
    try:
        yield tuple(process.pid for process in spinning)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
