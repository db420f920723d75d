"""The demo's broker: one that is already there, or a child process that ends with the demo."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from tidelog.cli.problems import Problem

_READY_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 15.0


@contextmanager
def broker_at(port: int, data_dir: Path) -> Iterator[tuple[str, bool]]:
    """Yields the address and whether this started the broker there."""
    bootstrap = f"127.0.0.1:{port}"
    if listening(port):
        yield bootstrap, False
        return
    command = [sys.executable, "-m", "tidelog", "serve", "--port", str(port), "--data-dir", str(data_dir)]
    with TemporaryFile() as log:
        # A session of its own: Ctrl-C is for the demo, which stops the broker only once the last record has arrived.
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            _wait(process, port, log)
            yield bootstrap, True
        finally:
            _stop(process)


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not listening(port):
        if process.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            said = log.read().decode(errors="replace").strip() or f"it exited with {process.poll()}"
            raise Problem(f"the broker did not start: {said}")
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
