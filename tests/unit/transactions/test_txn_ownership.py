"""InitProducerId: who gets a transactional id, and how its owner gets a new epoch."""

import pytest
from txn_sim import P0, Sim, at_epoch, code_of, init

from tidelog.errors import ErrorCode, KafkaError
from tidelog.transactions.context import TransactionSettings
from tidelog.transactions.state import State
from tidelog.transactions.transaction import EPOCH_LAST, Identity


@pytest.fixture
def sim() -> Sim:
    return Sim().load()


def test_every_new_producer_fences_the_one_before(sim: Sim) -> None:
    assert [sim.init() for _ in range(3)] == [Identity(1000, 0), Identity(1000, 1), Identity(1000, 2)]
    assert sim.init(name="other") == Identity(1001, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_a_timeout_beyond_the_limits(sim: Sim, timeout_ms: int) -> None:
    assert code_of(sim.ask(init(timeout_ms=timeout_ms))) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_nonsense(sim: Sim) -> None:
    assert code_of(sim.ask(init(name=""))) is ErrorCode.INVALID_REQUEST
    assert code_of(sim.ask(init(name=None))) is ErrorCode.INVALID_REQUEST
    assert code_of(sim.ask(init(Identity(5, -1)))) is ErrorCode.INVALID_REQUEST
    assert code_of(sim.ask(init(Identity(-1, 5)))) is ErrorCode.INVALID_REQUEST
    assert not sim.log


def test_the_last_timeout_asked_for_counts(sim: Sim) -> None:
    sim.init(timeout_ms=5)
    who = sim.init(timeout_ms=50)
    sim.add(who, P0)
    sim.advance(49)
    assert sim.txn.state is State.ONGOING
    sim.advance(1)
    assert sim.txn.state is State.COMPLETE_ABORT


def test_the_owner_asks_for_a_new_epoch_and_asks_again(sim: Sim) -> None:
    who = sim.init()
    assert sim.init(who) == Identity(1000, 1)
    written = len(sim.log)
    assert sim.init(who) == Identity(1000, 1), "the answer was lost"
    assert len(sim.log) == written
    sim.add(Identity(1000, 1), P0)
    assert code_of(sim.ask(init(who))) is ErrorCode.PRODUCER_FENCED, "a late one does not abort what came after"
    assert sim.txn.state is State.ONGOING


def test_who_was_fenced_gets_no_epoch(sim: Sim) -> None:
    old = sim.init()
    new = sim.init()
    assert code_of(sim.ask(init(old), 5)) is ErrorCode.PRODUCER_FENCED
    assert code_of(sim.ask(init(old), 3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(sim.ask(init(Identity(7, 1)), 5)) is ErrorCode.PRODUCER_FENCED
    assert sim.txn.identity == new


def test_a_fenced_one_does_not_abort_its_successors_transaction(sim: Sim) -> None:
    old = sim.init()
    new = sim.init()
    sim.add(new, P0)
    assert code_of(sim.ask(init(old), 5)) is ErrorCode.PRODUCER_FENCED
    sim.marking = False
    sim.end(new)
    assert code_of(sim.ask(init(old), 5)) is ErrorCode.PRODUCER_FENCED
    assert sim.txn.state is State.PREPARE_COMMIT


def test_an_owner_with_an_open_transaction_gets_it_aborted(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)
    assert sim.init(who) == Identity(1000, 1)
    assert sim.txn.state is State.COMPLETE_ABORT
    assert sim.init(who) == Identity(1000, 1), "asked again"


def test_an_id_the_coordinator_has_forgotten(sim: Sim) -> None:
    assert sim.init(Identity(77, 12)) == Identity(1000, 0)


def test_when_epochs_run_out_a_new_producer_id_follows() -> None:
    sim = at_epoch(EPOCH_LAST - 1)
    assert sim.init() == Identity(900, EPOCH_LAST)
    assert sim.init() == Identity(1000, 0)
    assert sim.txn.previous_producer_id == 900


def test_asking_again_when_epochs_ran_out() -> None:
    sim = at_epoch(EPOCH_LAST)
    who = Identity(900, EPOCH_LAST)
    assert sim.init(who) == Identity(1000, 0)
    assert sim.init(who) == Identity(1000, 0)
    assert sim.init() == Identity(1000, 1)
    assert code_of(sim.ask(init(who))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("own", [True, False])
def test_an_open_transaction_of_the_last_epoch(own: bool) -> None:
    sim = at_epoch(EPOCH_LAST)
    who = Identity(900, EPOCH_LAST)
    sim.add(who, P0)
    assert sim.init(who if own else None) == Identity(1000, 0)


def test_no_producer_id_at_hand() -> None:
    def none_left() -> int:
        raise KafkaError("no producer id at hand", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    sim = Sim(new_producer_id=none_left).load()
    with pytest.raises(KafkaError, match="at hand"):
        sim.init()
    assert not sim.log


def test_no_producer_id_at_hand_for_one_that_waited() -> None:
    sim = at_epoch(EPOCH_LAST)
    sim.marking = False
    sim.add(Identity(900, EPOCH_LAST), P0)
    waiter = sim.submit(init(), 5)

    def none_left() -> int:
        raise KafkaError("no producer id at hand", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    sim.shard._new_producer_id = none_left
    sim.mark()
    assert code_of(sim.answers[waiter]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.txn.state is State.COMPLETE_ABORT, "the markers count all the same"


def test_unused_ids_are_forgotten() -> None:
    sim = Sim(TransactionSettings(transactional_id_expiration_ms=1_000)).load()
    sim.init(name="idle")
    who = sim.init(name="orders-1", timeout_ms=60_000)
    sim.add(who, P0)
    sim.advance(999)
    sim.expire_ids()
    assert sim.shard.find("idle") is not None
    sim.advance(1)
    sim.expire_ids()
    assert sim.shard.find("idle") is None
    assert sim.txn.state is State.ONGOING, "an open transaction is in use"
    assert sim.log[-1][1] is None
    assert sim.reloaded(compacted=True).shard.dump() == sim.shard.dump()
    assert sim.init(name="idle") == Identity(1002, 0)
