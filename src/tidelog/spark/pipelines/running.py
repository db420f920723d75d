"""Starts a pipeline's query, tells how it goes, and ends it when asked or when there is nothing left."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidelog.spark.positions import lag

_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one micro-batch; `rows` is of all batches of this run."""

    batch: int
    batch_rows: int
    rows: int
    rows_per_s: float
    lag: int
    batch_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    batches: int
    rows: int
    seconds: float
    stopped: bool


def run(
    writer: DataStreamWriter,
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
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    started = time.monotonic()
    query = writer.start()
    told = _Told(on_progress)
    try:
        while query.isActive and not asked.is_set():
            told.look(query)
            asked.wait(_LOOK_S)
    finally:
        if query.isActive:
            query.stop()
    told.look(query)
    failure = query.exception()
    if failure is not None and not asked.is_set():
        raise failure
    return Ended(told.batches, told.rows, time.monotonic() - started, asked.is_set())


class _Told:
    """Passes on every batch's progress once."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._last = -1
        self.batches = self.rows = 0

    def look(self, query: StreamingQuery) -> None:
        for each in query.recentProgress:
            if each["batchId"] <= self._last:
                continue
            self._last = each["batchId"]
            if not each["numInputRows"]:
                continue
            self.batches += 1
            self.rows += each["numInputRows"]
            self._on_progress(self._progress(each))

    def _progress(self, each: Any) -> Progress:
        duration = each["durationMs"].get("triggerExecution", 0)
        return Progress(
            batch=each["batchId"],
            batch_rows=each["numInputRows"],
            rows=self.rows,
            rows_per_s=each["numInputRows"] / (duration / 1000) if duration else 0.0,
            lag=sum(lag(_json(source["endOffset"]), _json(source["latestOffset"])) for source in each["sources"]),
            batch_ms=duration,
        )


def _json(text: Any) -> Any:
    import json

    return json.loads(text) if isinstance(text, str) else text


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


__all__ = ["Ended", "Progress", "StreamingQueryException", "run", "stopped_by_signals"]
