"""The same results twice: a table for people, JSON for the README and for comparing runs."""

import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import Limits, Result

_RESULTS = Path(__file__).parent / "results"


def show(console: Console, limits: Limits, results: list[Result]) -> None:
    console.print(
        f"[dim]this machine: loopback {limits.loopback_mb_s:,.0f} MB/s · sendfile {limits.sendfile_mb_s:,.0f} MB/s · "
        f"growing-file write {limits.write_mb_s:,.0f} MB/s · fdatasync {limits.fdatasync_us:,.0f} µs · "
        f"C echo {limits.echo_us:.1f} µs[/dim]"
    )
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("measurement")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("ratio to the machine")
    table.add_column("target")
    table.add_column("")
    table.add_column("also")
    for result in results:
        ratio = "" if result.ratio is None else f"{result.ratio:.2f} × {result.limit}"
        verdict = {None: "", True: "[green]pass[/green]", False: "[red]fail[/red]"}[result.ok]
        detail = ", ".join(f"{name} {value:,.4g}" for name, value in result.detail.items())
        value = f"{result.value:,.0f}" if result.value >= 1000 else f"{result.value:.3g}"
        table.add_row(result.name, value, result.unit, ratio, result.target, verdict, f"[dim]{detail}[/dim]")
    console.print(table)


def save(broker: str, limits: Limits, results: list[Result]) -> Path:
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{broker}.json"
    machine = {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
    }
    content = {
        "broker": broker,
        "machine": machine,
        "limits": asdict(limits),
        "results": [asdict(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path
