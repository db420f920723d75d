"""What a transaction costs: 100 records of 1 KB in one, beside the same records acknowledged without one.

Through real clients, and through one that does nothing but send and receive, in both of Kafka's protocols: that is what
the broker adds. librdkafka takes a time of its own for each transaction, whatever the broker does; it is measured
beside, with the broker that it carries for its tests.
"""

from statistics import median

from bench import transactional_clients as clients
from bench.bare_producer import BareProducer
from bench.results import Limits, Result
from bench.target import Target
from bench.transactional_clients import RECORD_BYTES, RECORDS, Pair

TURNS, ROUNDS = 20, 10
BAR = 2.0


def measure(target: Target, _limits: Limits) -> list[Result]:
    with clients.librdkafka_alone() as pair:
        alone = _Compared(target, pair)
    own_ms = alone.transaction_ms - alone.plain_ms
    results = []
    for partitions in (1, 4):
        topic = _topic(target, partitions)
        with clients.librdkafka(topic, partitions, **{"bootstrap.servers": target.bootstrap}) as pair:
            results.append(_result(f"librdkafka, {_count(partitions)}", _Compared(target, pair), own_ms))
        target.delete_topic(topic)
    for name, real in (("kafka-python", clients.kafka_python), ("aiokafka", clients.aiokafka)):
        topic = _topic(target)
        with real(target.bootstrap, topic) as pair:
            results.append(_result(name, _Compared(target, pair, turns=TURNS // 4)))
        target.delete_topic(topic)
    if target.ours:  # Apache Kafka sends the bare client away while it still ends the transaction before
        results += [_bare(target, second=False), _bare(target, second=True)]
    return results


def _topic(target: Target, partitions: int = 1) -> str:
    topic = target.make_topic("transactions", partitions=partitions)
    assert topic is not None
    return topic


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions > 1)}"


def _bare(target: Target, *, second: bool) -> Result:
    topic = _topic(target)
    where = target.host, target.port, topic, RECORDS, RECORD_BYTES
    with BareProducer(*where) as plain, BareProducer(*where, f"bare-{topic}", second=second) as transactional:
        compared = _Compared(target, Pair(plain.once, transactional.once))
    target.delete_topic(topic)
    return _result(f"a bare client, {'second' if second else 'first'} protocol", compared)


class _Compared:
    """In turns: the machine changes its mind from second to second."""

    def __init__(self, target: Target, pair: Pair, turns: int = TURNS) -> None:
        pair.plainly()  # both know their leaders and their coordinator before it counts
        pair.in_transaction()
        plain_s: list[float] = []
        transaction_s: list[float] = []
        cpu_s = 0.0
        for _ in range(target.scaled(turns)):
            plain_s += [pair.plainly() for _ in range(ROUNDS)]
            before = target.cpu_s()
            transaction_s += [pair.in_transaction() for _ in range(ROUNDS)]
            cpu_s += target.cpu_s() - before
        self.plain_ms = median(plain_s) * 1e3
        self.transaction_ms = median(transaction_s) * 1e3
        self.per_s = len(transaction_s) / sum(transaction_s)
        self.broker_cpu_ms = cpu_s / len(transaction_s) * 1e3


def _result(how: str, compared: _Compared, own_ms: float | None = None) -> Result:
    """`own_ms`: what the client takes for a transaction whatever the broker does."""
    bar_ms = BAR * compared.plain_ms + (own_ms or 0)
    detail = {"without_ms": compared.plain_ms, "transactions_per_s": compared.per_s}
    if own_ms is not None:
        detail["client_alone_ms"] = own_ms
    return Result(
        name=f"transaction of {RECORDS} × 1 KB, {how}",
        value=compared.transaction_ms,
        unit="ms p50",
        ratio=compared.transaction_ms / compared.plain_ms,
        limit="without",
        target=f"ratio ≤ {BAR:g}" if own_ms is None else f"≤ {BAR:g} × and the client's own",
        ok=compared.transaction_ms <= bar_ms,
        detail=detail | {"broker_cpu_ms": compared.broker_cpu_ms},
    )
