"""Moving replicas and watching them arrive. The cluster does the moving: who stops watching stops nothing."""

import sys
import time
from typing import Final, TextIO

from tidelog.cli.cluster.admin import Administration, Refusals
from tidelog.cli.cluster.moves import Plan
from tidelog.cli.output import count
from tidelog.cli.problems import Problem
from tidelog.ids import TopicPartition

AT_ONCE: Final = 50
"""Partitions that move at the same time: copying everything at once would slow down everybody."""
_LOOK_SECONDS: Final = 0.2
_TELL_SECONDS: Final = 5.0
_WIDTH: Final = 30


def carry_out(admin: Administration, plan: Plan, *, at_once: int = AT_ONCE, wait: bool = True) -> None:
    """Raises a Problem if something was refused; what was begun before that goes on."""
    left = sorted(plan.items())
    running: set[TopicPartition] = set()
    progress = Progress(len(plan), sys.stderr)
    try:
        while left or running:
            room = at_once - len(running) if wait else len(left)
            begun, left = dict(left[:room]), left[room:]
            if begun:
                _check(admin.reassign(begun))
                running |= begun.keys()
            if not wait:
                continue_without(begun)
                return
            running &= admin.moving().keys()
            progress.show(len(plan) - len(left) - len(running), sorted(running))
            if running:
                time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        progress.end()
        print("not watched any more; the cluster goes on moving what was begun", file=sys.stderr)
        print("  next: tidelog topic reassign TOPIC --cancel takes it back", file=sys.stderr)
        raise
    progress.end()


def continue_without(begun: Plan) -> None:
    print(f"{count(len(begun), 'partition')} being moved; `tidelog topic reassign` shows how far they are")


def _check(refused: Refusals) -> None:
    if refused:
        place, error = next(iter(refused.items()))
        more = f" ({len(refused)} in all)" if len(refused) > 1 else ""
        raise Problem(f"{place} cannot be moved{more}: {error}", "`tidelog cluster status` shows the brokers there are")


class Progress:
    """A bar on a terminal; into a file a line now and then."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._tell_at = time.monotonic() + _TELL_SECONDS

    def show(self, done: int, running: list[TopicPartition]) -> None:
        waiting = f"  waiting for {running[0]}" if running else ""
        if self._is_terminal:
            filled = _WIDTH * done // max(self._total, 1)
            shown = f"{'█' * filled}{'·' * (_WIDTH - filled)} {done}/{self._total} partitions{waiting}"
            print(f"\r\x1b[K{shown}", end="", file=self._stream, flush=True)
        elif time.monotonic() >= self._tell_at:
            self._tell_at += _TELL_SECONDS
            print(f"{done}/{self._total} partitions moved{waiting}", file=self._stream, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
