"""Keeps the cores from going to sleep while latency is measured.

A virtual core that has nothing to do is handed back to its host, and waking it costs more than a request: what is
measured then is the hypervisor. Spinning processes of the lowest class there is (SCHED_IDLE) give way to everything at
once, and keep the core awake otherwise.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_SPIN = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile os.getppid() == {parent}: pass"


@contextlib.contextmanager
def awake() -> Iterator[tuple[int, ...]]:
    """One spinning process per core; yields their pids. They end with this process too."""
    command = [sys.executable, "-S", "-c", _SPIN.format(parent=os.getpid())]
    spinning = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield tuple(process.pid for process in spinning)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
