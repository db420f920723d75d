"""The load: C programs, the same for every broker. `bench.native` has the ones for one connection and librdkafka."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from bench import native

_SOURCES = Path(__file__).parent / "native"
_BUILD = _SOURCES / "build"
BIG_BATCHES: dict[str, object] = {
    "linger_ms": 5,
    "batch_size": 1_000_000,
    "batch_num_messages": 10_000,
    "queue_buffering_max_messages": 500_000,
    "queue_buffering_max_kbytes": 1_000_000,
}


@cache
def program(name: str) -> Path:
    source, target = _SOURCES / f"{name}.c", _BUILD / name
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        _BUILD.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(target), str(source)], check=True)
    return target


def run(name: str, *arguments: object, timeout_s: float = 180, pass_fds: tuple[int, ...] = ()) -> dict[str, Any]:
    command = [str(program(name)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, pass_fds=pass_fds)
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout} {done.stderr[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def at_once(jobs: int, *arguments: object, **settings: object) -> list[dict[str, Any]]:
    """The same `rdload` in several processes; "{job}" in an argument is the number of its process."""

    def one(job: int) -> dict[str, Any]:
        return native.rdload(*(str(argument).format(job=job) for argument in arguments), **settings)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(jobs)))
