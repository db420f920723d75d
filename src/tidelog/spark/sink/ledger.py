"""How a micro-batch comes to count once.

Every task writes its rows in a transaction of its own and leaves it open; the driver, when all have, decides. The
decision is one small transaction: a committed offset of the query's sink group that says "up to batch N", with the list
of the tasks' transactions in its metadata. Then these are committed one by one.

* Killed before the decision: nothing of the batch is visible, and never will be. Spark plans the batch again, with
  whatever tasks and rows it likes.
* Killed after it: whoever comes next commits what is on the list, and skips the batch.
* A driver or task of an earlier run (a zombie): each run, before it writes anything, takes over the transactional id
  under which decisions are made. From then on no earlier run can decide, and only then are its transactions aborted.
  Names of transactions carry the run's number, so runs never touch each other's by accident.

Rows need not come back the same or in the same tasks when a batch is planned again. One thing can go wrong: nobody
comes back to commit what is on the list before the broker ends those transactions for taking too long
(`kafka.transaction.timeout.ms`). That is noticed and named, not passed over.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.sink.transactions import Fenced, Identity, Transactions

LISTED_MAX: Final = 100
"""Transactions in one committed offset: Kafka allows its metadata 4,096 bytes. More are spread over further groups."""
_POLL_S: Final = 0.02
_PATIENCE_S: Final = 10.0


class Run(NamedTuple):
    """A run of a query that may decide: no other has taken over since."""

    run_id: str
    decider: Identity

    @property
    def prefix(self) -> str:
        """Of the names of its transactions."""
        return f"{self.decider.name}-{self.decider.producer_id}.{self.decider.epoch}-"


class Prepared(NamedTuple):
    """A task's transaction: all its rows are written, and it is open."""

    task: str
    producer_id: int
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class State:
    """What the ledger says. `batch` is the last one decided, -1 before the first; `prepared` are its transactions."""

    run: Run
    batch: int
    decided_by: str
    prepared: tuple[Prepared, ...]


class BatchLost(KafkaError):
    """A decided batch whose transactions were ended by the broker before they were committed."""

    code = ErrorCode.INVALID_TXN_STATE


class EndedEarly(Fenced):
    """A transaction has ended before all were ready to be committed, so none is."""

    code = ErrorCode.INVALID_TXN_STATE


