"""The results file: read at the start, written after every sample, so that a stopped run loses at most one."""

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.peers.samples import RowResult, Sample


class Store:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, RowResult] = {}
        self.versions: dict[str, str] = {}
        self.machine: dict[str, Any] = {}
        if path.exists():
            self._load(json.loads(path.read_text()))

    def _load(self, content: dict[str, Any]) -> None:
        self.machine, self.versions = content["machine"], content["versions"]
        for name, row in content["rows"].items():
            samples = [Sample(**sample) for sample in row["samples"]]
            self.rows[name] = RowResult(samples, row["absent"])

    def row(self, name: str) -> RowResult:
        return self.rows.setdefault(name, RowResult())

    def add(self, name: str, sample: Sample) -> None:
        self.row(name).samples.append(sample)
        self.save()

    def forget(self, name: str) -> None:
        self.rows.pop(name, None)

    def drop_noisy(self, cores: float) -> None:
        """Forgets rounds in which others took more cores than this, with all sides, so that they are repeated."""
        for row in self.rows.values():
            noisy = {sample.round for sample in row.samples if sample.other_cores > cores}
            row.samples = [sample for sample in row.samples if sample.round not in noisy]

    def save(self) -> None:
        self.machine = self.machine or this_machine()
        content = {
            "machine": self.machine,
            "versions": self.versions,
            "rows": {
                name: {"samples": [asdict(sample) for sample in row.samples], "absent": row.absent}
                for name, row in self.rows.items()
            },
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        partial.replace(self.path)  # a run killed while it writes leaves the old file


def this_machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
    }
