"""`tidelog pipeline run`: a pipeline of the user's own, with the view and the memory that the ready ones have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, Output, OutputOption
from tidelog.cli.pipeline.options import (
    CheckpointOption,
    ConfOption,
    EveryOption,
    MasterOption,
    NameOption,
    OnceOption,
    Runs,
    checkpoint_of,
    run,
)
from tidelog.cli.problems import Problem
from tidelog.config import parse_assignments


def run_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python: pipeline(spark), or a declarative pipeline.")],
    *,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="A parameter of the pipeline. May be repeated."),
    ] = None,
    checkpoint: CheckpointOption = None,
    once: OnceOption = False,
    every: EveryOption = None,
    name: NameOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a pipeline of your own: a function that returns writers, or Spark's declarative pipelines."""
    from tidelog.cli.pipeline.run import need_spark

    need_spark()
    from tidelog.spark.bounds import InvalidOption
    from tidelog.spark.pipelines.own import is_declarative

    chosen, options = name or file.stem, parse_assignments(option or ())
    home = (checkpoint or checkpoint_of(chosen)).absolute()
    try:
        declarative = is_declarative(file)
    except InvalidOption as problem:
        raise Problem(str(problem)) from None

    def make(spark: Any) -> Any:
        from tidelog.spark.pipelines.own import arguments, load, queries

        spark.conf.set("spark.sql.streaming.checkpointLocation", str(home))
        function = load(file).pipeline
        given = arguments(function, options, bootstrap)
        return queries(function, file, spark, chosen, given, once=once)

    runs = Runs(chosen, once, every, master, conf, output)
    if declarative:
        from tidelog.cli.pipeline.declared import run_declared

        run_declared(file, options, home, bootstrap, **runs._asdict())
        return
    run(make, "run", (), str(file), bootstrap, runs)