class Ledger:
    """Of one query. `name` is its sink group, the id under which it decides, and how its transactions begin."""

    def __init__(self, transactions: Transactions, query_id: str) -> None:
        self._transactions = transactions
        self.name = f"tidelog-sink-{query_id}"

    def enter(self, run_id: str, batch: int, *, leads: bool) -> State:
        """The state under which a task of this run may work. The first to come takes over from earlier runs: one task
        leads, and the others wait for it a while, so that they do not take over from one another."""
        deadline = time.monotonic() + (0 if leads else _PATIENCE_S)
        while True:
            state = self._read()
            if state is not None and state.run.run_id == run_id:
                return state
            if time.monotonic() >= deadline:
                try:
                    return self._take_over(run_id, batch)
                except Fenced:
                    # Two at once: the later one has it. If that is a task of this run, it has it for this one too.
                    state = self._read()
                    if state is None or state.run.run_id != run_id:
                        raise
                    return state
            time.sleep(_POLL_S)

    def decide(self, run: Run, batch: int, prepared: Sequence[Prepared]) -> None:
        """The batch counts from here on, whatever happens. Raises Fenced if another run has taken over."""
        self._write(run, batch, run.prefix, prepared)

    def decided(self, batch: int) -> bool:
        """Whether the batch counts: what was written for it must then not be aborted. A decision that is under way is
        waited for."""
        state = self._read()
        return state is not None and state.batch >= batch

    def finish(self, prefix: str, batch: int, prepared: Sequence[Prepared]) -> None:
        """Commits the transactions of a decided batch; those that are committed already stay so."""
        lost = []
        for each in prepared:
            try:
                self._transactions.end(identity(prefix, each), commit=True)
            except KafkaError as error:
                if not isinstance(error, Fenced) and error.code != ErrorCode.INVALID_TXN_STATE:
                    raise
                lost.append(each)
        if lost:
            rows, tasks = sum(each.rows for each in lost), ", ".join(each.task for each in lost)
            raise BatchLost(
                f"batch {batch} was decided, but {len(lost)} of its {len(prepared)} transactions, with {rows} rows, "
                f"were ended by the broker before they could be committed (tasks {tasks}): "
                "the query was down for longer than kafka.transaction.timeout.ms. The rows of the other tasks are in "
                f"the topic already. Deleting the group {self.name} makes the query write the whole batch again, with "
                "those rows twice"
            )

    def abort_open(self, prefix: str) -> None:
        """Ends what nobody will end: transactions of killed tasks would hold up readers until they time out."""
        for name in self._transactions.open_names(prefix):
            self._transactions.init(name)

    def _take_over(self, run_id: str, batch: int) -> State:
        decider = self._transactions.init(self.name)
        # From here on nobody else can decide, so what is read now stays true.
        old = self._read()
        if old is not None and old.batch >= batch:
            self.finish(old.decided_by, old.batch, old.prepared)
        self.abort_open(f"{self.name}-")
        run = Run(run_id, decider)
        if old is None:
            self._write(run, -1, run.prefix, ())
        else:
            self._write(run, old.batch, old.decided_by, old.prepared)
        state = self._read()
        if state is None or state.run != run:
            raise Fenced(f"another run of the query took over {self.name}", ErrorCode.PRODUCER_FENCED)
        return state

    # --- the group's offsets ------------------------------------------------------------------------------------------

    def _write(self, run: Run, batch: int, decided_by: str, prepared: Sequence[Prepared]) -> None:
        lists = [prepared[at : at + LISTED_MAX] for at in range(0, len(prepared), LISTED_MAX)] or [()]
        for number, listed in enumerate(lists):
            entry: dict[str, Any] = {"tx": [list(each) for each in listed]}
            if number == 0:
                entry |= {
                    "run": run.run_id,
                    "pid": run.decider.producer_id,
                    "epoch": run.decider.epoch,
                    "by": decided_by.removeprefix(self.name),
                    "lists": len(lists),
                }
            text = json.dumps(entry, separators=(",", ":"))
            self._transactions.commit_offset(run.decider, self._group(number), batch + 1, text)
        self._transactions.end(run.decider, commit=True)

    def _read(self) -> State | None:
        found = self._transactions.committed(self.name)
        if found is None:
            return None
        offset, text = found
        try:
            head = json.loads(text)
            rows = list(head["tx"])
            for number in range(1, head["lists"]):
                more = self._transactions.committed(self._group(number))
                rows += json.loads(more[1])["tx"] if more is not None else []
            run = Run(head["run"], Identity(self.name, head["pid"], head["epoch"]))
            prepared = tuple(Prepared(*row) for row in rows)
            return State(run, offset - 1, self.name + head["by"], prepared)
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaError(f"the offset of group {self.name} was not written by a tidelog sink: {error!r}") from None

    def _group(self, number: int) -> str:
        return self.name if number == 0 else f"{self.name}-{number}"


def check_open(transactions: Transactions, what: str, prefix: str, prepared: Sequence[Prepared]) -> None:
    """To be asked before anything is committed. The first tasks' transactions wait for the last task: if that takes
    long, the broker may have lost patience with them, and to commit the others would show a part."""
    ended = [each.task for each in prepared if not transactions.is_open(identity(prefix, each))]
    if ended:
        raise EndedEarly(
            f"{what} is not committed: {len(ended)} of its {len(prepared)} transactions have ended before all tasks "
            f"had written (tasks {', '.join(ended)}), and nothing of it is visible. Another run has taken over, or it "
            "took longer than kafka.transaction.timeout.ms: raise that, or write less at a time (maxOffsetsPerTrigger)"
        )


def identity(prefix: str, prepared: Prepared) -> Identity:
    return Identity(prefix + prepared.task, prepared.producer_id, prepared.epoch)
