"""Producers that go ahead on a whole broker, in the moments in which that is dangerous."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "property"))

from txn_machine import StepwiseFlusher
from txn_world_whole import World

from tidelog.broker.coordinators.verification import Remote, TransactionVerifier, Writer
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.frames import decode_response_header, encode_request
from tidelog.wire.messages import transactions as messages
from tidelog.wire.messages.data import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, build_batch, iter_batches, iter_records
from tidelog.wire.records import Record
from tidelog.wire.schema import Message, decode, encode, spec_of

Place = tuple[str, int]
Who = tuple[int, int]
INIT, ADD, PRODUCE, END, OFFSETS = 4, 3, 11, 4, 3


class Line:
    """A client's connection, by which it may send without waiting for answers."""

    def __init__(self, world: World) -> None:
        assert world.machine is not None
        self.world = world
        self.answers: list[Any] = []
        self.unanswered: list[tuple[Any, int]] = []
        self._server = world.machine.accept(self._heard)

    def _heard(self, frame: bytes) -> None:
        spec, version = self.unanswered.pop(0)
        data = memoryview(frame)[4:]
        _, body = decode_response_header(spec.key, version, data)
        self.answers.append(decode(spec.response, version, bytes(data), body))

    def send(self, request: Message, version: int) -> None:
        spec = spec_of(type(request))
        self.unanswered.append((spec, version))
        self._server.receive(bytes(encode_request(spec.key, version, 7, "sim", encode(request, version))[4:]))
        self.world._spin()

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        deadline = self.world.now + 2
        while self.unanswered and self.world.now < deadline:
            self.world.run_until(self.world.now + 0.0005)
        assert not self.unanswered, f"{type(request).__name__} is not answered"
        return self.answers[-1]

    def init(self, name: str = "alpha") -> Who:
        answer = self.ask(init(name), INIT)
        assert answer.error_code == 0
        return answer.producer_id, answer.producer_epoch

    def add(self, who: Who, *places: Place) -> ErrorCode:
        return code_of_add(self.ask(add(who, *places), ADD))

    def produce(self, who: Who, place: Place, sequence: int, value: bytes) -> ErrorCode:
        answer = self.ask(produce(who, place, sequence, value), PRODUCE)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def end(self, who: Who, committed: bool) -> ErrorCode:
        return ErrorCode(self.ask(end(who, committed), END).error_code)


def init(name: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=8000, producer_id=-1, producer_epoch=-1)


def add(who: Who, *places: Place) -> messages.AddPartitionsToTxnRequest:
    return messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="alpha",
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=tuple(
            messages.AddPartitionsToTxnTopic(name=topic, partitions=(number,)) for topic, number in places
        ),
    )


def code_of_add(answer: Any) -> ErrorCode:
    return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def produce(who: Who, place: Place, sequence: int, value: bytes) -> ProduceRequest:
    batch = build_batch(
        [Record(0, 0, value, value, ())],
        attributes=TRANSACTIONAL,
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=sequence,
    )
    data = PartitionProduceData(index=place[1], records=memoryview(batch))
    topics = (TopicProduceData(name=place[0], partition_data=(data,)),)
    return ProduceRequest(transactional_id="alpha", acks=-1, timeout_ms=500, topic_data=topics)


def end(who: Who, committed: bool) -> messages.EndTxnRequest:
    return messages.EndTxnRequest(
        transactional_id="alpha", producer_id=who[0], producer_epoch=who[1], committed=committed
    )


def offsets(who: Who, group: str) -> messages.TxnOffsetCommitRequest:
    partition = messages.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=77, committed_metadata=None
    )
    topics = (messages.TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),)
    return messages.TxnOffsetCommitRequest(
        transactional_id="alpha", group_id=group, producer_id=who[0], producer_epoch=who[1], topics=topics
    )


def story(world: World, place: Place) -> list[str]:
    """What a log says: values, and how transactions ended."""
    assert world.machine is not None
    log = world.machine.partitions.get(*place).log
    told, offset = [], log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, 1 << 20, upper=log.end_offset)
        for header, batch in iter_batches(piece.file.read(piece.position, piece.length)):
            offset = header.last_offset + 1
            for record in iter_records(batch):
                if header.attributes & CONTROL:
                    told.append("commit" if bytes(record.key or b"")[3] == 1 else "abort")
                else:
                    told.append(bytes(record.value or b"").decode("latin1"))
    return told


def quiet_worlds(seeds: int) -> list[World]:
    """In which nothing goes wrong by itself."""
    worlds = (World(seed) for seed in range(seeds))
    return [each for each in worlds if each.trouble == 0 and not (each.sticky or each.crashes_at_ends) and each.machine]


def lose_power(world: World) -> None:
    world._fall(power=True)
    world.healing = True
    while world.machine is None or not world.machine.ready:
        world.run_until(world.now + 0.001)


