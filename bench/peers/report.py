"""Writes what was measured: the table and the charts, next to the JSON."""

from collections.abc import Sequence
from pathlib import Path

from bench.peers import charts, table
from bench.peers.rows.row import Row
from bench.peers.store import Store


def markdown(store: Store, rows: Sequence[Row]) -> str:
    machine = store.machine
    about = [
        f"{machine.get('cores')} cores, {machine.get('memory_gb')} GB, {machine.get('system')}.",
        *(f"{version}." for version in store.versions.values()),
        table.noise(store.rows.values()),
    ]
    parts = [
        " ".join(about),
        table.against_kafka(rows, store.rows),
        table.among_peers(rows, store.rows, store.versions),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(store: Store, rows: Sequence[Row], directory: Path, stem: str) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    written = [directory / f"{stem}.md"]
    written[0].write_text(markdown(store, rows))
    for name, picture in charts.all_charts(rows, store.rows).items():
        path = directory / f"{stem}-{name}.svg"
        path.write_text(picture)
        written.append(path)
    return written
