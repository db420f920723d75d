"""Takes the turns: starts what a row needs, lets the sides go one after the other, and writes every sample down."""

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.awake import awake
from bench.peers.processes import Bystanders
from bench.peers.rows.row import Row
from bench.peers.samples import Sample, Values, missing_turns
from bench.peers.servers.broker import Absent, Broker, Launcher
from bench.peers.store import Store
from bench.peers.turnstile import Turnstile

Report = Callable[[str], None]
TRIES = 3


class Run:
    def __init__(
        self,
        store: Store,
        launchers: dict[str, Launcher],
        *,
        rounds: int,
        quick: bool,
        directory: Path | None,
        lock: Path | None,
        calm: float = math.inf,
    ) -> None:
        self._store = store
        self._launchers = launchers
        self._rounds = rounds
        self._quick = quick
        self._calm = calm
        self._turnstile = Turnstile(lock)
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="bench-peers-", dir=directory))
        self._brokers: dict[str, Broker] = {}
        self._setting: object = None
        self._failed: dict[str, set[str]] = {}

    def turns(self, row: Row) -> list[tuple[int, str]]:
        sides = [side for side in row.sides if side in self._launchers]
        return missing_turns(self._store.row(row.name), sides, min(self._rounds, row.rounds_most))

    def take(self, row: Row, report: Report) -> None:
        """All turns of a row that are still missing. A side that fails is left out; the others are worth having."""
        turns = self.turns(row)
        cold = set(row.sides) if row.warm and row.measure is not None else set()
        for number in sorted({number for number, _ in turns}):
            with self._turnstile.one_round(report):
                for side in (side for turn, side in turns if turn == number):
                    if side in self._failed.setdefault(row.name, set()):
                        continue
                    try:
                        if side in cold:
                            report(f"{row.name}: {side} warms up")
                            self._measure(row, side)
                            cold.discard(side)
                        report(f"{row.name}: {side}, round {number + 1}")
                        self._note(row, side, number)
                    except Absent as error:
                        self._failed[row.name].add(side)
                        self._store.row(row.name).absent[side] = str(error)
                        self._store.save()
                    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                        self._failed[row.name].add(side)
                        report(f"{row.name}: {side} FAILED: {error}")

    def _note(self, row: Row, side: str, number: int) -> None:
        """Where others disturb too much it is tried again, and the calmest try counts: whatever figure that gave."""
        tries = [self._sample(row, side, number)]
        while tries[-1].other_cores > self._calm and len(tries) < TRIES:
            tries.append(self._sample(row, side, number))
        self._store.add(row.name, min(tries, key=lambda sample: sample.other_cores))

    def _sample(self, row: Row, side: str, number: int) -> Sample:
        self._broker_for(row, side)
        os.sync()  # what an earlier turn left to be written is not this one's burden
        load = os.getloadavg()[0]
        with awake() if row.awake else contextlib.nullcontext(()) as spinning:
            bystanders = Bystanders((*self._all_pids(), *spinning))
            values = self._measure(row, side)
            other_cores = bystanders.cores()
        return Sample(
            side=side,
            round=number,
            values=values,
            load=load,
            other_cores=round(other_cores, 3),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )

    def _all_pids(self) -> tuple[int, ...]:
        return tuple(pid for broker in self._brokers.values() for pid in broker.pids)

    def _measure(self, row: Row, side: str) -> Values:
        if row.measure is not None:
            broker = self._broker_for(row, side)
            assert broker is not None
            return row.measure(broker)
        assert row.from_start is not None
        home = Path(tempfile.mkdtemp(prefix=f"{side}-", dir=self._directory))
        try:
            return row.from_start(self._launchers[side], home, self._quick)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _broker_for(self, row: Row, side: str) -> Broker | None:
        """Kept as long as rows want the same; both sides are up together, so that no turn begins with a start."""
        setting = None if row.measure is None else (row.nodes, row.settings, row.settings_of)
        if setting != self._setting:
            self.stop_brokers()
            self._setting = setting
        if row.measure is None:
            return None
        if side not in self._brokers:
            home = Path(tempfile.mkdtemp(prefix=f"{side}-", dir=self._directory))
            self._brokers[side] = self._launchers[side].launch(
                home,
                nodes=row.nodes,
                quick=self._quick,
                settings={**row.settings, **row.settings_of.get(side, {})},
            )
        return self._brokers[side]

    def stop_brokers(self) -> None:
        for broker in self._brokers.values():
            broker.stop()
            shutil.rmtree(broker.work_dir, ignore_errors=True)
        self._brokers.clear()

    def close(self) -> None:
        self._turnstile.leave()
        self.stop_brokers()
        shutil.rmtree(self._directory, ignore_errors=True)


def fetch(launchers: Sequence[Launcher], store: Store, report: Report) -> dict[str, Launcher]:
    """The peers that can be had here; why another cannot is written down."""
    found = {}
    for launcher in launchers:
        report(f"fetches {launcher.side}")
        try:
            store.versions[launcher.side] = launcher.version()
            found[launcher.side] = launcher
        except Absent as error:
            store.versions[launcher.side] = f"not here: {error}"
    store.save()
    return found
