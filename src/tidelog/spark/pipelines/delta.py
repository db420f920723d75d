"""Commits to a Delta table without a JVM library: tasks write files, the driver adds them to the table's log.

The commit carries the query's id and the batch's number as an application transaction, so a batch that is planned again
is recognised by the table itself. Files of attempts that did not count are in no commit, and no Delta reader sees them.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction, create_table_with_add_actions

from tidelog.spark.pipelines.files import DAY, DataFile

_ATTEMPTS: Final = 20


class DeltaCommits:
    def __init__(self, root: Path, query_id: str) -> None:
        self._root, self._app = root, f"tidelog-{query_id}"

    def last(self) -> int:
        """The last batch of this query that is in the table, -1 if none is."""
        return self._last(self._table())

    def add(self, batch: int, files: Sequence[DataFile], schema: Any) -> bool:
        """Adds the files; False if the batch is in the table already. `schema` is Arrow's, with the day."""
        for attempt in range(_ATTEMPTS):
            table = self._table()
            if self._last(table) >= batch:
                return False
            # No retries within: another driver may have committed this very batch in the meantime.
            once = CommitProperties(app_transactions=[Transaction(self._app, batch)], max_commit_retries=0)
            try:
                self._commit(table, [_action(each) for each in files], Schema.from_arrow(schema), once)
                return True
            except (CommitFailedError, DeltaError):
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * (attempt + 1))
        return False

    def names(self) -> set[str]:
        """Of the files that are in the table."""
        table = self._table()
        return {Path(uri).name for uri in table.file_uris()} if table is not None else set()

    def _commit(self, table: DeltaTable | None, actions: list[Any], schema: Schema, once: CommitProperties) -> None:
        if table is None:
            create_table_with_add_actions(
                str(self._root), schema, actions, mode="error", partition_by=[DAY], commit_properties=once
            )
        else:
            table.create_write_transaction(actions, "append", schema, [DAY], commit_properties=once)

    def _table(self) -> DeltaTable | None:
        return DeltaTable(str(self._root)) if DeltaTable.is_deltatable(str(self._root)) else None

    def _last(self, table: DeltaTable | None) -> int:
        version = table.transaction_version(self._app) if table is not None else None
        return -1 if version is None else version


def _action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.final,
        size=file.size,
        partition_values={DAY: file.day},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
