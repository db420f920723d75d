"""`tidelog pipeline …` in a process of its own: watched, and stopped as a person stops it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.kit import OWN_PROCESSES, QUICK_JAVA, Topics
from tests.spark.sink_kit import committed

pytestmark = [pytest.mark.xdist_group(OWN_PROCESSES), pytest.mark.timeout(400)]


@pytest.fixture
def environment(topics: Topics, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TIDELOG_BOOTSTRAP": topics.bootstrap,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "120",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }


def test_a_pipeline_is_watched_and_stopped(environment: dict[str, str], topics: Topics, tmp_path: Path) -> None:
    def tidelog(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidelog", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    source, target = topics.make(1), topics.make(1)
    topics.fill(source, range(5))
    command = [sys.executable, "-m", "tidelog", "pipeline", "replay", source, "--to", target, "--name", "copy"]
    command += ["-o", "json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": (tmp_path / "errors").open("w")}
    with subprocess.Popen(command, text=True, cwd=tmp_path, env=environment, **pipes) as running, pipes["stderr"]:
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        assert (told["pipeline"], told["batch"], told["batch_rows"], told["rows"], told["lag"]) == ("copy", 0, 5, 5, 0)
        assert told["batch_ms"] > 0 < told["rows_per_s"]
        again = tidelog("pipeline", "replay", source, "--to", target, "--name", "copy")
        assert again.returncode == 1
        assert "pipeline copy runs already" in again.stderr
        status = json.loads(tidelog("pipeline", "status", "copy", "-o", "json").stdout)
        assert (status["state"], status["rows"], status["pid"]) == ("running", 5, running.pid)
        stopped = tidelog("pipeline", "stop", "copy")
        assert stopped.stdout == "copy stopped\n", stopped.stderr
        ended = json.loads(running.stdout.read())
        assert (ended["rows"], ended["stopped"]) == (5, True)
    assert running.returncode == 0
    assert "pandas" not in (tmp_path / "errors").read_text()
    shown = tidelog("pipeline", "status", "copy").stdout
    assert "state        stopped" in shown
    assert "None" not in shown
    assert tidelog("pipeline", "stop", "copy").stdout == "copy does not run: stopped\n"
    deadline = time.monotonic() + 60
    while len(committed(topics.bootstrap, target)) < 5 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert committed(topics.bootstrap, target) == list("01234")


def test_a_pipeline_that_cannot_start_says_why(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "pipeline", "archive", "no-such-topic", "--to", "lake", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1
    assert "topic no-such-topic does not exist" in done.stderr
    assert "Traceback" not in done.stderr
