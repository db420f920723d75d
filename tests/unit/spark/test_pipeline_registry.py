"""Which pipelines run on this machine, and what a failure is called."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.pipeline.run import why
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.running import Progress


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def other_pipeline() -> subprocess.Popen[bytes]:
    """A process whose command names a pipeline. It says a word first: a young process has no command line yet."""
    program = "import time; print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program, "pipeline"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_pipeline_is_found_with_its_progress_and_its_end() -> None:
    mine = registry.Registration("archive-orders", "archive", ["orders"], "lake")
    mine.progress(Progress(batch=3, batch_rows=10, rows=40, rows_per_s=20.0, lag=5, batch_ms=500))
    (entry,) = registry.entries()
    assert (entry.name, entry.kind, entry.topics, entry.to) == ("archive-orders", "archive", ["orders"], "lake")
    assert (entry.progress["rows"], entry.progress["lag"]) == (40, 5)
    mine.ended(registry.FAILED, "the disk is full")
    found = registry.find("archive-orders")
    assert found is not None
    assert (found.shown_state, found.error) == ("failed", "the disk is full")
    assert registry.find("another") is None


def test_a_name_runs_once_at_a_time_and_a_killed_one_is_told_so() -> None:
    process = other_pipeline()
    try:
        first = registry.Registration("x", "replay", ["a"], "b")
        first.entry.pid = process.pid
        first._write()
        with pytest.raises(registry.AlreadyRuns, match=f"runs already, as process {process.pid}"):
            registry.Registration("x", "replay", ["a"], "b")
    finally:
        process.kill()
        process.wait()
    (entry,) = registry.entries()
    assert (entry.alive, entry.shown_state) == (False, "killed")
    registry.Registration("x", "replay", ["a"], "b")


def test_a_pipeline_is_asked_to_stop() -> None:
    process = other_pipeline()
    entry = registry.Entry("x", "replay", ["a"], "b", process.pid, 0.0)
    assert entry.alive
    assert registry.ask_to_stop(entry, 20)
    assert process.wait() == -signal.SIGTERM


def test_names_become_file_names(state: Path) -> None:
    registry.Registration("replay-a/b c", "replay", ["a"], "b")
    assert [path.name for path in (state / "tidelog" / "pipelines").iterdir()] == ["replay-a-b-c.json"]
    assert registry.find("replay-a/b c") is not None
    (state / "tidelog" / "pipelines" / "broken.json").write_text("{")
    assert len(registry.entries()) == 1
    assert os.getpid() == registry.entries()[0].pid


def test_of_a_long_story_the_sentence_is_told() -> None:
    story = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure:
Traceback (most recent call last):
  File "/x/worker.py", line 3, in main
    process()
tidelog.spark.sink.columns.InvalidRow: partition 5 present in the data; topic t has partitions 0..0

	at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)"""
    assert why(Exception(story)) == "partition 5 present in the data; topic t has partitions 0..0"
    assert why(Exception("ValueError: odd\nmore")) == "ValueError: odd"
    assert why(Exception("plain")) == "plain"
