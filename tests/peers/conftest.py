"""What the tests with Java clients share: a broker, and programs compiled against each version's jars."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tidelog.testing import Broker

from .kafka_server import jars, java_command

JAVA = Path(__file__).parent / "java"

Program = Callable[..., str]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Ours, unless `COMPAT_BOOTSTRAP` names another: the programs themselves were checked against Apache Kafka."""
    given = os.environ.get("COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def java_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Runs the module's Java program (`PROGRAM`) with the clients of one of its `VERSIONS`; returns what it printed."""
    name: str = request.module.PROGRAM
    compiled = {version: compile_java(name, version, tmp_path_factory) for version in versions_of(request)}

    def run(version: str, *arguments: str, timeout: float = 120) -> str:
        command = java_command(name, *arguments, version=version)
        place = command.index("-cp") + 1
        command[place] = f"{compiled[version]}:{command[place]}"
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def versions_of(request: pytest.FixtureRequest) -> Iterable[str]:
    versions: Iterable[str] = request.module.VERSIONS
    return versions


def compile_java(name: str, version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Once per version of the clients: their API differs a little."""
    classes = tmp_path_factory.mktemp("classes")
    command = ["javac", "-nowarn", "-cp", f"{jars(version)}/*", "-d", str(classes), str(JAVA / f"{name}.java")]
    done = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return classes
