"""The process that runs `spark_side`, as the demo sees it: its last word, and how to end it."""

import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "pyarrow", "numba"))


class SparkChild:
    def __init__(self, bootstrap: str, topic: str, revenue_topic: str, lake: Path, starting: str) -> None:
        lake.mkdir(parents=True, exist_ok=True)
        self._errors = (lake / "spark.log").open("w+b")
        arguments = [bootstrap, topic, revenue_topic, str(lake), starting]
        # A session of its own: Ctrl-C is for the demo, which ends this once everything has arrived.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.demo.spark_side", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.last: dict[str, Any] = {"state": "starting"}
        self.log = lake / "spark.log"
        self._listening = threading.Thread(target=self._listen, name="demo-spark", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.last = json.loads(line)
            except ValueError:
                continue  # something of Spark's own

    @property
    def archived(self) -> int:
        return int(self.last.get("rows", self.last.get("archived", 0)))

    @property
    def state(self) -> str:
        if self._process.poll() not in (None, 0):
            return "failed"
        return str(self.last["state"])

    def ask_to_finish(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"finish\n")
            self._process.stdin.close()
        except OSError:
            return  # it has ended, and `state` says how

    def wait(self, seconds: float) -> bool:
        """True when it is done."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._listening.join(5)
        return True

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()
