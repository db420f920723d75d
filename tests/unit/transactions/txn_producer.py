"""A producer as the clients have it: one request at a time, patience that ends, retries by a new connection."""

from dataclasses import dataclass
from typing import Any, Final

from txn_sim import add, add_offsets, code_of, end, init

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.transaction import Identity
from tidelog.wire.messages.data import InitProducerIdResponse
from tidelog.wire.messages.transactions import EndTxnRequest, EndTxnResponse
from tidelog.wire.schema import Message

CLIENT_MAY_RETRY: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
TIMEOUT_MS: Final = 10_000
OFFSETS: Final = "__consumer_offsets"


@dataclass(eq=False)
class Txn:
    """What is true of one transaction."""

    name: str
    identity: Identity
    second: bool
    asked: bool | None = None  # for a commit, for an abort, or nothing yet
    told: bool | None = None
    result: bool | None = None  # as the first marker said

    @property
    def is_over(self) -> bool:
        return self.told is not None or self.result is not None

    def end(self, committed: bool) -> None:
        assert not committed or self.asked, f"{self} is committed, and nobody asked for it"
        assert self.result in (None, committed), f"{self} ends in two ways"
        self.result = committed


class Producer:
    def __init__(self, world: Any, name: str, second: bool) -> None:
        self.world = world
        self.name = name
        self.second = second
        self.identity: Identity | None = None
        self.txn: Txn | None = None
        self.added: set[TopicPartition] = set()
        self.unanswered = 0  # writes
        self.doubtful = False  # a write may still be under way: abort, and take a new epoch
        self.needs_epoch = False
        self.pending: tuple[Message, int] | None = None
        self.token: object = None  # of the attempt that is listened to
        self.connection = world.connect()
        self.committed = 0
        self.dead = False
        self.why = ""

    def act(self) -> None:
        dice = self.world.dice
        if self.pending is not None:
            if self.token is None or (self.world.losing and dice.random() < self.world.trouble):
                self._try_again()
        elif self.identity is None:
            self._request(init(name=self.name, timeout_ms=TIMEOUT_MS), 5)
        elif self.txn is None:
            if self.needs_epoch:
                self._request(init(self.identity, name=self.name, timeout_ms=TIMEOUT_MS), 5)
            else:
                self._begin()
        elif self.unanswered:
            if self.world.losing and dice.random() < self.world.trouble:
                self.unanswered, self.doubtful = 0, True
        elif self.doubtful or (self.added and dice.random() < 0.35):
            self._end(not self.doubtful and (not self.world.losing or dice.random() < 0.6))
        elif self.second or (self.added and dice.random() < 0.5):
            self._write(dice.choice(sorted(self.added) if not self.second else list(self.world.partitions)))
        else:
            self._add(dice.choice(list(self.world.partitions)))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        assert self.identity is not None
        self.txn = Txn(self.name, self.identity, self.second)
        self.world.txns.append(self.txn)
        self.added, self.doubtful = set(), False

    def _add(self, where: TopicPartition) -> None:
        assert self.identity is not None
        if where.topic == OFFSETS:
            self._request(add_offsets(self.identity, "group", name=self.name), 4)
        else:
            self._request(add(self.identity, where, name=self.name), 3)
        self.adding = where

    def _write(self, where: TopicPartition) -> None:
        assert self.txn is not None
        txn = self.txn
        self.unanswered += 1
        self.added.add(where)

        def answered(code: ErrorCode) -> None:
            if self.txn is not txn or not self.unanswered:
                return
            self.unanswered -= 1
            if code is ErrorCode.NOT_ENOUGH_REPLICAS and not self.world.losing:
                return  # to be written again
            if code is not ErrorCode.NONE:
                self.doubtful = True

        self.world.write(txn, where, answered)

    def _end(self, committed: bool) -> None:
        assert self.txn is not None
        assert self.identity is not None
        if not self.second and not self.added:
            self.txn = None  # clients know that there is nothing to end
            return
        self.txn.asked = committed
        self._request(end(self.identity, committed, name=self.name), 5 if self.second else 4)

    def _request(self, request: Message, version: int) -> None:
        self.pending = request, version
        self._send()

    def _try_again(self) -> None:
        """It gave up on the connection, not on the request."""
        if self.token is not None or self.connection not in self.world.channels:
            self.connection.stuck = self.world.dice.random() < 0.5
            self.connection = self.world.connect()
        self._send()

    def _send(self) -> None:
        assert self.pending is not None
        request, version = self.pending
        token = self.token = object()

        def answered(response: Any) -> None:
            if self.token is token and not self.dead:
                self.token = None
                self._hear(request, response)

        self.world.send(self.connection, request, version, answered)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _hear(self, request: Message, response: Any) -> None:
        code = response.code if isinstance(response, KafkaError) else code_of(response)
        if code in CLIENT_MAY_RETRY:
            return
        self.pending = None
        if code is ErrorCode.TRANSACTION_ABORTABLE:
            self.doubtful = True
        elif code is not ErrorCode.NONE:
            assert code is not ErrorCode.INVALID_TXN_STATE, "somebody else ended its transaction"
            self.dead = True
            self.why = f"{type(request).__name__}: {code.name}"
        elif isinstance(response, InitProducerIdResponse):
            self.identity = Identity(response.producer_id, response.producer_epoch)
            self.needs_epoch = False
        elif isinstance(response, EndTxnResponse):
            self._hear_end(request, response)
        else:
            self.added.add(self.adding)

    def _hear_end(self, request: Any, response: EndTxnResponse) -> None:
        assert isinstance(request, EndTxnRequest)
        assert self.txn is not None
        self.txn.told = request.committed
        self.committed += request.committed
        # The first protocol keeps the epoch, so one who does not know where a write is must ask for another.
        self.needs_epoch = self.doubtful and not self.second
        self.txn = None
        if self.second:
            self.identity = Identity(response.producer_id, response.producer_epoch)
