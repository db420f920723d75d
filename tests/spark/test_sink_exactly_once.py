"""A micro-batch counts once: whoever dies wherever, whoever comes back from the dead. A real broker, Spark's calls."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.kit import Topics
from tests.spark.sink_kit import Run, batch_sink, be_task, committed, frame

from tidelog.client.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.spark.sink.ledger import BatchLost, EndedEarly, Ledger, identity
from tidelog.spark.sink.transactions import Fenced, Identity, Transactions


@pytest.fixture
def run(topics: Topics) -> Run:
    return Run(topics.bootstrap, topics.make(3))


def sees(run: Run, *values: Any) -> None:
    """The markers of a committed transaction may be a moment behind the word that it is."""
    expected = sorted(map(str, values))
    eventually(lambda: len(committed(run.bootstrap, run.topic)) >= len(expected))
    assert committed(run.bootstrap, run.topic) == expected


def decide_only(run: Run, batch: int, messages: list[Any]) -> None:
    """A driver that dies between the decision and the first commit."""
    ledger, transactions = run.ledger()
    ledger.decide(messages[0].run, batch, [each.prepared for each in messages])
    transactions.close()


def test_batches_appear_when_the_driver_commits_them_and_not_before(run: Run) -> None:
    messages = [run.task(0, 0, ["a", "b"]), run.task(0, 1, ["c"])]
    sees(run)
    run.commit(0, messages)
    sees(run, "a", "b", "c")
    run.batch(1, ["d"], ["e"])
    sees(run, "a", "b", "c", "d", "e")


def test_a_batch_that_is_planned_again_after_its_commit_is_skipped(run: Run) -> None:
    run.batch(0, ["a"], ["b"])
    messages = run.again().batch(0, ["a"], ["b"])
    assert [(each.skipped, each.rows, each.prepared) for each in messages] == [(True, 1, None)] * 2
    sees(run, "a", "b")


def test_killed_before_the_decision_the_batch_may_come_back_in_other_tasks_with_other_rows(run: Run) -> None:
    run.batch(0, ["a"])
    run.task(1, 0, ["b", "c"])
    run.task(1, 1, ["d"])
    again = run.again()
    again.batch(1, ["b"], ["c"], ["d"], ["e"])
    sees(run, "a", "b", "c", "d", "e")


def test_killed_after_the_decision_the_next_run_commits_what_was_written_and_skips_the_batch(run: Run) -> None:
    messages = [run.task(0, 0, ["a"]), run.task(0, 1, ["b"])]
    decide_only(run, 0, messages)
    sees(run)
    again = run.again().batch(0, ["a", "b"])  # planned as one task this time
    assert again[0].skipped
    sees(run, "a", "b")


def test_what_is_decided_is_not_undone_by_the_abort_that_spark_calls_when_a_commit_fails(run: Run) -> None:
    """The process that commits may be killed, or lose the coordinator, behind the decision; the driver lives on."""
    run.batch(0, ["x"])
    messages = [run.task(1, 0, ["a"]), run.task(1, 1, ["b"])]
    decide_only(run, 1, messages)
    run.abort(1, messages)
    assert run.again().batch(1, ["a", "b"])[0].skipped
    sees(run, "a", "b", "x")


def test_killed_amid_the_commits_the_next_run_goes_on_with_them(run: Run) -> None:
    messages = [run.task(0, number, [number]) for number in range(4)]
    decide_only(run, 0, messages)
    ledger, transactions = run.ledger()
    transactions.end(identity(messages[2].run.prefix, messages[2].prepared), commit=True)
    run.again().batch(0, [0, 1, 2, 3])
    sees(run, "0", "1", "2", "3")
    transactions.close()
    assert ledger.name.endswith(run.query_id)


def test_a_driver_that_comes_back_from_the_dead_cannot_decide(run: Run) -> None:
    run.batch(0, ["a"])
    old = [run.task(1, 0, ["b"])]
    new = run.again()
    fresh = [new.task(1, 0, ["b"])]
    with pytest.raises(Fenced):
        run.commit(1, old)
    new.commit(1, fresh)
    sees(run, "a", "b")


def test_a_driver_that_comes_back_before_the_new_run_has_a_task_still_wins_and_the_new_run_skips(run: Run) -> None:
    old = [run.task(0, 0, ["a"])]
    new = run.again()
    run.commit(0, old)
    assert new.batch(0, ["a"])[0].skipped
    sees(run, "a")


def test_a_task_of_a_dead_run_cannot_write_into_the_new_one(run: Run) -> None:
    zombie = run.task(0, 0, ["a"])
    new = run.again()
    new.batch(0, ["a"])
    _, transactions = run.ledger()
    with pytest.raises(Fenced):
        transactions.end(identity(zombie.run.prefix, zombie.prepared), commit=True)
    transactions.close()
    sees(run, "a")


def test_tasks_that_worked_under_different_runs_are_not_decided_together(run: Run) -> None:
    mine = run.task(0, 0, ["a"])
    other = run.again().task(0, 0, ["b"])
    with pytest.raises(KafkaError, match="did not all work under the same run"):
        run.commit(0, [mine, other])


class Overtaken(Transactions):
    """A rival takes over just after this one did."""

    rival: Callable[[], object] | None = None

    def init(self, name: str) -> Identity:
        mine = super().init(name)
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        return mine


@pytest.mark.parametrize("same", [True, False])
def test_of_two_that_take_over_at_once_the_later_one_has_it(run: Run, same: bool) -> None:
    run.batch(0, ["a"])
    new = run.again()
    other = new if same else run.again()
    ledger, transactions = other.ledger()
    slow = Overtaken(Cluster(run.bootstrap), transaction_timeout_ms=60_000)
    slow.rival = lambda: ledger.enter(other.run_id, 1, leads=True)
    mine = Ledger(slow, run.query_id)
    if same:
        assert mine.enter(new.run_id, 1, leads=True).run == ledger.enter(new.run_id, 1, leads=True).run
    else:
        with pytest.raises(Fenced):
            mine.enter(new.run_id, 1, leads=True)
    slow.close()
    transactions.close()
    other.batch(1, ["b"])
    sees(run, "a", "b")


@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_attempts_of_a_task_the_one_that_spark_names_counts(run: Run, winner: int) -> None:
    first = run.task(0, 0, ["a", "b"])
    second = run.task(0, 0, ["a", "b"], attempt=1)
    run.commit(0, [(first, second)[winner]])
    run.batch(1, ["c"])
    sees(run, "a", "b", "c")


def test_a_killed_attempt_holds_up_no_reader(run: Run) -> None:
    run.task(0, 0, ["a"])
    run.commit(0, [run.task(0, 0, ["a"], attempt=1)])
    _, transactions = run.ledger()
    assert transactions.open_names(f"tidelog-sink-{run.query_id}") == []
    transactions.close()
    sees(run, "a")


def test_what_a_killed_run_left_open_is_aborted_before_the_next_writes(run: Run) -> None:
    for number in range(3):
        run.task(0, number, [number])
    _, transactions = run.ledger()
    name = f"tidelog-sink-{run.query_id}"
    assert len(transactions.open_names(name)) == 3
    run.again().task(0, 0, ["x"])
    assert len(transactions.open_names(name)) == 1
    transactions.close()


def test_an_aborted_batch_leaves_nothing(run: Run) -> None:
    message = run.task(0, 0, ["a"])
    run.abort(0, [message, None])
    run.abort(0, [message, None])
    run.batch(0, ["b"])
    sees(run, "b")


def test_a_task_that_fails_aborts_what_it_wrote(run: Run) -> None:
    def rows() -> Any:
        yield frame(["a"])
        raise ValueError("the row behind is rotten")

    run.batch(0, ["x"])
    place = {"sql.streaming.queryId": run.query_id, "spark.jobGroup.id": run.run_id, "streaming.sql.batchId": "1"}
    be_task(0, 0, place)
    with pytest.raises(ValueError, match="rotten"):
        run.writer().write(rows())
    _, transactions = run.ledger()
    assert transactions.open_names(f"tidelog-sink-{run.query_id}") == []
    transactions.close()


def test_empty_tasks_and_empty_batches_cost_no_transaction(run: Run) -> None:
    assert run.batch(0, [], [])[0].prepared is None
    messages = run.batch(1, [], ["a"])
    assert messages[0].prepared is None
    sees(run, "a")


def test_a_checkpoint_that_was_set_back_skips_what_was_written(run: Run) -> None:
    for batch in range(3):
        run.batch(batch, [batch])
    again = run.again()
    for batch in range(4):
        again.batch(batch, [batch])
    sees(run, "0", "1", "2", "3")


def test_more_tasks_than_one_offset_can_list(run: Run) -> None:
    messages = [run.task(0, number, [number]) for number in range(120)]
    decide_only(run, 0, messages)
    run.again().batch(0, range(120))
    sees(run, *range(120))


def test_a_decided_batch_that_timed_out_is_named_and_not_passed_over(topics: Topics) -> None:
    run = Run(topics.bootstrap, topics.make(1), **{"kafka.transaction.timeout.ms": 500})
    messages = [run.task(0, 0, ["a"]), run.task(0, 1, ["b"])]
    decide_only(run, 0, messages)
    ledger, transactions = run.ledger()
    eventually(lambda: transactions.open_names(f"{ledger.name}-") == [])
    transactions.close()
    with pytest.raises(BatchLost, match=r"batch 0 was decided, but 2 of its 2 transactions, with 2 rows, were ended"):
        run.again().batch(0, ["a", "b"])


def test_a_batch_of_which_a_transaction_has_timed_out_is_not_decided_and_can_be_written_again(topics: Topics) -> None:
    """The first tasks of a batch wait for its last: that may take longer than the broker keeps a transaction open."""
    run = Run(topics.bootstrap, topics.make(1), **{"kafka.transaction.timeout.ms": 500})
    first = run.task(0, 0, ["a"])
    ledger, transactions = run.ledger()
    eventually(lambda: transactions.open_names(f"{ledger.name}-") == [])
    transactions.close()
    messages = [first, run.task(0, 1, ["b"])]
    with pytest.raises(EndedEarly, match=r"batch 0 .*\(tasks 0\b.* longer than kafka.transaction.timeout.ms"):
        run.commit(0, messages)
    run.abort(0, messages)
    again = run.again()
    again._options["kafka.transaction.timeout.ms"] = "60000"
    again.batch(0, ["a", "b"])
    sees(run, "a", "b")


def test_a_frame_written_exactly_once_appears_at_once_or_not_at_all(topics: Topics) -> None:
    topic = topics.make(2)
    writer = batch_sink(topics.bootstrap, topic, delivery="exactly-once")
    messages = []
    for number in range(2):
        be_task(number)
        messages.append(writer.write(iter([frame([number])])))
    be_task(1, 1)
    writer.write(iter([frame([1])]))  # an attempt that was overtaken
    assert committed(topics.bootstrap, topic) == []
    writer.commit(messages)
    assert committed(topics.bootstrap, topic) == ["0", "1"]

    failing = batch_sink(topics.bootstrap, topic, delivery="exactly-once")
    be_task(0)
    failing.abort([failing.write(iter([frame(["x"])])), None])
    assert committed(topics.bootstrap, topic) == ["0", "1"]


def test_a_frame_of_which_a_transaction_has_timed_out_does_not_appear_in_part(topics: Topics) -> None:
    topic = topics.make(1)
    options = {"delivery": "exactly-once", "kafka.transaction.timeout.ms": 60_000}
    writer = batch_sink(topics.bootstrap, topic, **options)
    messages = []
    for number in range(3):
        be_task(number)
        messages.append(writer.write(iter([frame([number])])))
    cluster = Cluster(topics.bootstrap)
    with cluster, Transactions(cluster, transaction_timeout_ms=60_000) as transactions:
        names = transactions.open_names(writer._prefix)
        assert len(names) == 3
        transactions.init(names[1])  # as the broker does with one that takes too long
        with pytest.raises(EndedEarly, match=r"1 of its 3 transactions have ended .*\(tasks 1\)"):
            writer.commit(messages)
        assert committed(topics.bootstrap, topic) == []
        writer.abort(messages)
        assert transactions.open_names(writer._prefix) == []
    assert committed(topics.bootstrap, topic) == []


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
