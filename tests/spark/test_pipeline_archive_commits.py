"""Archives, killed at every step of a commit: what raw readers find is each row once. Spark's calls, without Spark."""

import datetime
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import DateType, LongType, StructField, StructType
from tests.spark.sink_kit import be_task

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.archive_sink import Archived, ArchiveDataSource
from tidelog.spark.pipelines.commits import AlreadyOwned, FileCommits, Superseded
from tidelog.spark.pipelines.delta import DeltaCommits

SCHEMA = StructType([StructField("id", LongType()), StructField("date", DateType())])
DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), None]


class Killed(BaseException):
    """The process ends here."""


class Run:
    def __init__(self, root: Path, kind: str, query_id: str | None = None, **options: str) -> None:
        self.root, self.kind, self.options = root, kind, options
        self.query_id, self.run_id = query_id or str(uuid.uuid4()), str(uuid.uuid4())

    def again(self) -> "Run":
        return Run(self.root, self.kind, self.query_id, **self.options)

    def writer(self) -> Any:
        options = {"path": str(self.root), "archive.format": self.kind, **self.options}
        return ArchiveDataSource(options).streamWriter(SCHEMA, False)

    def task(self, batch: int, number: int, ids: list[int]) -> Archived:
        place = {
            "sql.streaming.queryId": self.query_id,
            "spark.jobGroup.id": self.run_id,
            "streaming.sql.batchId": str(batch),
        }
        be_task(number, 0, place)
        rows = pa.record_batch(
            {"id": pa.array(ids, pa.int64()), "date": pa.array([DAYS[i % 3] for i in ids], pa.date32())}
        )
        return self.writer().write(iter([rows.slice(0, 2), rows.slice(2)]))

    def batch(self, batch: int, *tasks: list[int]) -> None:
        messages = [self.task(batch, number, ids) for number, ids in enumerate(tasks)]
        self.writer().commit(messages, batch)


def ids(run: Run) -> list[int]:
    """By readers that know nothing of us."""
    if run.kind == "delta":
        if not DeltaTable.is_deltatable(str(run.root)):
            return []
        found = DeltaTable(str(run.root)).to_pyarrow_table().to_pydict()
        pairs = list(zip(found["id"], found["date"], strict=True))
    else:
        if not list(run.root.rglob("*.parquet")):
            return []
        query = f"select id, date from read_parquet('{run.root}/**/*.parquet', hive_partitioning=true)"
        pairs = duckdb.sql(query).fetchall()
        whole = pq.read_table(run.root)  # a directory, as pandas reads it
        assert sorted(whole["id"].to_pylist()) == sorted(number for number, _ in pairs)
    assert all(day == DAYS[number % 3] for number, day in pairs)
    return sorted(number for number, _ in pairs)


kinds = pytest.mark.parametrize("kind", ["parquet", "delta"])


