"""How staged files come to count once, for readers who know nothing of Spark: they see whatever ends in `.parquet`.

Tasks write files that end otherwise, under `_tidelog/staging/<run>/`. The driver then writes the batch's manifest, the
list of these files and of the names they will have: a link that either appears whole or not at all, and only if nobody
has written one for this batch. That is the decision. Then the files are renamed.

* Killed before the manifest: no file of the batch is visible. The batch is written anew, in whatever tasks.
* Killed after it: the next run renames what is still to be renamed, and skips the batch.
* A driver come back from the dead finds the manifest of the run that replaced it, and stops. Staged files of earlier
  runs are removed only once a decision has made them useless.

Needs a directory that all executors see, on a file system with links and atomic renames: a disk, NFS, not an object
store.
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.spark.pipelines.files import DAY, DataFile

STATE: Final = "_tidelog"
"""Readers of directories skip names that begin with an underscore."""


class Superseded(Exception):
    """Another run of the same query has decided this batch."""


class AlreadyOwned(Exception):
    """The directory holds the work of another query, which did not end where this one begins."""


class FileCommits:
    """The manifests of one archive."""

    def __init__(self, root: Path, query_id: str) -> None:
        self._root, self._query_id = root, query_id
        self._commits = root / STATE / "commits"

    def last(self) -> int:
        """The last batch that was decided, -1 if there is none."""
        found = [path.name.removesuffix(".json") for path in self._commits.glob("*.json")]
        return max((int(name) for name in found if name.isdigit()), default=-1)

    def claim(self) -> None:
        """Makes the directory this query's own, or raises if it is another's."""
        owner = self._root / STATE / "query"
        self._commits.mkdir(parents=True, exist_ok=True)
        try:
            _create(owner, self._query_id)
        except FileExistsError:
            found = owner.read_text().strip()
            if found != self._query_id:
                raise AlreadyOwned(
                    f"{self._root} was written by query {found}, and this is query {self._query_id}: its checkpoint is "
                    "not the one this archive was written with, so rows would be archived twice. Use the old "
                    "checkpoint, or another directory"
                ) from None

    def staged(self, run_id: str, batch: int, task: int, attempt: int, day: str, number: int) -> tuple[str, str]:
        """Where a task's n-th file of a day is written, and where it will be read."""
        staged = f"{STATE}/staging/{run_id}/{batch}-{task}-{attempt}-{day}-{number}.staged"
        final = f"{DAY}={day}/{batch:010d}-{task:05d}-{number:03d}-{self._query_id[:8]}.parquet"
        return staged, final

    def decide(self, run_id: str, batch: int, files: Sequence[DataFile]) -> None:
        """From here on the files count, whatever happens."""
        manifest = {
            "query": self._query_id,
            "run": run_id,
            "batch": batch,
            "files": [[each.staged, each.final, each.rows] for each in files],
        }
        try:
            # The files must be found in their directory after a power cut, before anything says that they count.
            for directory in {(self._root / each.staged).parent for each in files}:
                _sync(directory)
            _create(self._manifest(batch), json.dumps(manifest))
        except (FileExistsError, FileNotFoundError) as found:
            # Staged files go only when another run's decision has made them useless.
            if isinstance(found, FileNotFoundError) or self._read(batch)["run"] != run_id:
                raise Superseded(f"batch {batch} was decided by another run of the query; this one stops") from None

    def decided(self, run_id: str, batch: int) -> bool:
        """Whether it is this run's files that count for the batch: they must then stay until they are renamed."""
        return self._manifest(batch).exists() and bool(self._read(batch)["run"] == run_id)

    def finish(self, batch: int) -> None:
        """Renames the files of a decided batch; those that are renamed already stay so."""
        manifest = self._read(batch)
        directories: set[Path] = set()
        for staged, final, _ in manifest["files"]:
            source, target = self._root / staged, self._root / final
            target.parent.mkdir(parents=True, exist_ok=True)
            directories |= {target.parent, target.parent.parent}
            try:
                source.rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise FileNotFoundError(f"{final} of batch {batch} is gone, staged and renamed") from None
        for directory in directories:
            _sync(directory)
        self._tidy(batch, manifest["run"])

    def _tidy(self, batch: int, run_id: str) -> None:
        """Takes away what can no longer count. Missing files are no matter: somebody else tidied."""
        for path in self._commits.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < batch - 1:
                path.unlink(missing_ok=True)
        staging = self._root / STATE / "staging"
        for run in staging.iterdir() if staging.exists() else ():
            if run.name != run_id:
                shutil.rmtree(run, ignore_errors=True)
                continue
            for path in run.iterdir():
                if int(path.name.split("-")[0]) <= batch:
                    path.unlink(missing_ok=True)

    def _manifest(self, batch: int) -> Path:
        return self._commits / f"{batch:010d}.json"

    def _read(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._manifest(batch).read_text())
        return found


def _create(path: Path, text: str) -> None:
    """The whole file appears at once, and only if there was none."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """New names in a directory survive a power cut only after this."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
