"""Starts a pipeline's query, tells how it goes, and ends it when asked or when there is nothing left."""

import json
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.pipelines.fields import DEAD_LETTERS, OBSERVED
from tidelog.spark.positions import lag
from tidelog.spark.progress import publish_end

_LOOK_S: Final = 0.25


Query = DataStreamWriter | StreamingQuery


@dataclass(frozen=True, slots=True)
class Queries:
    """What a pipeline is made of: queries whose rows it counts, ready to start or started, and those that only
    accompany them."""

    main: Query | Mapping[str, Query]
    beside: Sequence[DataStreamWriter] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one micro-batch; `rows` and what follows `batch_ms` are of all batches of this run.

    Dead letters are records that the pipeline could not use, late those that came behind the watermark, as Spark counts
    them: after it has summed what it can."""

    batch: int
    batch_rows: int
    rows: int
    rows_per_s: float
    lag: int
    batch_ms: int
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    batches: int
    rows: int
    seconds: float
    stopped: bool
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0


def run(
    work: Query | Queries,
    *,
    once: bool,
    every: str | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Ended:
    """Until it is done (`once`: everything that is there now), stopped or failed. What it fails of is raised.

    `every` is Spark's way of saying an interval: a batch is begun that often.
    """
    asked = stop or threading.Event()
    queries = work if isinstance(work, Queries) else Queries(work)
    named = queries.main if isinstance(queries.main, Mapping) else {"": queries.main}
    started = time.monotonic()
    told = Tally(on_progress)
    running: list[StreamingQuery] = []
    try:
        for name, query in named.items():
            running.append(_start(query, once, every))
            told.watch(running[-1], name)
        running += [_start(query, once, every) for query in queries.beside]
        while any(each.isActive for each in running) and not asked.is_set() and not _failed(running):
            told.look()
            asked.wait(_LOOK_S)
    finally:
        for each in running:
            if each.isActive:
                each.stop()
    told.look()
    failure = _failed(running)
    if failure is not None and not asked.is_set():
        raise failure
    for each in running:
        publish_end(each)
    return told.ended(time.monotonic() - started, stopped=asked.is_set())


def _start(query: Query, once: bool, every: str | None) -> StreamingQuery:
    if isinstance(query, StreamingQuery):
        return query
    if once:
        query = query.trigger(availableNow=True)
    elif every is not None:
        query = query.trigger(processingTime=every)
    return query.start()


def _failed(queries: Sequence[StreamingQuery]) -> StreamingQueryException | None:
    return next((failure for each in queries if (failure := each.exception()) is not None), None)


@dataclass(slots=True)
class _Watched:
    query: StreamingQuery
    name: str
    seen: str = ""


@dataclass(slots=True)
class Tally:
    """Passes on every batch's progress once, and adds up."""

    on_progress: Callable[[Progress], None]
    watched: list[_Watched] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0

    def watch(self, query: StreamingQuery, name: str) -> None:
        self.watched.append(_Watched(query, name))

    def look(self) -> None:
        for watched in self.watched:
            for each in watched.query.recentProgress:
                if each["timestamp"] > watched.seen:
                    watched.seen = each["timestamp"]
                    self.count(watched.name, each)

    def count(self, name: str, each: Any) -> None:
        """One report of Spark's about a query."""
        # Late rows are also counted by batches without input, which only move the watermark.
        for state in each["stateOperators"]:
            self.late += state["numRowsDroppedByWatermark"]
            self.duplicates += (state["customMetrics"] or {}).get("numDroppedDuplicateRows", 0)
        if not each["numInputRows"]:
            return
        self.batches += 1
        self.rows += each["numInputRows"]
        self.dead_letters += _rejected(each["observedMetrics"])
        self.lags[name] = sum(_lag(source) for source in each["sources"])
        duration = each["durationMs"].get("triggerExecution", 0)
        progress = Progress(
            batch=each["batchId"],
            batch_rows=each["numInputRows"],
            rows=self.rows,
            rows_per_s=each["numInputRows"] / (duration / 1000) if duration else 0.0,
            lag=sum(self.lags.values()),
            batch_ms=duration,
            dead_letters=self.dead_letters,
            duplicates=self.duplicates,
            late=self.late,
            query=name or None,
        )
        self.on_progress(progress)

    def ended(self, seconds: float, *, stopped: bool) -> Ended:
        return Ended(self.batches, self.rows, seconds, stopped, self.dead_letters, self.duplicates, self.late)


def _rejected(observed: Any) -> int:
    """What `fields.useful` counts."""
    rows = [row.asDict() for name, row in (observed or {}).items() if name.startswith(OBSERVED)]
    return sum(row.get(DEAD_LETTERS) or 0 for row in rows)


def _lag(source: Any) -> int:
    try:
        end, latest = (json.loads(source[name] or "{}") for name in ("endOffset", "latestOffset"))
        return lag(end, latest)
    except (ValueError, TypeError, AttributeError):
        return 0  # a source that is not ours


@contextmanager
def stopped_by_signals() -> Any:
    """An event that Ctrl-C and SIGTERM set: a pipeline ends between looks, not in the middle of one."""
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
