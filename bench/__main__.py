"""`python -m bench [--quick] [--only latency] [--bootstrap host:port [--pid N]]`; exit code 1: a target was missed."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import (
    cluster,
    consume,
    groups,
    latency,
    limits,
    produce,
    rebalance,
    report,
    scale,
    spark,
    spark_sink,
    startup,
    transactions,
)
from bench.results import Limits, Result
from bench.target import Target, compile_package, free_port, start_broker

Measure = Callable[[Target, Limits], list[Result]]
MEASUREMENTS: dict[str, Measure] = {
    "startup": startup.measure,
    "latency": latency.measure,
    "scale": scale.measure,
    "produce": produce.measure,
    "consume": consume.measure,
    "groups": groups.measure,
    "rebalance": rebalance.measure,
    "transactions": transactions.measure,
    "memory": startup.memory,
    "cluster": cluster.measure,
    "spark": spark.measure,
    "spark_sink": spark_sink.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the load: a smoke test, not a figure to quote")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="one measurement; may be repeated")
    parser.add_argument("--bootstrap", help="measure this broker (an IPv4 address and port) instead of our own")
    parser.add_argument("--pid", type=int, help="the process of --bootstrap's broker, for its CPU and memory")
    parser.add_argument("--dir", type=Path, help="where data and scratch files go: the disk that is measured")
    options = parser.parse_args()
    chosen = {name: run for name, run in MEASUREMENTS.items() if not options.only or name in options.only}

    compile_package()
    console = Console()
    if not console.is_terminal:
        console = Console(width=180)  # into a file or a pipe: one line per figure
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=options.dir) as directory:
        work_dir = Path(directory)
        process, quick = None, options.quick
        if options.bootstrap:
            host, _, port = options.bootstrap.rpartition(":")
            target = Target(host=host, port=int(port), pid=options.pid, ours=False, work_dir=work_dir, quick=quick)
        else:
            port = free_port()
            process, _ = start_broker(work_dir / "data", port)
            target = Target(host="127.0.0.1", port=port, pid=process.pid, ours=True, work_dir=work_dir, quick=quick)
        try:
            found, results = _run(console, target, chosen)
        finally:
            if process is not None:
                process.terminate()
                process.wait(60)
    report.show(console, found, results)
    console.print(f"[dim]{report.save('other' if options.bootstrap else 'tidelog', found, results)}[/dim]")
    return 1 if any(result.ok is False for result in results) else 0


def _run(console: Console, target: Target, chosen: dict[str, Measure]) -> tuple[Limits, list[Result]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: list[Result] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("the machine's limits", total=len(chosen) + 1)
        found = limits.measure(target.work_dir, target.quick)
        progress.advance(task)
        for name, measure in chosen.items():
            progress.update(task, description=name)
            results += measure(target, found)
            progress.advance(task)
    return found, results


if __name__ == "__main__":
    raise SystemExit(main())
