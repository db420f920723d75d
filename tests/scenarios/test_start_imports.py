"""Most of the time that a broker takes to start is imports: what it can do without, it must not import."""

import signal
import subprocess
import sys
from pathlib import Path

from tidelog.cli.app import MODULES

NEVER_AT_START = (
    "confluent_kafka",
    "email",  # by way of importlib.metadata
    "encodings.idna",
    "importlib.metadata",
    "numba",
    "numpy",
    "pyarrow",
    "pyspark",
    "rich",
    "tidelog.broker.peers.side",  # with it, all that only a broker of a cluster needs
    "tidelog.client",
    "tidelog.consensus",
    "tidelog.demo",
    "tidelog.observe",
    "tidelog.spark",
    "tidelog.testing",
)


SERVE = """
import sys
from tidelog.cli import run

bare = set(sys.modules)  # with what a `.pth` file of this installation asks for
assert run(sys.argv[1:]) == 0
print("imported", *(set(sys.modules) - bare))
"""


def test_a_broker_that_is_alone_imports_only_what_it_needs(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    broker = subprocess.Popen([sys.executable, "-c", SERVE, *arguments], stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    assert "is ready on" in broker.stdout.readline()
    broker.send_signal(signal.SIGTERM)
    said, _ = broker.communicate(timeout=30)
    modules = set(said.splitlines()[-1].split()[1:])

    assert {"asyncio", "tidelog.broker.node", MODULES["serve"]} <= modules
    of_other_commands = {module for name, module in MODULES.items() if name != "serve"}
    assert sorted(modules & (of_other_commands | set(NEVER_AT_START))) == []
