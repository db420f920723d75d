"""Which pipelines run on this machine, and how they are doing: a small file each, written by the pipeline itself.

The files lie in `$XDG_STATE_HOME/tidelog/pipelines`, by default `~/.local/state/tidelog/pipelines`. A file whose
process is gone is the memory of how that run ended.
"""

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.spark.pipelines.running import Progress

RUNNING, ENDED, FAILED, STOPPED, KILLED = "running", "ended", "failed", "stopped", "killed"
_NAME_MAX: Final = 100


def state_dir() -> Path:
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "tidelog"


class AlreadyRuns(Exception):
    """A pipeline of this name is running."""


@dataclass(slots=True)
class Entry:
    name: str
    kind: str
    topics: list[str]
    to: str
    pid: int
    started: float
    state: str = RUNNING
    progress: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def alive(self) -> bool:
        return self.state == RUNNING and _is_pipeline(self.pid)

    @property
    def shown_state(self) -> str:
        """A run that says it runs, but whose process is gone, was killed."""
        return KILLED if self.state == RUNNING and not self.alive else self.state


class Registration:
    """A running pipeline's own entry. `with` notes how it ends."""

    def __init__(self, name: str, kind: str, topics: list[str], to: str) -> None:
        known = find(name)
        if known is not None and known.alive and known.pid != os.getpid():
            raise AlreadyRuns(f"pipeline {name} runs already, as process {known.pid}; stop it first, or use --name")
        self.entry = Entry(name, kind, topics, to, os.getpid(), time.time())
        self._write()

    def progress(self, progress: "Progress") -> None:
        self.entry.progress = asdict(progress)
        self._write()

    def ended(self, state: str, error: str | None = None) -> None:
        self.entry.state, self.entry.error = state, error
        self._write()

    def _write(self) -> None:
        path = _path(self.entry.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({name: getattr(self.entry, name) for name in Entry.__slots__}))
        draft.rename(path)


def entries() -> list[Entry]:
    found = []
    for path in sorted((state_dir() / "pipelines").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Entry(**json.loads(path.read_text())))
    return found


def find(name: str) -> Entry | None:
    return next((entry for entry in entries() if entry.name == name), None)


def ask_to_stop(entry: Entry, wait_s: float) -> bool:
    """Whether it has ended in time."""
    if entry.alive:
        os.kill(entry.pid, signal.SIGTERM)
    deadline = time.monotonic() + wait_s
    while entry.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    return not entry.alive


def safe_name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in text)[:_NAME_MAX]


def _path(name: str) -> Path:
    return state_dir() / "pipelines" / f"{safe_name(name)}.json"


def _is_pipeline(pid: int) -> bool:
    """Numbers of processes are used again: the process must also look like a pipeline, where that can be seen."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return True
        return False
    except OSError:
        return False
    return b"pipeline" in command
