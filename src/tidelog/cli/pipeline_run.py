"""Runs a pipeline in the terminal: a Spark session, a line that says how it goes, and what it comes to."""

import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidelog.cli.options import Output
from tidelog.cli.output import count, print_json
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.spark.pipelines.running import Ended, Progress


def run_pipeline(
    make: Callable[[Any], Any],
    *,
    name: str,
    kind: str,
    topics: list[str],
    to: str,
    bootstrap: str,
    once: bool,
    every: str | None,
    master: str | None,
    conf: dict[str, str],
    output: Output,
) -> None:
    """`make` is given the session and returns the query, ready to start."""
    _need_spark()
    _need_topics(bootstrap, topics)
    from pyspark.errors import PySparkException

    from tidelog.spark.bounds import InvalidOption
    from tidelog.spark.pipelines import registry
    from tidelog.spark.pipelines.commits import AlreadyOwned
    from tidelog.spark.pipelines.running import run, stopped_by_signals

    try:
        mine = registry.Registration(name, kind, topics, to)
    except registry.AlreadyRuns as problem:
        raise Problem(str(problem), f"`tidelog pipeline status {name}` shows how it is doing") from None
    view = View(name, output)
    with stopped_by_signals() as asked:
        try:
            view.note("starting Spark …")
            writer = make(_session(name, master, conf))
            view.note("waiting for records …")

            def on_progress(progress: "Progress") -> None:
                mine.progress(progress)
                view.show(progress)

            ended = run(writer, once=once, every=every, on_progress=on_progress, stop=asked)
        except InvalidOption as problem:
            mine.ended(registry.FAILED, str(problem))
            raise Problem(str(problem)) from None
        except (PySparkException, AlreadyOwned) as failure:
            reason = why(failure)
            mine.ended(registry.FAILED, reason)
            raise Problem(reason, "it goes on where it stopped when you start it again") from failure
        except BaseException as failure:
            mine.ended(registry.FAILED, repr(failure))
            raise
        mine.ended(registry.STOPPED if ended.stopped else registry.ENDED)
    view.end(ended)


def why(failure: BaseException) -> str:
    """The sentence in what Spark wraps around an error of a Python worker: the last that names an exception."""
    lines = [line.strip() for line in str(failure).splitlines()]
    named = [line for line in lines if line.startswith("tidelog.") and ": " in line]
    if named:
        return named[-1].split(": ", 1)[1]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (errors or lines or [repr(failure)])[-1 if errors else 0]


class View:
    """One line for people, rewritten for every batch; one JSON object a batch for programs."""

    def __init__(self, name: str, output: Output) -> None:
        self._name, self._output = name, output
        self._live: Any = None
        self._lock = threading.Lock()
        if output is Output.TEXT and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.update(f"[bold]{self._name}[/]  {text}")

    def show(self, progress: "Progress") -> None:
        if self._output is Output.JSON:
            print_json({"pipeline": self._name, **asdict(progress)})
            sys.stdout.flush()
        elif self._live is not None:
            self._live.update(
                f"[bold]{self._name}[/]  batch {progress.batch}  {progress.rows:,} rows  "
                f"{progress.rows_per_s:,.0f} rows/s  lag {progress.lag:,}  batch {progress.batch_ms / 1000:.1f} s"
            )

    def end(self, ended: "Ended") -> None:
        if self._live is not None:
            self._live.stop()
        if self._output is Output.JSON:
            print_json({"pipeline": self._name, **asdict(ended)})
            return
        how = "stopped" if ended.stopped else "done"
        rows, batches = count(ended.rows, "row"), "batch" if ended.batches == 1 else "batches"
        print(f"{self._name}: {how}, {rows} in {ended.batches:,} {batches}, {ended.seconds:.1f} s")


def _need_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise Problem("pipelines run on Spark, which is not installed", "pip install 'tidelog[spark]'") from None


def _need_topics(bootstrap: str, topics: list[str]) -> None:
    """Said in a second, not after Spark has started."""
    from tidelog.client.cluster import Cluster, NoBroker

    try:
        with Cluster(bootstrap, timeout_s=10) as cluster:
            found = cluster.topics(topics)
    except (NoBroker, ValueError) as problem:
        raise Problem(f"no broker answers: {problem}", "is it running? `tidelog serve` starts one") from None
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise Problem(f"topic {', '.join(missing)} does not exist", "`tidelog topic list` shows the topics there are")


def _session(name: str, master: str | None, conf: dict[str, str]) -> Any:
    from tidelog.spark import session

    # What goes wrong is told here, in a sentence; --conf spark.log.level=WARN brings Spark's own account back.
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    spark = session(f"tidelog {name}", master, **(quiet | conf))
    spark.sparkContext.setLogLevel(conf.get("spark.log.level", "OFF"))
    return spark
