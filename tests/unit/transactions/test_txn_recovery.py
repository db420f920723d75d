"""The coordinator killed at each transition, its effects, and what the runtime does with them."""

import pytest
from msgspec.structs import replace
from txn_sim import P0, P1, TIMEOUT_MS, TXN, Sim, add, code_of, end, init

from tidelog.coordination import EFFECT, NOBODY, RETRY_MS, Outcome, Released, Runtime
from tidelog.errors import ErrorCode, StorageOffline
from tidelog.transactions.context import Markers
from tidelog.transactions.records import encode_record
from tidelog.transactions.shard import EXPIRED_AT_ONCE
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.transactions import EndTxnRequest


@pytest.fixture
def sim() -> Sim:
    sim = Sim().load()
    sim.marking = False
    return sim


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_what_was_decided_stays_decided(sim: Sim, version: int, committed: bool, compacted: bool) -> None:
    who = sim.init()
    sim.add(who, P0, P1, version=3 if version < 5 else 5)
    sim.end(who, committed, version=version)
    before = sim.markers[0]
    other = sim.reloaded(compacted=compacted, marking=False)
    assert other.markers == [before._replace(coordinator_epoch=1)]
    third = other.reloaded(compacted=compacted)
    assert third.txn.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert third.end(who, committed, version=version) is ErrorCode.NONE, "whoever asked is told"
    assert third.end(who, not committed, version=version) is not ErrorCode.NONE


def test_a_decision_that_was_never_committed_is_never_marked(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    written = len(sim.log)
    sim.holding = True
    waiter = sim.submit(end(who), 4)
    released = sim.runtime.fail(StorageOffline("gone"))
    assert [each.waiter for each in released] == [waiter]
    assert not sim.markers
    sim.log = sim.log[:written]
    other = sim.reloaded()
    assert other.txn.state is State.ONGOING
    assert other.end(who, False) is ErrorCode.NONE, "so it may be decided otherwise"


def test_an_open_transaction_keeps_its_time(sim: Sim) -> None:
    sim.add(sim.init(), P0)
    sim.advance(TIMEOUT_MS - 10)
    other = sim.reloaded(marking=False)
    other.advance(9)
    assert other.txn.state is State.ONGOING
    other.advance(1)
    assert other.txn.state is State.PREPARE_ABORT


@pytest.mark.parametrize(("jump_ms", "left_ms"), [(-1_000_000_000, TIMEOUT_MS), (1_000_000_000, 0)])
def test_whatever_the_clock_did_meanwhile(sim: Sim, jump_ms: int, left_ms: int) -> None:
    sim.add(sim.init(), P0)
    sim.now_ms += jump_ms
    other = sim.reloaded()
    deadline = other.runtime.next_deadline_ms
    assert deadline == other.now_ms + left_ms


def test_a_timed_out_transaction_is_aborted_after_reload_too(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    sim.advance(TIMEOUT_MS)
    other = sim.reloaded()
    assert other.txn.state is State.COMPLETE_ABORT
    assert other.end2(who, False) == Identity(1000, 1)


def test_reports_about_something_else_change_nothing(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    (markers,) = sim.markers
    for wrong in (
        markers._replace(transactional_id="unknown"),
        markers._replace(producer_epoch=5),
        markers._replace(committed=False),
    ):
        sim.mark(wrong)
        assert sim.txn.state is State.PREPARE_COMMIT
    sim.mark(markers)
    written = len(sim.log)
    sim.mark(markers)
    assert len(sim.log) == written, "said twice"


def test_a_late_report_does_not_complete_the_next_transaction_of_the_second_protocol(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    following = sim.end2(who)
    (markers,) = sim.markers
    sim.mark()
    sim.add(following, P1, version=5)
    sim.end2(following)
    sim.mark(markers)
    assert sim.txn.state is State.PREPARE_COMMIT


def test_one_report_may_set_off_a_whole_transaction(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    first = sim.submit(add(who, P1), 3)
    sim.mark()
    assert code_of(sim.answers[first]) is ErrorCode.NONE
    second = sim.submit(end(who, False), 4)
    assert code_of(sim.answers[second]) is ErrorCode.NONE
    assert [each.committed for each in sim.markers] == [False]
    third = sim.submit(init(), 5)
    fourth = sim.submit(add(who, P0), 3)
    sim.mark()
    assert sim.answers[third].producer_epoch == 1
    assert code_of(sim.answers[fourth]) is ErrorCode.PRODUCER_FENCED


def test_an_abort_without_partitions_written_by_kafka(sim: Sim) -> None:
    who = sim.init()
    sim.end2(who, False)
    decided = replace(sim.txn, state=State.PREPARE_ABORT)
    sim.log[-1] = encode_record(decided.record())  # killed between PrepareAbort and CompleteAbort
    other = sim.reloaded(marking=False)
    assert other.markers == [Markers(TXN, 1000, 1, False, 1, (), 2)]
    other.mark()
    assert other.end2(who, False) == Identity(1000, 1)


def test_many_unused_ids_are_forgotten_in_pieces(sim: Sim) -> None:
    for number in range(EXPIRED_AT_ONCE + 1):
        sim.init(name=f"id-{number}")
    sim.advance(sim.settings.transactional_id_expiration_ms)
    assert [len(outcome.records) for outcome in sim.shard.expiry(sim.now_ms)] == [EXPIRED_AT_ONCE, 1]
    sim.expire_ids()
    assert not sim.shard.dump()


# The runtime ----------------------------------------------------------------------------------------------------------


def test_effects_are_released_in_order_and_once(sim: Sim) -> None:
    runtime = Runtime(sim.shard, lambda records, producer: 1, end_offset=0, committed_offset=0)
    record = (sim.shard.find(TXN) or _transaction(sim)).record()
    assert runtime.run(1, lambda: Outcome("a", records=(record,), effects=("x", "y")), monotonic_ms=0) == []
    assert runtime.run(NOBODY, lambda: Outcome(effects=("z",)), monotonic_ms=0) == []
    assert runtime.unanswered == 4
    assert runtime.commit(1) == [Released(1, "a"), *(Released(EFFECT, each) for each in "xyz")]
    assert runtime.commit(2) == []


def test_a_timer_that_was_refused_rings_again(sim: Sim) -> None:
    sim.add(sim.init(), P0)
    sim.refusal = StorageOffline("not now")
    sim.advance(TIMEOUT_MS)
    assert sim.runtime.next_deadline_ms == sim.now_ms + RETRY_MS


def test_nothing_is_remembered_that_is_not_known(sim: Sim) -> None:
    with pytest.raises(TypeError, match="EndTxnRequest"):
        sim.shard.remember(EndTxnRequest(transactional_id="", producer_id=0, producer_epoch=0, committed=True))


def _transaction(sim: Sim):  # type: ignore[no-untyped-def]
    sim.init()
    return sim.txn
