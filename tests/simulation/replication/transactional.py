"""Clients that write in transactions, in both of Kafka's protocols: they ask again until they are told, or give up and
begin anew."""

from collections.abc import Callable, Generator
from random import Random
from typing import Any

from tests.simulation.replication.readers import Txn
from tests.simulation.replication.rooms import Reply
from tests.simulation.replication.world import World

from tidelog.cluster.image import NO_LEADER
from tidelog.errors import ErrorCode
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from tidelog.wire.schema import Message

CLIENT = -3
ANSWER_MS = 150
TIMEOUT_MS = 600
ATTEMPTS_MAX = 25
LATE = 0.2
"""Share of requests of which a copy is on its way for longer."""

RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Life = Generator[None, None, Any]
Send = Callable[[int, Reply], None]
"""Ask this broker."""


class TransactionalClient:
    def __init__(self, world: World, dice: Random, name: str, *, second: bool) -> None:
        self._world = world
        self._dice = dice
        self._name = name
        self._second = second
        """It speaks the second protocol, in which each transaction ends with a new epoch."""
        self._connection = 1
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

    def _ask(self, number: int, send: Send) -> Life:
        """The answer of whoever leads a partition; None if it does not come."""
        world = self._world
        heard: list[Any] = []
        target = world.controller.partition(number).leader
        given_up = False
        if target != NO_LEADER:
            delays = world.network.delays(CLIENT, target)
            if self._dice.random() < LATE:
                delays.append(self._dice.choice([40, 120, 400]))
            for delay in delays if self._second else delays[:1]:
                # In the first protocol nothing but the connection tells a late request from one of the transaction
                # that follows: it is lost with that, while late ones of the second must do no harm.
                world.deliver(
                    world.brokers[target],
                    delay,
                    lambda: None if given_up and not self._second else send(target, reply),
                )

        def reply(answer: Any) -> None:
            for delay in world.network.delays(target, CLIENT):
                world.at(delay, lambda: heard.append(answer))

        deadline = world.now + ANSWER_MS
        yield
        while not heard and world.now < deadline:
            yield
        given_up = True
        if not heard:
            self._connection += 1
        return heard[0] if heard else None

    def _coordinate(self, request: Message, version: int, code_of: Callable[[Any], int]) -> Life:
        """The first answer that is not to be tried again, or None."""
        number, connection = len(self._world.data), self._connection

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

    def _sleep(self, duration: int) -> Life:
        until = self._world.now + duration
        while self._world.now < until:
            yield

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
