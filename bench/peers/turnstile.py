"""Taking turns with others who compute on this machine: a lock file, held for a while and given back between rounds."""

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

HOLD_SECONDS = 40.0


class Turnstile:
    """Without a path it is always open."""

    def __init__(self, path: Path | None, hold_s: float = HOLD_SECONDS) -> None:
        self._path = path
        self._hold_s = hold_s
        self._file: IO[str] | None = None
        self._since = self._rest_until = 0.0

    @contextlib.contextmanager
    def one_round(self, report: Callable[[str], None]) -> Iterator[None]:
        """A round is never cut: the lock goes back at the end of the first one that passes the time."""
        self._enter(report)
        try:
            yield
        finally:
            if time.monotonic() - self._since > self._hold_s:
                self.leave()

    def _enter(self, report: Callable[[str], None]) -> None:
        if self._path is None or self._file is not None:
            return
        report("waits for the machine")
        time.sleep(max(0.0, self._rest_until - time.monotonic()))
        file = self._path.open("a")
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file, self._since = file, time.monotonic()

    def leave(self) -> None:
        if self._file is None:
            return
        self._file.close()  # which unlocks it
        self._file = None
        # The lock has no queue: whoever takes it again at once starves those who wait.
        self._rest_until = time.monotonic() + 2 * (time.monotonic() - self._since)
