"""Spark writing to the broker: rows that lie in Parquet become records, at least once and exactly once."""

import time
from typing import Any

from bench.results import Limits, Result
from bench.target import Target

_ROWS, _RECORD_BYTES, _RUNS = 4_000_000, 100, 3
_BARS = {"at-least-once": 300, "exactly-once": 150}


def measure(target: Target, limits: Limits) -> list[Result]:
    from tidelog.spark import session

    rows = target.scaled(_ROWS)
    spark = session("bench", **{"spark.ui.enabled": False})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        directory = str(target.work_dir / "spark-sink-rows")
        made = spark.range(0, rows, 1, 2).selectExpr(
            "cast(id as string) as key", f"cast(repeat('x', {_RECORD_BYTES}) as binary) as value"
        )
        made.write.parquet(directory)
        frame = spark.read.parquet(directory)
        results = [_frame(target, frame, rows, delivery) for delivery in _BARS]
        return [*results, _stream(target, spark, directory, frame.schema, rows)]
    finally:
        spark.stop()


def _options(target: Target, topic: str, delivery: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": target.bootstrap, "topic": topic, "delivery": delivery}


def _result(name: str, rates: list[float], delivery: str) -> Result:
    best = max(rates)
    return Result(
        name=name,
        value=best,
        unit="k rows/s",
        target=f"≥ {_BARS[delivery]}",
        ok=best >= _BARS[delivery],
    )


def _frame(target: Target, frame: Any, rows: int, delivery: str) -> Result:
    rates = []
    for _ in range(_RUNS):
        topic = target.make_topic("spark-sink")
        assert topic is not None
        began = time.perf_counter()
        frame.write.format("tidelog").mode("append").options(**_options(target, topic, delivery)).save()
        rates.append(rows / (time.perf_counter() - began) / 1e3)
        target.delete_topic(topic)
    return _result(f"Spark sink, a frame {delivery}", rates, delivery)


def _stream(target: Target, spark: Any, directory: str, schema: Any, rows: int) -> Result:
    """A trigger a file; the first pays for loading what the others have."""
    topic = target.make_topic("spark-sink-stream")
    assert topic is not None
    query = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(directory)
        .writeStream.format("tidelog").options(**_options(target, topic, "exactly-once"))
        .option("checkpointLocation", str(target.work_dir / "spark-sink-checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    done = [each for each in query.recentProgress if each.numInputRows]
    assert sum(each.numInputRows for each in done) == rows
    rates = [each.numInputRows / each.durationMs["triggerExecution"] for each in done]
    target.delete_topic(topic)
    return _result("Spark sink, a stream exactly-once", rates, "exactly-once")
