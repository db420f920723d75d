"""From the options of a pipeline that remembers to its run: what is wrong with them is said before Spark is started."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidelog.cli.pipeline.options import Format, Runs, checkpoint_of, parse_start, run
from tidelog.cli.pipeline.results import Results
from tidelog.cli.problems import Problem

if TYPE_CHECKING:
    from tidelog.spark.pipelines.targets import Target
    from tidelog.spark.pipelines.work import Work


class Reads(NamedTuple):
    topic: str
    bootstrap: str
    start: str
    batch_records: int
    group: str | None


class Means(NamedTuple):
    schema: str | None
    event_time: str | None
    watermark: str


class Writes(NamedTuple):
    to: str
    to_bootstrap: str | None
    checkpoint: Path | None
    format: Format
    dead_letter: str | None


Plan: TypeAlias = Callable[..., "tuple[Work, Callable[[Any], Any]]"]
"""Given what all pipelines are told, what this one is told and how its queries are built in a session."""


def run_work(
    plan: Plan, kind: str, reads: Reads, means: Means, writes: Writes, runs: Runs, results: Results | None = None
) -> None:
    from tidelog.cli.pipeline.run import need_spark

    starting, timestamp = parse_start(reads.start)
    need_spark()
    from tidelog.spark.bounds import InvalidOption
    from tidelog.spark.pipelines.targets import LAKE, TOPIC, parse_target

    with ExitStack() as until_end:
        try:
            target = parse_target(writes.to, console=results is not None)
            work, build = plan(
                topic=reads.topic,
                bootstrap_servers=reads.bootstrap,
                to=target,
                home=writes.checkpoint or _home(target, runs.name or kind, until_end),
                bootstrap_servers_to=writes.to_bootstrap,
                format=writes.format.value,
                dead_letter=writes.dead_letter,
                starting=starting,
                starting_timestamp=timestamp,
                offsets_per_trigger=reads.batch_records,
                group=reads.group,
                **means._asdict(),
            )
            work.check()
        except InvalidOption as problem:
            raise Problem(str(problem)) from None
        if target.kind == LAKE and not runs.once and runs.every is None:
            # A file per batch and day: without an interval a quiet topic would become thousands of tiny ones.
            runs = runs._replace(every="1 minute")
        written = [target.name] if target.kind == TOPIC else []
        written += [writes.dead_letter] if writes.dead_letter else []
        run(
            build,
            kind,
            work.topics,
            target.name,
            reads.bootstrap,
            runs,
            targets={work.servers_to: written},
            results=results,
        )


def _home(target: "Target", name: str, until_end: ExitStack) -> Path:
    """A lake holds its own memory, so that it can be moved; what only a person looks at begins anew each time."""
    from tidelog.spark.pipelines.commits import STATE
    from tidelog.spark.pipelines.targets import CONSOLE, LAKE

    if target.kind == LAKE:
        return target.path / STATE
    if target.kind == CONSOLE:
        draft = tempfile.TemporaryDirectory(prefix="tidelog-", ignore_cleanup_errors=True)
        return Path(until_end.enter_context(draft))
    return checkpoint_of(name)
