"""The second protocol (KIP-890): every transaction ends with a new epoch, and brokers add partitions."""

import pytest
from txn_sim import P0, P1, TIMEOUT_MS, TXN, Sim, add, at_epoch, batched, code_of, codes_of, end, init

from tidelog.errors import ErrorCode, KafkaError
from tidelog.transactions.context import Markers
from tidelog.transactions.state import State
from tidelog.transactions.transaction import EPOCH_LAST, EPOCH_MAX, Identity
from tidelog.wire.messages.transactions import AddPartitionsToTxnRequest

WORN_OUT = Identity(900, EPOCH_LAST)


@pytest.fixture
def sim() -> Sim:
    return Sim().load()


def test_every_end_brings_a_new_epoch(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    assert sim.add(who, P0, version=5) is ErrorCode.NONE
    assert sim.txn.client_version == 2
    following = sim.end2(who)
    assert following == Identity(1000, 1)
    assert sim.markers == [Markers(TXN, 1000, 1, True, 0, (P0,), 2)], "markers fence what is still under way"
    sim.mark()
    assert sim.add(who, P0, version=5) is ErrorCode.PRODUCER_FENCED, "a delayed write adds nothing"
    assert sim.add(following, P1, version=5) is ErrorCode.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_a_lost_answer_is_asked_for_again(sim: Sim, committed: bool) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0, version=5)
    following = sim.end2(who, committed)
    waiter = sim.submit(end(who, committed), 5)
    sim.mark()
    assert sim.answers[waiter].producer_epoch == following.producer_epoch
    assert sim.end2(who, committed) == following
    code = sim.end(who, not committed, version=5)
    assert code is (ErrorCode.INVALID_TXN_STATE if committed else ErrorCode.TRANSACTION_ABORTABLE)
    sim.add(following, P1, version=5)
    assert sim.end(who, committed, version=5) is ErrorCode.PRODUCER_FENCED, "never the next transaction"
    assert sim.txn.state is State.ONGOING


def test_the_next_transaction_waits_for_the_markers(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0, version=5)
    following = sim.end2(who)
    write = sim.submit(add(following, P1, version=5), 5)
    late = sim.submit(add(who, P1, version=5), 5)
    assert code_of(sim.answers[late]) is ErrorCode.PRODUCER_FENCED
    sim.mark()
    assert code_of(sim.answers[write]) is ErrorCode.NONE
    assert sim.txn.partitions == {P1}


def test_an_abort_of_nothing_has_a_new_epoch_too(sim: Sim) -> None:
    who = sim.init()
    following = sim.end2(who, False)
    assert following == Identity(1000, 1)
    assert sim.txn.state is State.COMPLETE_ABORT
    assert sim.end2(who, False) == following, "asked again"
    assert sim.end(following, True, version=5) is ErrorCode.INVALID_TXN_STATE, "there is nothing to commit"
    sim.add(following, P0, version=5)
    third = sim.end2(following)
    assert sim.end2(third, False) == Identity(1000, 3), "after a commit, nothing added"


def test_an_abort_of_nothing_while_markers_are_written(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0, version=5)
    following = sim.end2(who)
    waiter = sim.submit(end(following, False), 5)
    sim.mark()
    assert (sim.answers[waiter].error_code, sim.answers[waiter].producer_epoch) == (0, 2)


