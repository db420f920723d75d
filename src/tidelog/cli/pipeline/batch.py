"""Runs a job on Spark that reads what is there and ends: a session, a line that says what it does, errors in words."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tidelog.cli.options import Output
from tidelog.cli.pipeline.run import need_spark, need_topics, spark_session, why
from tidelog.cli.problems import Problem


@contextmanager
def batch_job(
    name: str, topics: list[str], bootstrap: str, master: str | None, conf: dict[str, str], output: Output
) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """The session, and a function that shows what is being done to a person who watches."""
    need_spark()
    need_topics(bootstrap, topics)
    from pyspark.errors import PySparkException

    from tidelog.spark.bounds import InvalidOption

    with ExitStack() as stack:
        step = _steps(stack, name, output)
        try:
            step("starting Spark …")
            yield spark_session(name, master, conf), step
        except InvalidOption as problem:
            raise Problem(str(problem)) from None
        except PySparkException as failure:
            raise Problem(why(failure)) from failure


def _steps(stack: ExitStack, name: str, output: Output) -> Callable[[str], None]:
    if output is Output.JSON or not sys.stderr.isatty():
        return lambda _: None
    from rich.console import Console

    status = stack.enter_context(Console(stderr=True).status(name))

    def step(text: str) -> None:
        status.update(f"[bold]{name}[/]  {text}")

    return step


def source_start(text: str) -> dict[str, str]:
    """`--from` as options of the source."""
    from tidelog.cli.pipeline.options import parse_when

    if text == "earliest" or text.lstrip().startswith("{"):
        return {} if text == "earliest" else {"startingOffsets": text}
    return {"startingTimestamp": str(parse_when(text, "--from")), "startingOffsetsByTimestampStrategy": "latest"}


def source_end(text: str, option: str = "--to") -> dict[str, str]:
    from tidelog.cli.pipeline.options import parse_when

    if text == "latest" or text.lstrip().startswith("{"):
        return {} if text == "latest" else {"endingOffsets": text}
    return {"endingTimestamp": str(parse_when(text, option))}
