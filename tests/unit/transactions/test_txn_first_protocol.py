"""The first protocol, as librdkafka speaks it: one epoch for many transactions."""

import pytest
from txn_sim import P0, P1, START_MS, TIMEOUT_MS, TXN, Sim, add, add_offsets, code_of, end, init

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Markers
from tidelog.transactions.draft import PARKED_MS
from tidelog.transactions.state import State
from tidelog.transactions.transaction import Identity


@pytest.fixture
def sim() -> Sim:
    return Sim().load()


def test_a_transaction_from_beginning_to_end(sim: Sim) -> None:
    who = sim.init()
    assert who == Identity(1000, 0)
    assert sim.add(who, P0, P1) is ErrorCode.NONE
    assert code_of(sim.ask(add_offsets(who, "group"))) is ErrorCode.NONE
    assert sim.txn.state is State.ONGOING
    sim.marking = False
    assert sim.end(who) is ErrorCode.NONE
    assert sim.txn.state is State.PREPARE_COMMIT
    offsets = TopicPartition("__consumer_offsets", len("group"))
    assert sim.markers == [Markers(TXN, 1000, 0, True, 0, (offsets, P0, P1), 0)]
    sim.mark()
    assert sim.txn.state is State.COMPLETE_COMMIT
    assert sim.txn.partitions == frozenset()
    assert sim.add(who, P0) is ErrorCode.NONE, "and the next one, with the same epoch"


def test_nothing_is_marked_before_the_decision_is_committed(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0)
    sim.holding = True
    waiter = sim.submit(end(who), 4)
    assert not sim.markers
    assert waiter not in sim.answers
    sim.release()
    assert len(sim.markers) == 1
    assert code_of(sim.answers[waiter]) is ErrorCode.NONE


