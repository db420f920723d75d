"""Builds the two C programs of `bench/native` and runs them; their output is one line of JSON."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka

_SOURCES = Path(__file__).parent / "native"
_BUILD = _SOURCES / "build"


def _compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    subprocess.run(["apt-get", "install", "-y", "-qq", "gcc", "libc6-dev"], check=True, stdout=subprocess.DEVNULL)
    return "gcc"


def _librdkafka() -> Path:
    """The library inside the confluent-kafka wheel: the very version that the Python client uses."""
    wheel_libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(wheel_libraries.glob("librdkafka*.so*"))
    if not found:
        raise FileNotFoundError(f"no librdkafka in {wheel_libraries}: install confluent-kafka from a wheel")
    return found[0]


@cache
def program(name: str) -> Path:
    source, target = _SOURCES / f"{name}.c", _BUILD / name
    library = _librdkafka()
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        _BUILD.mkdir(exist_ok=True)
        command = [_compiler(), "-O2", "-o", str(target), str(source), "-lpthread"]
        if name == "rdload":
            command += [str(library), f"-Wl,-rpath,{library.parent}"]
        subprocess.run(command, check=True)
    return target


def run(name: str, *arguments: object, timeout_s: float = 180) -> dict[str, Any]:
    command = [str(program(name)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout} {done.stderr[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def rdload(*arguments: object, **settings: object) -> dict[str, Any]:
    """`rdload("produce", …, linger_ms=5)`: an underscore in a setting's name stands for its dot."""
    return run("rdload", *arguments, *(f"{key.replace('_', '.')}={value}" for key, value in settings.items()))
