"""Clients that write in transactions, in both of Kafka's protocols: they ask again until they are told, or give up and
begin anew."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.replication.asking import RETRIED, Asking, Life
from tests.simulation.replication.readers import Txn
from tests.simulation.replication.rooms import Reply
from tests.simulation.replication.world import World

from tidelog.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from tidelog.errors import ErrorCode
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from tidelog.wire.schema import Message

TIMEOUT_MS = 600
ATTEMPTS_MAX = 25


class TransactionalClient(Asking):
    def __init__(self, world: World, dice: Random, name: str, *, second: bool) -> None:
        super().__init__(world, dice, may_be_late=second)
        self._name = name
        self._second = second
        """It speaks the second protocol, in which each transaction ends with a new epoch."""
        self._sequences: dict[int, int] = {}
        self._life = self._live()

    def step(self) -> None:
        next(self._life)

    def _live(self) -> Life:
        while True:
            identity = yield from self._begin()
            self._sequences = {}
            while identity is not None:
                identity = yield from self._transaction(identity)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _coordinate(self, request: Message, version: int, code_of: Callable[[Any], int]) -> Life:
        """The first answer that is not to be tried again, or None."""
        number, connection = self._world.number_of(TRANSACTIONS_TOPIC), self._connection

        def send(target: int, reply: Reply) -> None:
            rooms = self._world.brokers[target].rooms
            assert rooms is not None
            rooms.handle(request, version, connection, reply)

        for _ in range(ATTEMPTS_MAX):
            answer = yield from self._ask(number, send)
            if answer is not None and ErrorCode(code_of(answer)) not in RETRIED:
                return answer
        return None

    def _begin(self) -> Life:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS)
        answer = yield from self._coordinate(request, 5, lambda answer: answer.error_code)
        if answer is None or answer.error_code:
            return None
        return Identity(answer.producer_id, answer.producer_epoch)

    # -- a transaction ---------------------------------------------------------------------------------------------

    def _transaction(self, identity: Identity) -> Life:
        """As whom it goes on; None if it has to begin anew."""
        world, dice = self._world, self._dice
        assert world.readers is not None
        txn = world.readers.begin(f"{self._name} {tuple(identity)}")
        world.say(f"-- {txn} begins")
        added: set[int] = set()
        for _ in range(dice.randint(1, 4)):
            number = dice.randrange(len(world.data))
            if number not in added and not self._second and not (yield from self._add(identity, number)):
                return None
            added.add(number)
            if not (yield from self._write(txn, identity, number)):
                return None
            if dice.random() < 0.08:
                yield from self._sleep(dice.choice([100, TIMEOUT_MS, 2 * TIMEOUT_MS]))
            if dice.random() < 0.03:
                return None
        return (yield from self._end(txn, identity))

    def _add(self, identity: Identity, number: int) -> Life:
        place = self._world.controller.place(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=place.topic, partitions=(place.partition,)),),
        )

        def code_of(answer: Any) -> int:
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        answer = yield from self._coordinate(request, 3, code_of)
        return answer is not None and code_of(answer) == ErrorCode.NONE

    def _write(self, txn: Txn, identity: Identity, number: int) -> Life:
        world = self._world
        assert world.readers is not None
        values = [world.readers.value(txn) for _ in range(self._dice.randint(1, 2))]
        sequence = self._sequences.get(number, 0)
        place = world.controller.place(number)

        def send(target: int, reply: Reply) -> None:
            rooms = world.brokers[target].rooms
            assert rooms is not None
            producer = (*identity, sequence)
            rooms.produce(place, values, producer, self._name, adds=self._second, answer=reply)

        for _ in range(ATTEMPTS_MAX):
            code = yield from self._ask(number, send)
            if code is ErrorCode.NONE:
                self._sequences[number] = sequence + len(values)
                txn.written.update(dict.fromkeys(values, number))
                return True
            if code is not None and code not in RETRIED:
                world.say(f"-- {txn}: {code.name}")
                return False
        return False

    def _end(self, txn: Txn, identity: Identity) -> Life:
        committed = self._dice.random() < 0.7
        txn.asked_commit = committed
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        self._world.say(f"-- {txn} asks for {'commit' if committed else 'abort'}")
        answer = yield from self._coordinate(request, 5 if self._second else 4, lambda answer: answer.error_code)
        if answer is None or answer.error_code:
            return None
        txn.told = committed
        self._world.say(f"-- {txn} is told that it is {'committed' if committed else 'aborted'}")
        if not self._second:
            return identity
        self._sequences = {}
        return Identity(answer.producer_id, answer.producer_epoch)


def transactional_clients(world: World, dice: Random) -> list[TransactionalClient]:
    """Two of each protocol."""
    return [TransactionalClient(world, dice, f"p{number}", second=number % 2 == 1) for number in range(4)]
