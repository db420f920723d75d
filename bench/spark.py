"""Spark on the broker: a batch read and a stream, beside the same rows scanned from Parquet by the same Spark."""

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import native, requests
from bench.produce import check_end
from bench.results import Limits, Result
from bench.target import Target
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record

_ROWS, _PER_BATCH, _RECORD_BYTES = 10_000_000, 9_000, 100
_TRIGGER_ROWS = 1_000_000
_SMALL_TRIGGERS = 12
_RUNS = 4


def measure(target: Target, limits: Limits) -> list[Result]:
    from tidelog.spark import session

    topic = target.make_topic("spark", config={"retention.ms": "-1"})  # its timestamps are old
    assert topic is not None
    batches = target.scaled(_ROWS) // _PER_BATCH
    rows = batches * _PER_BATCH
    request = target.work_dir / "spark-request"
    request.write_bytes(requests.produce(topic, _random_batch(), acks=1))
    native.run("blast", "send", target.host, target.port, request, batches, 4)
    check_end(target, topic, rows)

    spark = session("bench", **{"spark.ui.enabled": False})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        results = _batch(spark, target, topic, rows)
        read_rate = results[0].value
        results += [_stream(spark, target, topic, rows, read_rate), _small_triggers(spark, target)]
        peak = _worker_peak_mb()
    finally:
        spark.stop()
    target.delete_topic(topic)
    results.append(Result(name="Spark reader task, peak memory", value=peak, unit="MB", target="≤ 300", ok=peak <= 300))
    return results


def _random_batch() -> bytes:
    """Values that no format can make smaller: every reader moves the same bytes."""
    dice = random.Random(7)
    return build_batch(Record(i, 1_700_000_000_000 + i, None, dice.randbytes(_RECORD_BYTES)) for i in range(_PER_BATCH))


def _source(spark: Any, target: Target, topic: str, *, stream: bool = False) -> Any:
    reader = (spark.readStream if stream else spark.read).format("tidelog")
    return reader.options(**_options(target, topic))


def _options(target: Target, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": target.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def _rate(rows: int, run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return rows / (time.perf_counter() - began) / 1e6


def _batch(spark: Any, target: Target, topic: str, rows: int) -> list[Result]:
    from tidelog.spark import read_topics

    source = _source(spark, target, topic).load()
    frame = read_topics(spark, **_options(target, topic))
    directory = str(target.work_dir / "spark-parquet")
    source.write.option("parquet.enable.dictionary", "false").parquet(directory)
    parquet = spark.read.parquet(directory)
    counted, rates = [], {"frame": [0.0], "source": [0.0], "parquet": [0.0]}
    for _ in range(_RUNS):  # in turns: what else the machine does hits all alike
        counted.append(_rate(rows, source.count))
        for name, rows_of in (("frame", frame), ("source", source), ("parquet", parquet)):
            write = rows_of.write.format("noop").mode("overwrite")
            rates[name].append(_rate(rows, write.save))
    best = {name: max(seen) for name, seen in rates.items()}
    framed, sourced = best["frame"] / best["parquet"], best["source"] / best["parquet"]
    return [
        Result(
            name='Spark batch read, format("tidelog"), all columns',
            value=best["source"],
            unit="M rows/s",
            ratio=sourced,
            limit="Parquet scan",
            detail={"parquet_m_rows_s": best["parquet"]},
        ),
        Result(
            name="Spark batch read, read_topics, all columns",
            value=best["frame"],
            unit="M rows/s",
            ratio=framed,
            limit="Parquet scan",
            target="ratio ≥ 0.7",
            ok=framed >= 0.7,
            detail={"parquet_m_rows_s": best["parquet"]},
        ),
        Result(
            name="Spark batch read, count()",
            value=max(counted),
            unit="M rows/s",
            target="≥ 1.5",
            ok=max(counted) >= 1.5,
        ),
    ]


def _stream(spark: Any, target: Target, topic: str, rows: int, batch_rate: float) -> Result:
    stream = _source(spark, target, topic, stream=True).option("maxOffsetsPerTrigger", _TRIGGER_ROWS).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(target.work_dir / "spark-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    full = [p for p in query.recentProgress if p.numInputRows >= _TRIGGER_ROWS // 2][1:]  # the first one compiles
    seconds = sum(p.durationMs["triggerExecution"] for p in full) / 1000
    rate = sum(p.numInputRows for p in full) / seconds / 1e6
    return Result(
        name="Spark stream, 1 M rows a trigger",
        value=rate,
        unit="M rows/s",
        ratio=rate / batch_rate,
        limit="batch read",
        target="ratio ≥ 0.4",
        ok=rate >= 0.4 * batch_rate,
    )


def _small_triggers(spark: Any, target: Target) -> Result:
    from confluent_kafka import Producer

    topic = target.make_topic("spark-small", partitions=12)
    assert topic is not None
    producer = Producer({"bootstrap.servers": target.bootstrap})
    query = (
        _source(spark, target, topic, stream=True)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(target.work_dir / "spark-small-checkpoint"))
        .start()
    )
    for turn in range(_SMALL_TRIGGERS):
        for i in range(100):
            producer.produce(topic, key=b"%d" % i, value=b"%d" % turn)
        producer.flush()
        query.processAllAvailable()
    took = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows][2:]
    query.stop()
    target.delete_topic(topic)
    return Result(
        name="Spark stream, a small trigger, p50",
        value=statistics.median(took),
        unit="s",
        target="≤ 0.5",
        ok=statistics.median(took) <= 0.5,
        detail={"max_s": max(took)},
    )


def _worker_peak_mb() -> float:
    """The most memory that any of Spark's Python workers ever had."""
    peaks = [0.0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if b"pyspark.daemon" not in (status.parent / "cmdline").read_bytes():
                continue
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            peaks.append(int(lines["VmHWM"].split()[0]) / 1000)
        except (OSError, KeyError):
            continue
    return max(peaks)
