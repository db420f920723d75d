"""DescribeTransactions, ListTransactions, and how each request is refused."""

import re
from collections.abc import Iterable

import pytest
from txn_sim import P0, P1, TIMEOUT_MS, TXN, Sim, add, add_offsets, code_of, codes_of, end, init

from tidelog.errors import ErrorCode, KafkaError
from tidelog.transactions.refusals import FENCED_SINCE, refuse
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from tidelog.wire.schema import Message, encode, spec_of

WHO = Identity(1000, 0)


def select(pattern: str, names: Iterable[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        raise KafkaError(str(error), ErrorCode.INVALID_REGULAR_EXPRESSION) from None


@pytest.fixture
def sim() -> Sim:
    """One transaction that is open for 100 ms, one id without, one that committed."""
    sim = Sim(select=select).load()
    done = sim.init(name="done")
    sim.ask(add(done, P0, name="done"), 3)
    sim.ask(end(done, name="done"), 4)
    sim.init(name="idle")
    sim.add(sim.init(), P1, P0)
    sim.advance(100)
    return sim


def listed(sim: Sim, **filters: object) -> list[str]:
    request = ListTransactionsRequest(**{"state_filters": (), "producer_id_filters": (), **filters})  # type: ignore[arg-type]
    return [each.transactional_id for each in sim.ask(request).transaction_states]


def test_describe(sim: Sim) -> None:
    request = DescribeTransactionsRequest(transactional_ids=(TXN, "idle", "unknown", ""))
    mine, idle, unknown, nameless = sim.ask(request).transaction_states
    assert (mine.error_code, mine.transaction_state, mine.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (mine.producer_id, mine.producer_epoch) == (1002, 0)
    assert mine.transaction_start_time_ms == sim.now_ms - 100
    assert [(each.topic, each.partitions) for each in mine.topics] == [("out", (0, 1))]
    assert (idle.transaction_state, idle.transaction_start_time_ms, idle.topics) == ("Empty", -1, ())
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


def test_list(sim: Sim) -> None:
    assert listed(sim) == ["done", "idle", TXN]
    assert listed(sim, state_filters=("Ongoing", "Empty")) == ["idle", TXN]
    assert listed(sim, producer_id_filters=(1000, 7)) == ["done"]
    assert listed(sim, state_filters=("Ongoing",), producer_id_filters=(1000,)) == []
    assert listed(sim, duration_filter=99) == [TXN], "those that are over do not run"
    assert listed(sim, duration_filter=100) == []
    assert listed(sim, transactional_id_pattern="[di].*") == ["done", "idle"]
    assert listed(sim, transactional_id_pattern="d") == []
    assert listed(sim, transactional_id_pattern="") == ["done", "idle", TXN]


def test_list_says_which_states_it_does_not_know(sim: Sim) -> None:
    request = ListTransactionsRequest(state_filters=("Ongoing", "ongoing"), producer_id_filters=())
    assert sim.ask(request).unknown_state_filters == ("ongoing",)
    assert listed(sim, state_filters=("nonsense",)) == []


def test_a_pattern_that_cannot_be_read(sim: Sim) -> None:
    with pytest.raises(KafkaError) as raised:
        listed(sim, transactional_id_pattern="(")
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(KafkaError):
        listed(Sim().load(), transactional_id_pattern="a")


REQUESTS: tuple[Message, ...] = (
    init(),
    add_offsets(WHO, "group"),
    end(WHO),
    DescribeTransactionsRequest(transactional_ids=("a", "b")),
    ListTransactionsRequest(state_filters=(), producer_id_filters=()),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_every_request_can_be_refused_in_every_version(request_: Message) -> None:
    spec = spec_of(type(request_))
    for version in range(spec.min, spec.max + 1):
        answer = refuse(request_, ErrorCode.NOT_COORDINATOR, version)
        assert type(answer) is spec.response
        encode(answer, version)
        if not hasattr(answer, "error_code"):
            assert {each.error_code for each in answer.transaction_states} == {ErrorCode.NOT_COORDINATOR}
        else:
            assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_partitions_are_refused_one_by_one() -> None:
    for version in range(6):
        answer = refuse(add(WHO, P0, P1, version=version), ErrorCode.NOT_COORDINATOR, version)
        encode(answer, version)
        assert codes_of(answer) == {P0: ErrorCode.NOT_COORDINATOR, P1: ErrorCode.NOT_COORDINATOR}


def test_older_clients_know_another_word_for_fenced() -> None:
    for request in (init(), add_offsets(WHO, "group"), end(WHO), add(WHO, P0)):
        since = FENCED_SINCE[type(request)]
        assert code_of(refuse(request, ErrorCode.PRODUCER_FENCED, since)) is ErrorCode.PRODUCER_FENCED
        assert code_of(refuse(request, ErrorCode.PRODUCER_FENCED, since - 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
