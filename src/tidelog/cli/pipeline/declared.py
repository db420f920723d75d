"""Runs a declarative pipeline in the terminal: its events as they come, run after run or once."""

import sys
import time
from pathlib import Path

from tidelog.cli.options import Output
from tidelog.cli.output import print_json
from tidelog.cli.pipeline.run import View, spark_settings, why
from tidelog.cli.problems import Problem
from tidelog.config import parse_assignments

EVERY = "10 seconds"


def run_declared(
    file: Path,
    options: dict[str, str],
    home: Path,
    bootstrap: str,
    *,
    name: str,
    once: bool,
    every: str | None,
    master: str | None,
    conf: list[str] | None,
    output: Output,
) -> None:
    from pyspark.errors import PySparkException

    from tidelog.spark.bounds import InvalidOption
    from tidelog.spark.pipelines import declared, registry
    from tidelog.spark.pipelines.durations import milliseconds
    from tidelog.spark.pipelines.own import Failed
    from tidelog.spark.pipelines.running import Progress, Tally, stopped_by_signals

    given = parse_assignments(conf or ())
    settings = {"tidelog.bootstrap": bootstrap} | {f"tidelog.option.{key}": text for key, text in options.items()}
    try:
        pause_s = milliseconds(every or EVERY, "--every") / 1000
        mine = registry.Registration(name, "run", [], str(file))
    except (InvalidOption, registry.AlreadyRuns) as problem:
        raise Problem(str(problem)) from None
    view = View(name, output)

    def on_progress(progress: Progress) -> None:
        mine.progress(progress)
        view.show(progress)

    def on_event(message: str) -> None:
        if output is Output.JSON:
            print_json({"pipeline": name, "event": message})
            sys.stdout.flush()
        else:
            view.note(message)

    tally, started = Tally(on_progress), time.monotonic()
    with stopped_by_signals() as asked:
        try:
            view.note("starting Spark …")
            home.mkdir(parents=True, exist_ok=True)
            spark_conf = spark_settings(master, declared.kept_in(home) | given)
            with (
                declared.connected(f"tidelog {name}", master, spark_conf) as spark,
                declared.watched(spark, tally),
            ):
                while not asked.is_set():
                    graph = declared.graph_of(spark, file, settings)
                    done = declared.run_graph(spark, graph, home / "storage", on_event, asked)
                    if once or not done:
                        break
                    asked.wait(pause_s)
        except (InvalidOption, Failed, PySparkException) as failure:
            view.close()
            reason = why(failure) if isinstance(failure, PySparkException) else str(failure)
            mine.ended(registry.FAILED, reason)
            raise Problem(reason) from failure
        except BaseException as failure:
            view.close()
            mine.ended(registry.FAILED, repr(failure))
            raise
        mine.ended(registry.STOPPED if asked.is_set() else registry.ENDED)
    view.end(tally.ended(time.monotonic() - started, stopped=asked.is_set()))
