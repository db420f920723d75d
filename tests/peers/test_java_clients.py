"""The Java clients, the newest and the one that Spark ships, unmodified against our broker."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing import Broker

from .kafka_server import VERSION, jars, java_command

pytestmark = pytest.mark.peers

SOURCE = Path(__file__).parent / "java" / "ClientCheck.java"
VERSIONS = ("3.9.1", VERSION)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Ours, unless `COMPAT_BOOTSTRAP` names another: the program itself was checked against Apache Kafka."""
    given = os.environ.get("COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The program compiled once per client version: its API differs a little."""
    compiled = {}
    for version in VERSIONS:
        compiled[version] = tmp_path_factory.mktemp("classes")
        command = ["javac", "-nowarn", "-cp", f"{jars(version)}/*", "-d", str(compiled[version]), str(SOURCE)]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
    return compiled


@pytest.fixture(scope="module", params=VERSIONS)
def produced(request: pytest.FixtureRequest, bootstrap: str, classes: dict[str, Path]) -> tuple[str, str]:
    """A topic that this client version wrote: a partition per codec."""
    topic = f"java-{uuid.uuid4().hex[:8]}"
    run(bootstrap, classes[request.param], request.param, topic, "produce")
    return request.param, topic


def run(bootstrap: str, classes: Path, version: str, topic: str, step: str) -> None:
    command = java_command("ClientCheck", bootstrap, topic, step, version=version)
    place = command.index("-cp") + 1
    command[place] = f"{classes}:{command[place]}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok {step}" in done.stdout


@pytest.mark.parametrize("reader", VERSIONS)
def test_java_reads_what_java_wrote(
    bootstrap: str, classes: dict[str, Path], produced: tuple[str, str], reader: str
) -> None:
    run(bootstrap, classes[reader], reader, produced[1], "consume")


@pytest.mark.parametrize("step", ["errors", "admin"])
@pytest.mark.parametrize("version", VERSIONS)
def test_java_errors_and_administration(bootstrap: str, classes: dict[str, Path], version: str, step: str) -> None:
    run(bootstrap, classes[version], version, f"java-{step}-{uuid.uuid4().hex[:8]}", step)
