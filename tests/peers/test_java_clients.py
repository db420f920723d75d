"""The Java clients, the newest and the one that Spark ships, unmodified against our broker."""

import uuid

import pytest

from .conftest import Program
from .kafka_server import VERSION

pytestmark = pytest.mark.peers

PROGRAM = "ClientCheck"
VERSIONS = ("3.9.1", VERSION)


@pytest.fixture(scope="module", params=VERSIONS)
def produced(request: pytest.FixtureRequest, bootstrap: str, java_program: Program) -> tuple[str, str]:
    """A topic that this client version wrote: a partition per codec."""
    topic = f"java-{uuid.uuid4().hex[:8]}"
    assert "ok produce" in java_program(request.param, bootstrap, topic, "produce")
    return request.param, topic


@pytest.mark.parametrize("reader", VERSIONS)
def test_java_reads_what_java_wrote(
    bootstrap: str, java_program: Program, produced: tuple[str, str], reader: str
) -> None:
    assert "ok consume" in java_program(reader, bootstrap, produced[1], "consume")


@pytest.mark.parametrize("step", ["errors", "admin"])
@pytest.mark.parametrize("version", VERSIONS)
def test_java_errors_and_administration(bootstrap: str, java_program: Program, version: str, step: str) -> None:
    topic = f"java-{step}-{uuid.uuid4().hex[:8]}"
    assert f"ok {step}" in java_program(version, bootstrap, topic, step)
