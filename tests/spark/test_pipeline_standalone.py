"""A Spark cluster of its own processes, from the pip install alone: a master, two workers, and the archive on it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import duckdb
import pyspark
import pytest
from tests.spark.kit import OWN_PROCESSES, Topics, quick_spark

pytestmark = [pytest.mark.xdist_group(OWN_PROCESSES), pytest.mark.timeout(500), pytest.mark.slow]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = {**os.environ, **quick_spark(), "SPARK_LOG_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> None:
            command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
            log = stack.enter_context((tmp_path / f"{name}-{time.time_ns()}.log").open("w"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        pages = free_port()
        start("master.Master", "--port", str(port), "--webui-port", str(pages))
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the master did not start"
                time.sleep(0.1)
        for number in range(2):
            work = str(tmp_path / f"worker-{number}")
            start(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", work,
                "--webui-port", str(free_port()), url,
            )  # fmt: skip
        # Who comes late gets no executor of an application that is short enough to be over by then.
        while _workers(pages) < 2:
            assert time.monotonic() < deadline, "the workers did not register"
            time.sleep(0.1)
        yield url


def _workers(pages: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{pages}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:  # its pages come a moment after its port
        return 0


def test_the_archive_runs_on_a_standalone_cluster(master: str, topics: Topics, tmp_path: Path) -> None:
    topic, to = topics.make(4), tmp_path / "lake"
    for partition in range(4):
        topics.fill(topic, range(partition, 4000, 4), partition)
    command = [
        sys.executable, "-m", "tidelog", "pipeline", "archive", topic, "--to", str(to), "--once", "--master", master,
        "--batch-records", "2000", "-b", topics.bootstrap, "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.executor.memory=512m",
    ]  # fmt: skip
    environment = {**os.environ, **quick_spark(), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "4,000 rows in 2 batches" in done.stdout
    found = duckdb.sql(f"select value from read_parquet('{to}/**/*.parquet')").fetchall()
    assert sorted(int(value) for (value,) in found) == list(range(4000))
    executors = {path.parent.name for path in tmp_path.glob("worker-*/app-*")}
    assert len(executors) == 2, "both workers had an executor"