def test_the_first_write_after_a_power_loss_is_not_taken_for_the_last_transactions() -> None:
    """The decision is on disk, and the marker is not: the log says that the last transaction is open."""
    tried, place = 0, ("c", 0)
    for world in quiet_worlds(200):
        line = Line(world)
        who = line.init()
        assert line.add(who, place) is ErrorCode.NONE
        assert line.produce(who, place, 0, b"last") is ErrorCode.NONE
        assert line.end(who, True) is ErrorCode.NONE
        line.send(add(who, place), ADD)
        if line.unanswered:
            continue
        assert code_of_add(line.answers[-1]) is ErrorCode.NONE
        lose_power(world)
        if "commit" in story(world, place):
            continue
        tried += 1
        line, code = Line(world), ErrorCode.NOT_ENOUGH_REPLICAS
        while code is ErrorCode.NOT_ENOUGH_REPLICAS:
            code = line.produce(who, place, 1, b"next")
            world.run_until(world.now + 0.005)
        assert code is ErrorCode.NONE
        world.run_until(world.now + 0.3)
        assert line.end(who, False) is ErrorCode.NONE
        world.run_until(world.now + 1)
        assert story(world, place) == ["last", "commit", "next", "abort"]
    assert tried


@pytest.mark.parametrize("kind", ["records", "offsets"])
def test_a_late_write_of_a_transaction_that_was_aborted_is_not_the_next_ones(kind: str) -> None:
    """It was vouched for, and the word is on its way to the log, when the abort is decided."""
    tried = 0
    place = ("__consumer_offsets", 0) if kind == "offsets" else ("t", 1)
    for world in quiet_worlds(100):
        late, line, other = Line(world), Line(world), Line(world)
        who = line.init()
        assert line.add(who, ("t", 0), ("t", 1)) is ErrorCode.NONE
        if kind == "offsets":
            group = messages.AddOffsetsToTxnRequest(
                transactional_id="alpha", producer_id=who[0], producer_epoch=who[1], group_id="g"
            )
            assert line.ask(group, OFFSETS).error_code == 0
        assert line.produce(who, ("t", 0), 0, b"last") is ErrorCode.NONE
        world.run_until(world.now + 0.1)
        before = len(story(world, place))
        other.send(init("beta"), INIT)  # whose record the word has to wait for
        if not other.unanswered:
            continue
        tried += 1
        if kind == "offsets":
            late.send(offsets(who, "g"), OFFSETS)
        else:
            late.send(produce(who, place, 0, b"late"), PRODUCE)
        assert line.end(who, False) is ErrorCode.NONE
        world.run_until(world.now + 0.5)
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        while code is ErrorCode.CONCURRENT_TRANSACTIONS:
            code = line.add(who, ("t", 0))
        assert line.produce(who, ("t", 0), 1, b"next") is ErrorCode.NONE
        assert line.end(who, True) is ErrorCode.NONE
        world.run_until(world.now + 0.5)
        assert story(world, place)[before:][-1:] == ["abort"]
    assert tried


def test_a_marker_is_not_safe_because_it_has_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, place, honest = [False], ("t", 0), StepwiseFlusher._sync_one

    def sync_one(self: StepwiseFlusher) -> None:
        if stuck[0] and self._jobs and self._jobs[0].replica.partition == place:
            self._loop.call_later(5, self._sync_one)
            self._jobs.rotate(-1)
            if self._jobs[0].replica.partition == place:
                return
        honest(self)

    monkeypatch.setattr(StepwiseFlusher, "_sync_one", sync_one)
    world = quiet_worlds(60)[0]
    line = Line(world)
    who = line.init()
    assert line.add(who, place) is ErrorCode.NONE
    assert line.produce(who, place, 0, b"last") is ErrorCode.NONE
    world.run_until(world.now + 0.1)
    stuck[0] = True
    assert line.end(who, True) is ErrorCode.NONE
    assert line.add(who, place) is ErrorCode.NONE
    line.produce(who, place, 1, b"next")
    world.run_until(world.now + 33)
    assert world.machine is not None
    (host,) = world.machine.transactions.coordinator.hosts
    log = world.machine.partitions.get(*place).log
    assert log.flushed_offset == 1, "neither the marker nor what is behind it"
    assert host.shard.find("alpha").state.is_prepared, "so it is not written down as over"


def test_a_coordinator_that_was_deposed_vouches_for_nobody() -> None:
    """Between the image that says so and the moment in which its partitions follow that image."""
    world, place = quiet_worlds(60)[0], ("t", 0)
    line = Line(world)
    who = line.init()
    assert line.add(who, place) is ErrorCode.NONE
    world.run_until(world.now + 0.1)
    assert world.machine is not None
    coordinator = world.machine.transactions.coordinator
    writer = Writer("alpha", *who, adds=False, knows_abortable=False)

    def vouches(node_id: int) -> bool:
        remote = Remote(node_id, coordinator, lambda node: pytest.fail("nobody is asked"))
        return TransactionVerifier(coordinator, remote).at_once(writer, (TopicPartition(*place),))

    leader = coordinator.leader_of("alpha")
    assert vouches(leader)
    assert not vouches(leader + 1)
