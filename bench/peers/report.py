"""Writes what was measured: the table and the charts, next to the JSON."""

from collections.abc import Sequence
from pathlib import Path

from bench.peers import charts, table
from bench.peers.rows.row import Row
from bench.peers.store import Store

BEGIN, END = "<!-- peers -->", "<!-- end of peers -->"


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
        table.unmeasured(rows, store.rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def publish(store: Store, rows: Sequence[Row], page: Path) -> list[Path]:
    """Puts the table between the marks of a page, and the charts beside it."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{markdown(store, rows)}\n{END}{after}")
    written = [page]
    for name, picture in charts.all_charts(rows, store.rows).items():
        path = page.with_name(f"peers-{name}.svg")
        path.write_text(picture)
        written.append(path)
    return written


def write(store: Store, rows: Sequence[Row], directory: Path, stem: str) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    written = [directory / f"{stem}.md"]
    written[0].write_text(markdown(store, rows))
    for name, picture in charts.all_charts(rows, store.rows).items():
        path = directory / f"{stem}-{name}.svg"
        path.write_text(picture)
        written.append(path)
    return written