def test_end_may_be_asked_for_again_and_not_otherwise(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.end(who, False)
    assert sim.end(who, False) is ErrorCode.NONE
    assert sim.end(who, True) is ErrorCode.INVALID_TXN_STATE
    assert sim.txn.state is State.COMPLETE_ABORT


def test_what_comes_while_markers_are_written_waits_for_them(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    again = sim.submit(end(who), 4)
    following = sim.submit(add(who, P1), 3)
    assert sim.end(who, False) is ErrorCode.INVALID_TXN_STATE
    assert not {again, following} & set(sim.answers)
    sim.mark()
    assert code_of(sim.answers[again]) is ErrorCode.NONE
    assert code_of(sim.answers[following]) is ErrorCode.NONE
    assert sim.txn.state is State.ONGOING
    assert sim.txn.partitions == {P1}


def test_nobody_waits_for_ever(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    waiter = sim.submit(add(who, P1), 3)
    sim.advance(PARKED_MS)
    assert code_of(sim.answers[waiter]) is ErrorCode.CONCURRENT_TRANSACTIONS
    sim.mark()
    assert sim.txn.state is State.COMPLETE_COMMIT


def test_only_so_many_wait(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    waiters = [sim.submit(add(who, P1), 3) for _ in range(20)]
    refused = [code_of(sim.answers[waiter]) for waiter in waiters if waiter in sim.answers]
    assert refused == [ErrorCode.CONCURRENT_TRANSACTIONS] * 12


def test_the_timeout_aborts_and_fences(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0)
    sim.advance(TIMEOUT_MS - 1)
    sim.add(who, P1)  # activity does not prolong it
    sim.advance(1)
    assert sim.markers == [Markers(TXN, 1000, 1, False, 0, (P0, P1), 0)]
    sim.mark()
    for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        assert sim.end(who, version=version) is code
        assert sim.end(who, False, version=version) is code
    assert sim.add(who, P0, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert sim.add(who, P0, version=3) is ErrorCode.PRODUCER_FENCED


def test_an_ended_transaction_does_not_time_out(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.end(who)
    sim.advance(2 * TIMEOUT_MS)
    assert sim.txn.state is State.COMPLETE_COMMIT
    assert sim.txn.identity == who


def test_the_timeout_is_tried_again_if_the_log_refuses(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    sim.refusal = KafkaError("too few", ErrorCode.NOT_ENOUGH_REPLICAS)
    sim.advance(TIMEOUT_MS + 10_000)
    assert sim.txn.state is State.ONGOING
    sim.refusal = None
    sim.advance(1_000)
    assert sim.txn.state is State.COMPLETE_ABORT


def test_a_new_producer_aborts_what_the_old_one_left_open(sim: Sim) -> None:
    sim.marking = False
    old = sim.init()
    sim.add(old, P0)
    waiter = sim.submit(init(), 5)
    assert sim.markers == [Markers(TXN, 1000, 1, False, 0, (P0,), 0)]
    assert sim.end(old) is ErrorCode.PRODUCER_FENCED
    assert sim.add(old, P1) is ErrorCode.PRODUCER_FENCED
    sim.mark()
    response = sim.answers[waiter]
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1000, 2)
    assert sim.end(old, False) is ErrorCode.PRODUCER_FENCED


def test_a_new_producer_comes_back_if_markers_take_long(sim: Sim) -> None:
    sim.marking = False
    sim.add(sim.init(), P0)
    waiter = sim.submit(init(), 5)
    sim.advance(PARKED_MS)
    assert code_of(sim.answers[waiter]) is ErrorCode.CONCURRENT_TRANSACTIONS
    sim.mark()
    assert sim.init() == Identity(1000, 2)


def test_a_delayed_end_does_not_touch_the_next_transaction(sim: Sim) -> None:
    """KAFKA-17754: the client gave up on connection 1, tried again by 2 and went on there."""
    who = sim.init()
    sim.add(who, P0, connection=1)
    sim.end(who, connection=2)
    sim.add(who, P1, connection=2)
    assert sim.end(who, connection=1) is ErrorCode.INVALID_TXN_STATE
    assert sim.add(who, P0, connection=1) is ErrorCode.INVALID_TXN_STATE
    assert (sim.txn.state, sim.txn.partitions) == (State.ONGOING, {P1})
    assert sim.end(who, connection=3) is ErrorCode.NONE


def test_a_delayed_addition_does_not_open_a_transaction_after_the_end(sim: Sim) -> None:
    """Its producer gave up connection 1, aborted by 2, and may be silent now: it would be fenced for a transaction
    that it knows nothing of."""
    who = sim.init()
    sim.add(who, P0, connection=1)
    sim.end(who, False, connection=2)
    assert sim.add(who, P1, connection=1) is ErrorCode.INVALID_TXN_STATE
    assert sim.txn.state is State.COMPLETE_ABORT
    assert sim.add(who, P1, connection=2) is ErrorCode.NONE


def test_a_new_owner_may_have_connected_before_the_old_one(sim: Sim) -> None:
    old = sim.init()
    sim.add(old, P0, connection=5)
    new = sim.init()
    assert sim.add(new, P0, connection=4) is ErrorCode.NONE
    assert sim.end(new, connection=4) is ErrorCode.NONE


def test_somebody_else(sim: Sim) -> None:
    assert sim.end(Identity(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert sim.add(Identity(1, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    who = sim.init()
    assert sim.end(who) is ErrorCode.INVALID_TXN_STATE, "nothing to end"
    assert sim.end(who, False) is ErrorCode.INVALID_TXN_STATE
    assert sim.end(Identity(1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert sim.end(Identity(1000, 7)) is ErrorCode.PRODUCER_FENCED
    assert sim.add(Identity(1, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(sim.ask(end(who, name=""))) is ErrorCode.INVALID_REQUEST
    assert code_of(sim.ask(add(who, P0, name=""), 3)) is ErrorCode.INVALID_REQUEST
    assert code_of(sim.ask(add_offsets(who, ""))) is ErrorCode.INVALID_GROUP_ID
    assert sim.now_ms == START_MS
    assert len(sim.log) == 1


def test_adding_what_is_there_writes_nothing(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0, P1)
    written = len(sim.log)
    assert sim.add(who, P1) is ErrorCode.NONE
    assert len(sim.log) == written
