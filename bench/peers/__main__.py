"""`python -m bench.peers [--quick] [--only ROW] [--rounds N]`: runs the rows that `peers.json` lacks, then reports."""

import argparse
import fnmatch
import math
import signal
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.peers import report
from bench.peers.rows import ROWS
from bench.peers.rows.row import Row
from bench.peers.run import Run, fetch
from bench.peers.servers import LAUNCHERS
from bench.peers.store import Store

_RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    options = _options()
    console = Console() if Console().is_terminal else Console(width=200)
    store = Store(options.results / ("peers-quick.json" if options.quick else "peers.json"))
    rows = [row for row in ROWS if not options.only or any(fnmatch.fnmatch(row.name, glob) for glob in options.only)]
    if options.list:
        for row in rows:
            console.print(f"{row.name:32} {row.title}")
        return 0
    if options.again:
        for row in rows:
            store.forget(row.name)
    if options.calm is not None:
        store.drop_noisy(options.calm)
    if not options.report:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that servers end with this process
        _measure(console, store, rows, options)
    for path in report.write(store, ROWS, options.results, store.path.stem):
        console.print(f"[dim]{path}[/dim]")
    if options.publish:
        for path in report.publish(store, ROWS, options.publish):
            console.print(f"[dim]{path}[/dim]")
    console.print(report.markdown(store, rows), markup=False)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, kept apart: a smoke test, no figure")
    parser.add_argument("--only", action="append", metavar="ROW", help="a row's name or a pattern; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (5)")
    parser.add_argument("--again", action="store_true", help="forget what was measured of these rows")
    parser.add_argument("--calm", type=float, metavar="CORES", help="take turns again in which others took more")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--report", action="store_true", help="table and charts of what was measured; run nothing")
    parser.add_argument("--publish", type=Path, metavar="PAGE", help="put the table between the marks of this page")
    parser.add_argument("--dir", type=Path, help="where brokers keep their data: the disk that is measured")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="where results are kept (bench/results)")
    parser.add_argument("--lock", type=Path, help="a file that is locked for each round, to take turns with others")
    return parser.parse_args()


def _measure(console: Console, store: Store, rows: list[Row], options: argparse.Namespace) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None)

        def say(what: str) -> None:
            progress.update(task, description=what)
            if not console.is_terminal:
                console.print(what)

        wanted = {side for row in rows for side in row.sides}
        launchers = fetch([each for each in LAUNCHERS if each.side in wanted], store, say)
        run = Run(
            store,
            launchers,
            rounds=options.rounds,
            quick=options.quick,
            directory=options.dir,
            lock=options.lock,
            calm=math.inf if options.calm is None else options.calm,
        )
        progress.update(task, total=len(rows))
        try:
            for row in rows:
                run.take(row, say)
                progress.advance(task)
        except KeyboardInterrupt:
            console.print("stopped; the next run goes on here")
        finally:
            run.close()


if __name__ == "__main__":
    raise SystemExit(main())