def test_after_a_timeout_the_owner_may_abort_and_go_on(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    sim.advance(TIMEOUT_MS)
    assert sim.txn.state is State.COMPLETE_ABORT
    assert sim.end(who, True, version=5) is ErrorCode.TRANSACTION_ABORTABLE
    following = sim.end2(who, False)
    assert following == Identity(1000, 1)
    assert sim.add(following, P0, version=5) is ErrorCode.NONE


def test_after_a_timeout_the_owner_may_also_ask_for_an_epoch(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0, version=5)
    sim.advance(TIMEOUT_MS)
    assert sim.init(who) == Identity(1000, 1)


def test_after_a_takeover_the_old_owner_is_out(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    sim.add(who, P0, version=5)
    sim.submit(init(), 5)
    for committed in (True, False):
        assert sim.end(who, committed, version=5) is ErrorCode.PRODUCER_FENCED
    sim.mark()
    for committed in (True, False):
        assert sim.end(who, committed, version=5) is ErrorCode.PRODUCER_FENCED


def test_when_epochs_run_out_a_new_producer_id_follows() -> None:
    who = WORN_OUT
    sim = at_epoch(EPOCH_LAST)
    sim.marking = False
    sim.add(who, P0, version=5)
    following = sim.end2(who)
    assert following == Identity(1000, 0)
    assert sim.markers == [Markers(TXN, 900, EPOCH_MAX, True, 1, (P0,), 2)], "the old id's transaction ends"
    again = sim.submit(end(who), 5)
    write = sim.submit(add(following, P1, version=5), 5)
    sim.mark()
    assert sim.answers[again].producer_id == 1000
    assert code_of(sim.answers[write]) is ErrorCode.NONE
    assert sim.txn.identity == following
    assert sim.end(who, version=5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_lost_answer_about_a_new_producer_id() -> None:
    who = WORN_OUT
    sim = at_epoch(EPOCH_LAST)
    sim.add(who, P0, version=5)
    sim.end2(who)
    assert sim.end2(who) == Identity(1000, 0)
    assert sim.reloaded().end2(who) == Identity(1000, 0)
    assert sim.end(who, False, version=5) is ErrorCode.INVALID_TXN_STATE


def test_without_a_producer_id_at_hand_the_end_is_asked_for_again() -> None:
    who = WORN_OUT
    sim = at_epoch(EPOCH_LAST)
    sim.add(who, P0, version=5)
    ids = sim.new_producer_id

    def none_left() -> int:
        raise KafkaError("no producer id at hand", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    sim.shard._new_producer_id = none_left
    with pytest.raises(KafkaError, match="at hand"):
        sim.end2(who)
    assert sim.txn.state is State.ONGOING
    sim.shard._new_producer_id = ids
    assert sim.end2(who) == Identity(1000, 0)


def test_the_timeout_of_the_last_epoch() -> None:
    who = WORN_OUT
    sim = at_epoch(EPOCH_LAST)
    sim.add(who, P0, version=5)
    sim.advance(TIMEOUT_MS)
    assert sim.txn.identity == Identity(900, EPOCH_MAX)
    assert sim.end(who, False, version=5) is ErrorCode.PRODUCER_FENCED, "there is no epoch to go on with"
    assert sim.init() == Identity(1000, 0)


def test_verification(sim: Sim) -> None:
    who = sim.init()
    sim.add(who, P0)

    def verify(asked: Identity, version: int = 5) -> dict[int, ErrorCode]:
        response = sim.ask(add(asked, P0, P1, version=version, verify_only=True), version)
        return {each.partition: code for each, code in codes_of(response).items()}

    assert verify(who) == {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(who, 4) == {0: ErrorCode.NONE, 1: ErrorCode.INVALID_TXN_STATE}
    assert set(verify(Identity(1000, 5)).values()) == {ErrorCode.PRODUCER_FENCED}
    assert set(verify(Identity(7, 0)).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    sim.marking = False
    sim.end(who)
    assert set(verify(who).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
    sim.mark()
    assert set(verify(who).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert sim.txn.state is State.COMPLETE_COMMIT, "verifying opens nothing"


def test_several_transactions_in_one_request(sim: Sim) -> None:
    sim.marking = False
    who = sim.init()
    other = sim.init(name="other")
    sim.add(who, P0, version=5)
    following = sim.end2(who)
    request = AddPartitionsToTxnRequest(
        transactions=(
            batched(following, P0),
            batched(other, P0, P1, name="other"),
            batched(other, P1, name="other", verify_only=True),
            batched(other, P1, name=""),
            batched(other, P1, name="", verify_only=True),
        )
    )
    results = sim.ask(request, 5).results_by_transaction
    codes = [
        [ErrorCode(part.partition_error_code) for topic in each.topic_results for part in topic.results_by_partition]
        for each in results
    ]
    assert codes == [
        [ErrorCode.CONCURRENT_TRANSACTIONS],
        [ErrorCode.NONE, ErrorCode.NONE],
        [ErrorCode.NONE],
        [ErrorCode.INVALID_REQUEST],
        [ErrorCode.INVALID_REQUEST],
    ]