@kinds
def test_batches_appear_when_they_are_committed(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    messages = [run.task(0, 0, [0, 1, 2, 3]), run.task(0, 1, [4]), run.task(0, 2, [])]
    if kind == "parquet":
        assert ids(run) == []
    run.writer().commit(messages, 0)
    assert ids(run) == [0, 1, 2, 3, 4]
    run.batch(1, [5], [6])
    assert ids(run) == [0, 1, 2, 3, 4, 5, 6]
    run.again().batch(1, [5, 6])
    assert ids(run) == [0, 1, 2, 3, 4, 5, 6]


@kinds
def test_an_aborted_batch_leaves_nothing(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    run.batch(0, [0])
    message = run.task(1, 0, [1])
    run.writer().abort([message, None], 1)
    run.batch(1, [2])
    assert ids(run) == [0, 2]
    assert sum(path.is_file() for path in run.root.rglob("*.parquet")) == 2


@kinds
def test_what_is_decided_is_not_undone_by_the_abort_that_spark_calls_when_a_commit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The process that commits may be killed, or the disk fill up, behind the decision; the driver lives on."""
    run = Run(tmp_path, kind)
    run.batch(0, [0])
    messages = [run.task(1, 0, [1, 2]), run.task(1, 1, [3])]
    decision = (DeltaCommits, "add") if kind == "delta" else (FileCommits, "decide")
    decide = getattr(*decision)

    def dying(*arguments: Any) -> None:
        decide(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(*decision, dying)
        with pytest.raises(Killed):
            run.writer().commit(messages, 1)
    run.writer().abort(messages, 1)
    run.again().batch(1, [1], [2], [3])
    assert ids(run) == [0, 1, 2, 3]


def test_a_failing_task_takes_its_files_away(tmp_path: Path) -> None:
    run = Run(tmp_path, "parquet")
    run.batch(0, [0])

    def rows() -> Iterator[Any]:
        yield pa.record_batch({"id": pa.array([1], pa.int64()), "date": pa.array([DAYS[1]], pa.date32())})
        raise ValueError("rotten")

    place = {"sql.streaming.queryId": run.query_id, "spark.jobGroup.id": run.run_id, "streaming.sql.batchId": "1"}
    be_task(0, 0, place)
    with pytest.raises(ValueError, match="rotten"):
        run.writer().write(rows())
    assert not list(tmp_path.rglob("*.staged"))


STEPS = 60
"""More than a commit of this size has."""


@kinds
@pytest.mark.parametrize("planned_again", [[[10, 11, 12, 13, 14]], [[10], [11, 12], [13, 14]]])
def test_killed_at_any_step_the_rows_are_there_once_after_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, planned_again: list[list[int]]
) -> None:
    for step in range(STEPS):
        root = tmp_path / str(step)
        run = Run(root, kind)
        run.batch(0, [0, 1, 2])
        with monkeypatch.context() as patched:
            killed = not _survives(run, patched, step)
        seen = ids(run)  # what is visible between death and the next run is never twice
        assert len(seen) == len(set(seen))
        again = run.again()
        again.batch(1, *planned_again)
        again.batch(2, [20])
        assert ids(run) == [0, 1, 2, 10, 11, 12, 13, 14, 20]
        assert not list(root.rglob("*.staged"))
        if not killed:
            assert step > 4
            return
    raise AssertionError(f"a commit has more than {STEPS} steps")


def _survives(run: Run, patched: pytest.MonkeyPatch, step: int) -> bool:
    """Writes and commits batch 1, and dies before the step-th thing it would do to the file system."""
    left = iter(range(step, -1, -1))

    def mortal(function: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            if next(left, 0) == 0:
                raise Killed
            return function(*arguments, **more)

        return call

    for place, name in ((os, "link"), (os, "fsync"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir")):
        patched.setattr(place, name, mortal(getattr(place, name)))
    patched.setattr(shutil, "rmtree", mortal(shutil.rmtree))
    try:
        run.batch(1, [10, 11, 12], [13, 14])
    except Killed:
        return False
    return True


def test_a_driver_that_comes_back_from_the_dead_finds_itself_replaced(tmp_path: Path) -> None:
    old = Run(tmp_path, "parquet")
    old.batch(0, [0])
    late = [old.task(1, 0, [1, 2])]
    old.again().batch(1, [1], [2])
    with pytest.raises(Superseded):
        old.writer().commit(late, 1)
    assert ids(old) == [0, 1, 2]


def test_a_driver_that_comes_back_adds_nothing_to_a_table(tmp_path: Path) -> None:
    old = Run(tmp_path, "delta")
    old.batch(0, [0])
    late = [old.task(1, 0, [1, 2])]
    old.again().batch(1, [1], [2])
    old.writer().commit(late, 1)
    assert ids(old) == [0, 1, 2]


@kinds
def test_another_query_may_not_write_into_the_directory(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    run.batch(0, [0])
    with pytest.raises(AlreadyOwned, match="rows would be archived twice"):
        Run(tmp_path, kind).batch(0, [0])
    assert ids(run) == [0]


def test_files_are_closed_when_they_are_big_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.spark.pipelines.files.HELD_ROWS", 1000)
    run = Run(tmp_path, "parquet", **{"target.file.mb": "0.02", "compression": "none"})
    be_task(0, 0, {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r", "streaming.sql.batchId": "0"})
    rows = pa.record_batch({"id": pa.array(range(1000), pa.int64()), "date": pa.array([DAYS[0]] * 1000, pa.date32())})
    message = run.writer().write(iter([rows] * 20))
    assert len(message.files) > 3
    assert sum(file.rows for file in message.files) == 20_000
    run.writer().commit([message], 0)
    assert len(list(tmp_path.rglob("*.parquet"))) == len(message.files)


def test_old_manifests_are_taken_away(tmp_path: Path) -> None:
    run = Run(tmp_path, "parquet")
    for batch in range(6):
        run.batch(batch, [batch])
    assert len(list((tmp_path / "_tidelog" / "commits").glob("*.json"))) == 2
    assert FileCommits(tmp_path, run.query_id).last() == 5


def test_what_the_sink_needs_is_asked_for() -> None:
    with pytest.raises(InvalidOption, match="path is not set"):
        ArchiveDataSource({}).streamWriter(SCHEMA, False)
    with pytest.raises(InvalidOption, match="parquet or delta"):
        ArchiveDataSource({"path": "x", "archive.format": "csv"}).streamWriter(SCHEMA, False)
    with pytest.raises(InvalidOption, match="no column date"):
        ArchiveDataSource({"path": "x"}).streamWriter(StructType([]), False)
