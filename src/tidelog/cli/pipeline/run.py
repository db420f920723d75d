"""Runs a pipeline in the terminal: a Spark session, a line that says how it goes, and what it comes to."""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidelog.cli.options import Output
from tidelog.cli.output import count, print_json
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.cli.pipeline.results import Results
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
    targets: Mapping[str, Sequence[str]] | None = None,
    results: "Results | None" = None,
) -> None:
    """`make` is given the session and returns the query or queries, ready to start.

    `targets` are topics to be written, by the cluster that must have them; `results` is what goes to the terminal.
    """
    need_spark()
    if topics:
        need_topics(bootstrap, topics)
    for servers, wanted in (targets or {}).items():
        if wanted:
            need_topics(servers, list(wanted), "`tidelog topic create` makes it")
    from pyspark.errors import PySparkException

    from tidelog.spark.bounds import InvalidOption
    from tidelog.spark.pipelines import registry
    from tidelog.spark.pipelines.commits import AlreadyOwned
    from tidelog.spark.pipelines.own import Failed
    from tidelog.spark.pipelines.running import run, stopped_by_signals

    try:
        mine = registry.Registration(name, kind, topics, to)
    except registry.AlreadyRuns as problem:
        raise Problem(str(problem), f"`tidelog pipeline status {name}` shows how it is doing") from None
    view = View(name, output, results)
    with stopped_by_signals() as asked:
        try:
            view.note("starting Spark …")
            writer = make(spark_session(name, master, conf))
            view.note("waiting for records …")

            def on_progress(progress: "Progress") -> None:
                mine.progress(progress)
                view.show(progress)

            ended = run(writer, once=once, every=every, on_progress=on_progress, stop=asked)
        except (InvalidOption, Failed) as problem:
            view.close()
            mine.ended(registry.FAILED, str(problem))
            raise Problem(str(problem)) from None
        except (PySparkException, AlreadyOwned) as failure:
            view.close()
            reason = why(failure)
            mine.ended(registry.FAILED, reason)
            raise Problem(reason, "it goes on where it stopped when you start it again") from failure
        except BaseException as failure:
            view.close()
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

    def __init__(self, name: str, output: Output, results: "Results | None" = None) -> None:
        self._name, self._output, self._results = name, output, results
        self._live: Any = None
        self._lock = threading.Lock()
        if output is Output.TEXT and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()

    def note(self, text: str) -> None:
        if self._live is not None:
            from rich.markup import escape

            self._live.update(f"[bold]{self._name}[/]  {escape(text)}")

    def show(self, progress: "Progress") -> None:
        if self._output is Output.JSON:
            print_json({"pipeline": self._name, **asdict(progress)})
            sys.stdout.flush()
        elif self._live is not None:
            line = (
                f"[bold]{self._name}[/]  batch {progress.batch}  {progress.rows:,} rows  "
                f"{progress.rows_per_s:,.0f} rows/s  lag {progress.lag:,}  batch {progress.batch_ms / 1000:.1f} s"
                f"{_lost(progress, '  ')}"
            )
            self._live.update(line if self._results is None else _stacked(self._results.table(), line))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def end(self, ended: "Ended") -> None:
        self.close()
        if self._results is not None:
            self._results.end()
        if self._output is Output.JSON:
            print_json({"pipeline": self._name, **asdict(ended)})
            return
        how = "stopped" if ended.stopped else "done"
        rows, batches = count(ended.rows, "row"), "batch" if ended.batches == 1 else "batches"
        lost = _lost(ended, ", ")
        print(f"{self._name}: {how}, {rows} in {ended.batches:,} {batches}{lost}, {ended.seconds:.1f} s")


def _lost(counts: "Progress | Ended", between: str) -> str:
    """Said only when there are any."""
    letters = between + count(counts.dead_letters, "dead letter") if counts.dead_letters else ""
    duplicates = between + count(counts.duplicates, "duplicate") if counts.duplicates else ""
    return duplicates + letters + (f"{between}{counts.late:,} late" if counts.late else "")


def _stacked(*parts: Any) -> Any:
    from rich.console import Group

    return Group(*parts)


def need_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise Problem("pipelines run on Spark, which is not installed", "pip install 'tidelog[spark]'") from None


def need_topics(
    bootstrap: str, topics: list[str], next_step: str = "`tidelog topic list` shows the topics there are"
) -> None:
    """Said in a second, not after Spark has started."""
    from tidelog.client.cluster import Cluster, NoBroker

    try:
        with Cluster(bootstrap, timeout_s=10) as cluster:
            found = cluster.topics(topics)
    except (NoBroker, ValueError) as problem:
        raise Problem(f"no broker answers: {problem}", "is it running? `tidelog serve` starts one") from None
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise Problem(f"topic {', '.join(missing)} does not exist", next_step)


def spark_session(name: str, master: str | None, conf: dict[str, str]) -> Any:
    from tidelog.spark import session

    # Spark looks for pandas, which no pipeline needs, and says which it would like better.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = spark_settings(master, conf)
    spark = session(f"tidelog {name}", master, **settings)
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    return spark


def spark_settings(master: str | None, conf: dict[str, str]) -> dict[str, str]:
    # What goes wrong is told here, in a sentence; --conf spark.log.level=WARN brings Spark's own account back.
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
    if (master or os.environ.get("SPARK_MASTER") or "local").startswith("local"):
        # Each part of the state is a store of its own; Spark's 200 are for a cluster.
        quiet["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    return quiet | conf
