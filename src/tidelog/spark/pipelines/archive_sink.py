"""The streaming sink `tidelog_archive`: a frame with a column `date` becomes Parquet files or a Delta table.

Options: `path`; `archive.format` (parquet or delta); `target.file.mb`; `compression`. What makes a batch count once is
told in `commits` and `delta`.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.commits import FileCommits
from tidelog.spark.pipelines.files import DAY, FORMATS, DataFile, DayFiles
from tidelog.spark.sink.writer import task_place
from tidelog.spark.workers import keep_modules

NAME: Final = "tidelog_archive"


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        path, kind = self.options.get("path"), self.options.get("archive.format", "parquet")
        if not path:
            raise InvalidOption("path is not set: the directory of the archive")
        if kind not in FORMATS:
            raise InvalidOption(f"archive.format is {kind!r}; it may be {' or '.join(FORMATS)}")
        if DAY not in schema.fieldNames():
            raise InvalidOption(f"the frame has no column {DAY}, by which an archive is divided")
        target = int(float(self.options.get("target.file.mb", "128")) * (1 << 20))
        return ArchiveWriter(Path(path), kind, target, self.options.get("compression", "zstd"))


@dataclass(frozen=True)
class Archived(WriterCommitMessage):
    """A task's word to the driver."""

    query_id: str
    run_id: str
    files: tuple[DataFile, ...]
    schema: bytes | None
    skipped: bool = False


class ArchiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, root: Path, kind: str, target_bytes: int, compression: str) -> None:
        self._root, self._kind = root, kind
        self._target_bytes, self._compression = target_bytes, compression

    def write(self, iterator: Iterator[Any]) -> Archived:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("the archive's write() runs in a Spark task only")
        query_id, run_id, batch = task_place(task)
        if self._last(query_id) >= batch:
            # Drained, not left: a source that sees its reader go away takes that for a failure.
            for _ in iterator:
                pass
            return Archived(query_id, run_id, (), None, skipped=True)
        number, attempt = task.partitionId(), task.taskAttemptId()
        commits = FileCommits(self._root, query_id)

        def name(day: str, count: int) -> tuple[str, str]:
            if self._kind == "delta":
                # No two attempts share a name, and only what the table's log names is read.
                unique = f"{DAY}={day}/{batch:010d}-{number:05d}-{count:03d}-{uuid.uuid4().hex[:12]}.parquet"
                return unique, unique
            return commits.staged(run_id, batch, number, attempt, day, count)

        files = DayFiles(self._root, name, target_bytes=self._target_bytes, compression=self._compression)
        seen: list[Any] = []
        try:
            written = files.write(_noting_schema(iterator, seen))
        except BaseException:
            files.discard()
            raise
        schema = seen[0].serialize().to_pybytes() if seen else None
        keep_modules("archive")
        return Archived(query_id, run_id, tuple(written), schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        archived = [each for each in messages if isinstance(each, Archived)]
        files = [file for each in archived for file in each.files]
        if not archived:
            return
        query_id, run_id = archived[0].query_id, archived[0].run_id
        skipped = all(each.skipped for each in archived)
        if self._kind == "delta":
            if files:
                self._add_to_table(query_id, batchId, archived, files)
            return
        commits = FileCommits(self._root, query_id)
        if skipped:
            # Decided by a run that may have died before it was done.
            commits.finish(commits.last())
        elif files:
            commits.decide(run_id, batchId, files)
            commits.finish(batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark also calls this when `commit` failed, or its process died: that may have been behind the decision."""
        archived = [each for each in messages if isinstance(each, Archived) and each.files]
        if archived:
            counts = self._counting(archived[0].query_id, archived[0].run_id, batchId)
            for file in (file for each in archived for file in each.files if not counts(file)):
                (self._root / file.staged).unlink(missing_ok=True)

    def _counting(self, query_id: str, run_id: str, batch: int) -> Callable[[DataFile], bool]:
        """Tells the files that count already."""
        if self._kind == "delta":
            from tidelog.spark.pipelines.delta import DeltaCommits

            names = DeltaCommits(self._root, query_id).names()
            return lambda file: Path(file.final).name in names
        decided = FileCommits(self._root, query_id).decided(run_id, batch)
        return lambda _: decided

    def _add_to_table(self, query_id: str, batch: int, archived: Sequence[Archived], files: list[DataFile]) -> None:
        from tidelog.spark.pipelines.delta import DeltaCommits

        schema = next(each.schema for each in archived if each.schema is not None)
        if not DeltaCommits(self._root, query_id).add(batch, files, pa.ipc.read_schema(pa.py_buffer(schema))):
            self.abort(list(archived), batch)

    def _last(self, query_id: str) -> int:
        commits = FileCommits(self._root, query_id)
        commits.claim()  # another query's batches have the same numbers, and may hold the same records
        if self._kind == "delta":
            from tidelog.spark.pipelines.delta import DeltaCommits

            return DeltaCommits(self._root, query_id).last()
        return commits.last()


def _noting_schema(batches: Iterator[Any], into: list[Any]) -> Iterator[Any]:
    for batch in batches:
        if not into:
            into.append(batch.schema)
        yield batch
