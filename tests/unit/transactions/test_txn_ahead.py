"""Producers that begin their next transaction while the end of the last one is on its way to the disk."""

from collections.abc import Collection
from random import Random
from typing import Any

import pytest
from txn_sim import P0, P1, TIMEOUT_MS, TXN, Sim, add, code_of, end, init

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.transactions.ahead import nowhere
from tidelog.transactions.context import Markers
from tidelog.transactions.draft import PARKED_MS
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest

P2 = TopicPartition("out", 2)
END = 7
"""Where every log ends when the first transaction does. Its marker is at that place, and the log longer by one."""


class Ahead(Sim):
    """A coordinator that is a broker's alone, so that it can see where the logs end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.log_end = END
        super().__init__(*arguments, **{"ends_of": self.ends_of, **options})
        self.marking = False

    def ends_of(
        self, partitions: Collection[TopicPartition], *, ended_by: int | None = None
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.log_end)

    def place(self) -> Markers:
        """The markers that were decided last are in their logs."""
        markers = self.markers[-1]
        assert isinstance(markers, Markers)
        self.shard.markers_placed(markers)
        self.log_end += 1
        return markers

    def safe(self, markers: Markers) -> None:
        """They are on disk, and nobody waited for that."""
        assert self.shard.markers_safe(markers)

    def verified(self, who: Identity, *partitions: TopicPartition) -> dict[TopicPartition, ErrorCode]:
        given: list[dict[TopicPartition, ErrorCode]] = []

        def decide() -> Outcome[Any, Any]:
            outcome = self.shard.vouch(TXN, who, partitions, 4, self.now_ms)
            assert outcome.response is not None
            given.append(outcome.response)
            return outcome

        self.run(decide)
        return given[0]


@pytest.fixture
def sim() -> Ahead:
    return Ahead().load()


def ended(sim: Ahead, *partitions: TopicPartition) -> tuple[Identity, Markers]:
    """A transaction whose markers are in their logs, and not safe yet."""
    who = sim.init()
    sim.add(who, *partitions)
    assert sim.end(who) is ErrorCode.NONE
    return who, sim.place()


def test_the_next_transaction_waits_for_no_sync_of_the_last(sim: Ahead) -> None:
    who, first = ended(sim, P0, P1)
    written = len(sim.log)
    assert first.ends == {P0: END, P1: END}
    assert sim.add(who, P1) is ErrorCode.NONE
    assert sim.verified(who, P1) == {P1: ErrorCode.NONE}
    assert sim.verified(who, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}, "it was not added"
    sim.safe(first)
    assert len(sim.log) == written, "one record will say it all"

    assert sim.end(who) is ErrorCode.NONE
    assert len(sim.log) == written + 1
    assert (sim.txn.state, sim.txn.partitions) == (State.PREPARE_COMMIT, {P1})
    second = sim.place()
    assert second.ends == {P1: END + 1}


def test_an_end_waits_until_the_markers_before_it_are_safe(sim: Ahead) -> None:
    who, first = ended(sim, P0, P1)
    sim.add(who, P0)
    waiter = sim.submit(end(who), 4)
    assert waiter not in sim.answers
    sim.report(first)
    assert code_of(sim.answers[waiter]) is ErrorCode.NONE
    assert (sim.txn.state, sim.txn.partitions) == (State.PREPARE_COMMIT, {P0})


def test_an_abort_behind_a_commit_is_no_contradiction(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.add(who, P0)
    waiter = sim.submit(end(who, False), 4)
    sim.report(first)
    assert code_of(sim.answers[waiter]) is ErrorCode.NONE
    assert sim.txn.state is State.PREPARE_ABORT


def test_what_nobody_follows_up_is_written_down_after_a_moment(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.safe(first)
    assert sim.txn.state is State.PREPARE_COMMIT
    sim.report(first)
    assert (sim.txn.state, sim.txn.partitions, sim.txn.ends) == (State.COMPLETE_COMMIT, frozenset(), {})
    assert sim.add(who, P0) is ErrorCode.NONE
    assert sim.txn.state is State.ONGOING, "late comers are written down at once"


def test_what_is_over_is_seen_to_be_over_before_that_is_written_down(sim: Ahead) -> None:
    who, first = ended(sim, P0, P1)
    assert sim.verified(who, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}, "not yet"
    sim.safe(first)
    assert sim.txn.state is State.PREPARE_COMMIT
    assert sim.verified(who, P0) == {P0: ErrorCode.INVALID_TXN_STATE}, "a write that comes late"
    [listed] = sim.ask(ListTransactionsRequest(state_filters=(), producer_id_filters=()), 0).transaction_states
    [described] = sim.ask(DescribeTransactionsRequest(transactional_ids=(TXN,)), 0).transaction_states
    assert (listed.transaction_state, described.transaction_state) == ("CompleteCommit", "CompleteCommit")
    assert described.topics == ()
    sim.add(who, P1)
    assert sim.verified(who, P1, P0) == {P1: ErrorCode.NONE, P0: ErrorCode.INVALID_TXN_STATE}
    [described] = sim.ask(DescribeTransactionsRequest(transactional_ids=(TXN,)), 0).transaction_states
    assert (described.transaction_state, described.topics[0].partitions) == ("Ongoing", (1,))


def test_a_transaction_that_went_ahead_runs_out_of_time_like_any_other(sim: Ahead) -> None:
    who, first = ended(sim, P0, P1)
    sim.add(who, P1)
    sim.safe(first)
    sim.report(first)
    assert (sim.txn.state, sim.txn.partitions) == (State.ONGOING, {P1})
    sim.advance(TIMEOUT_MS)
    assert sim.txn.state is State.PREPARE_ABORT
    assert sim.markers[-1].partitions == (P1,)


def test_a_late_word_about_an_end_is_not_taken_for_the_next_ones(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.add(who, P0)
    sim.safe(first)
    sim.end(who)
    second = sim.place()
    sim.report(first)
    assert (sim.txn.state, sim.txn.ends) == (State.PREPARE_COMMIT, second.ends)
    sim.report(second)
    assert sim.txn.state is State.COMPLETE_COMMIT


def test_what_somebody_waits_for_is_written_down_at_once(sim: Ahead) -> None:
    _, first = ended(sim, P0)
    waiter = sim.submit(init(), 5)
    assert not sim.shard.markers_safe(first)
    sim.report(first)
    assert sim.answers[waiter].error_code == 0


def test_other_partitions_wait(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    assert sim.add(who, P0) is ErrorCode.NONE
    waiter = sim.submit(add(who, P2), 3)
    assert waiter not in sim.answers
    sim.report(first)
    assert code_of(sim.answers[waiter]) is ErrorCode.NONE
    assert (sim.txn.state, sim.txn.partitions) == (State.ONGOING, {P0, P2})


def test_other_partitions_do_not_wait_for_what_is_safe_already(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.safe(first)
    assert sim.add(who, P0) is ErrorCode.NONE
    assert sim.txn.state is State.PREPARE_COMMIT
    assert sim.add(who, P2) is ErrorCode.NONE
    assert (sim.txn.state, sim.txn.partitions) == (State.ONGOING, {P0, P2})


def test_nobody_goes_ahead_before_the_markers_are_in_their_logs(sim: Ahead) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    waiter = sim.submit(add(who, P0), 3)
    assert waiter not in sim.answers
    assert sim.verified(who, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    sim.advance(PARKED_MS)
    assert code_of(sim.answers[waiter]) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_nobody_goes_ahead_in_a_topic_that_was_made_anew(sim: Ahead) -> None:
    who, _ = ended(sim, P0)
    sim.log_end = END - 1
    assert sim.submit(add(who, P0), 3) not in sim.answers


def test_nobody_goes_ahead_of_an_end_that_waits(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.add(who, P0)
    ending = sim.submit(end(who), 4)
    adding = sim.submit(add(who, P0), 3)
    sim.report(first)
    assert code_of(sim.answers[ending]) is ErrorCode.NONE
    assert adding not in sim.answers
    second = next(each for each in reversed(sim.markers) if isinstance(each, Markers))
    sim.report(second)
    assert code_of(sim.answers[adding]) is ErrorCode.NONE
    assert sim.verified(who, P0) == {P0: ErrorCode.NONE}


def test_a_topic_that_was_made_anew_under_what_went_ahead_waits(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.add(who, P0)
    sim.log_end = 0
    assert sim.verified(who, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert sim.verified(who, P0, P1) == dict.fromkeys((P0, P1), ErrorCode.CONCURRENT_TRANSACTIONS)
    sim.safe(first)
    assert sim.verified(who, P0, P1)[P0] is ErrorCode.CONCURRENT_TRANSACTIONS
    sim.report(first)
    assert sim.verified(who, P0) == {P0: ErrorCode.NONE}, "it is written down by now"


def test_nobody_goes_ahead_among_other_brokers() -> None:
    sim = Ahead(ends_of=nowhere).load()
    who, first = ended(sim, P0)
    assert not first.ends
    assert sim.submit(add(who, P0), 3) not in sim.answers
    sim.report(first)
    assert sim.txn.state is State.ONGOING, "and what is safe is written down at once"


def test_who_was_replaced_does_not_go_ahead(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    other = Identity(who.producer_id, who.producer_epoch - 1)
    assert sim.add(other, P0) is ErrorCode.PRODUCER_FENCED
    sim.report(first)
    successor = sim.init()
    assert sim.add(who, P0) is ErrorCode.PRODUCER_FENCED
    assert sim.add(successor, P0) is ErrorCode.NONE


def test_a_successor_aborts_what_went_ahead(sim: Ahead) -> None:
    who, first = ended(sim, P0)
    sim.add(who, P0)
    waiter = sim.submit(init(), 5)
    sim.report(first)
    assert sim.txn.state is State.PREPARE_ABORT
    assert waiter not in sim.answers
    sim.report(sim.markers[-1])
    assert sim.answers[waiter].producer_epoch > who.producer_epoch


def test_the_second_protocol_goes_ahead_by_writing(sim: Ahead) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    who = sim.end2(who)
    first = sim.place()
    assert sim.add(who, P0, version=5) is ErrorCode.NONE
    assert sim.txn.state is State.PREPARE_COMMIT
    sim.safe(first)
    assert sim.end2(who) == Identity(who.producer_id, who.producer_epoch + 1)


# -- the broker is killed meanwhile ------------------------------------------------------------------------------------


def test_what_went_ahead_is_open_again_after_a_restart(sim: Ahead) -> None:
    who, _ = ended(sim, P0, P1)
    sim.add(who, P0)
    other = sim.reloaded(marking=False)
    waiter = other.submit(end(who), 4)
    assert waiter not in other.answers, "it may be either's"
    [first] = (each for each in other.markers if isinstance(each, Markers))
    assert first.ends == {P0: END, P1: END}
    other.run(lambda: other.shard.markers_written(first, other.now_ms, frozenset({P0})))
    assert code_of(other.answers[waiter]) is ErrorCode.NONE
    assert (other.txn.state, other.txn.partitions) == (State.PREPARE_COMMIT, {P0, P1}), "in all that it may have added"


def test_an_end_is_a_retry_where_nothing_went_ahead(sim: Ahead) -> None:
    who, _ = ended(sim, P0)
    other = sim.reloaded(marking=False)
    waiter = other.submit(end(who), 4)
    other.report(other.markers[0])
    assert code_of(other.answers[waiter]) is ErrorCode.NONE
    assert other.txn.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("begun", [frozenset(), frozenset({P0})])
def test_what_was_announced_is_taken_after_a_restart(sim: Ahead, begun: frozenset[TopicPartition]) -> None:
    who, _ = ended(sim, P0, P1)
    sim.add(who, P0, P1)
    other = sim.reloaded(marking=False)
    assert other.verified(who, P1) == {P1: ErrorCode.CONCURRENT_TRANSACTIONS}, "it is not known yet what went ahead"
    other.run(lambda: other.shard.markers_written(other.markers[0], other.now_ms, begun))
    assert other.verified(who, P1) == {P1: ErrorCode.NONE}
    assert other.txn.state is State.ONGOING
    assert other.txn.partitions >= begun | {P1}, "and written down before"
    assert other.verified(who, P2) == {P2: ErrorCode.INVALID_TXN_STATE}
    assert other.add(who, P2) is ErrorCode.NONE
    assert other.verified(who, P0) == {P0: ErrorCode.NONE}, "whatever else was added meanwhile"


def test_what_was_announced_is_taken_also_before_anything_is_written_down(sim: Ahead) -> None:
    who, _ = ended(sim, P0)
    sim.add(who, P0)
    other = sim.reloaded(marking=False)
    other.safe(other.markers[0])
    assert other.verified(who, P0) == {P0: ErrorCode.NONE}
    assert (other.txn.state, other.txn.partitions) == (State.ONGOING, {P0})


def test_what_was_announced_is_forgotten_with_the_next_end(sim: Ahead) -> None:
    who, _ = ended(sim, P0, P1)
    other = sim.reloaded(marking=False)
    other.report(other.markers[0])
    other.add(who, P0)
    other.end(who)
    other.report(other.markers[-1])
    assert other.verified(who, P1) == {P1: ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize("committed", [False, True])
def test_the_end_of_what_was_announced_and_never_written_is_no_error(sim: Ahead, committed: bool) -> None:
    who, _ = ended(sim, P0)
    sim.add(who, P0)
    other = sim.reloaded(marking=False)
    other.report(other.markers[0])
    assert other.end(who, committed) is ErrorCode.NONE
    assert other.txn.state is State.COMPLETE_COMMIT
    assert other.end(who, False) is ErrorCode.INVALID_TXN_STATE, "once"


def test_a_commit_after_a_timeout_is_no_success(sim: Ahead) -> None:
    """Because of something that was announced before a restart."""
    who = sim.init()
    sim.add(who, P0, P1, version=5)
    who = sim.end2(who)
    sim.place()
    other = sim.reloaded(marking=False)
    other.report(other.markers[0])
    assert other.add(who, P0, version=5) is ErrorCode.NONE
    other.advance(TIMEOUT_MS)
    other.report(other.markers[-1])
    assert other.end(who, True, version=5) is ErrorCode.TRANSACTION_ABORTABLE


def test_the_second_protocol_needs_no_grace(sim: Ahead) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    sim.end2(who)
    sim.place()
    other = sim.reloaded(marking=False)
    other.report(other.markers[0])
    assert other.end(who, False, version=5) is ErrorCode.INVALID_TXN_STATE, "it was committed"


def test_what_was_announced_is_written_down_with_the_first_write_of_it(sim: Ahead) -> None:
    who, _ = ended(sim, P0, P1)
    sim.add(who, P0, P1)
    other = sim.reloaded(marking=False)
    other.report(other.markers[0])
    assert other.verified(who, P0) == {P0: ErrorCode.NONE}
    assert other.reloaded(marking=False).verified(who, P1) == {P1: ErrorCode.NONE}


def test_what_was_announced_outlives_another_restart_if_some_of_it_was_written(sim: Ahead) -> None:
    who, _ = ended(sim, P0, P1)
    sim.add(who, P0, P1)
    other = sim.reloaded(marking=False)
    other.run(lambda: other.shard.markers_written(other.markers[0], other.now_ms, frozenset({P0})))
    third = other.reloaded(marking=False)
    assert third.verified(who, P1) == {P1: ErrorCode.NONE}


# -- the short ways ----------------------------------------------------------------------------------------------------


def life(dice: Random, sim: Ahead, second: bool) -> list[Any]:
    """A producer that mostly follows itself closely, and what it and everybody else came to know."""
    version = 5 if second else 4
    who, told, markers = sim.init(), [], None
    for usual in ("add", "safe", "end", "place") * 10:
        other_than_usual = dice.choice(("nothing", "add", "end", "place", "safe", "report", "stranger", "wait"))
        step = usual if dice.random() < 0.85 else other_than_usual
        connection = dice.choice((1, 1, 1, 1, 1, 1, 1, 2))
        if step == "add":
            partitions = [P0, *dice.sample((P1, P2), dice.choice((0, 0, 0, 1)))]
            told.append(sim.submit(add(who, *partitions, version=5 if second else 3), 5 if second else 3, connection))
        elif step == "end":
            waiter = sim.submit(end(who, dice.random() < 0.7), version, connection)
            answer = sim.answers.get(waiter)
            if second and answer is not None and not answer.error_code:
                who = Identity(answer.producer_id, answer.producer_epoch)
            told.append(waiter)
        elif step == "stranger":
            other = Identity(who.producer_id, who.producer_epoch - dice.choice((0, 1)))
            told.append(sim.submit(end(other), dice.choice((3, 4, 5)), dice.choice((0, 1, 2))))
        elif step == "wait":
            sim.advance(dice.choice((1, PARKED_MS, TIMEOUT_MS // 2)))
        elif step != "nothing":
            handed_out = [each for each in sim.markers if isinstance(each, Markers)]
            markers = handed_out[-1] if handed_out else None
            if markers is not None and step == "place":
                sim.shard.markers_placed(markers)
                sim.log_end += 1
            elif markers is not None and step == "safe":
                told.append(sim.shard.markers_safe(markers))
            elif markers is not None:
                sim.report(markers)
    return [told, sim.answers, sim.markers, sim.log, sim.shard._memories, sim.shard.dump()]


@pytest.mark.parametrize("second", [False, True])
def test_short_ways_end_where_the_long_ones_do(second: bool) -> None:
    taken = 0
    for seed in range(300):
        short, long = Ahead().load(), Ahead().load()
        long.shard._short_ways.decide = lambda *_: None  # type: ignore[method-assign]
        honest = short.shard._short_ways.decide

        def counted(*request: Any, honest: Any = honest) -> Any:
            nonlocal taken
            outcome = honest(*request)
            taken += outcome is not None
            return outcome

        short.shard._short_ways.decide = counted  # type: ignore[method-assign]
        assert life(Random(seed), short, second) == life(Random(seed), long, second), seed
    assert taken > 300
