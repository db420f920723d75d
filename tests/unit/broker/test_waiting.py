"""Requests that wait are looked at together, and each is its own."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.connection import Answer
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.requests import Context
from tidelog.broker.waiting import ParkedFetch, ParkedProduce, Shared, Waiting
from tidelog.clock import SystemClock
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import UnknownTopicOrPartition
from tidelog.ids import NO_TOPIC_ID, TopicPartition
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.wire.messages.data import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.record_batch import build_pairs
from tidelog.wire.schema import encode

NOW = 1_700_000_000_000


class Client:
    """As much of a connection as who waits for it needs to know."""

    peer = "somebody:1"

    def __init__(self) -> None:
        self.parked: dict[object, Callable[[], None]] = {}
        self.closed: list[str] = []
        self.answers: list[Answer] = []

    def promise(self) -> Answer:
        self.answers.append(Answer())
        return self.answers[-1]

    def close(self, reason: str) -> None:
        self.closed.append(reason)
        for end in list(self.parked.values()):
            end()


class Partition:
    high_watermark = 1


@pytest.mark.parametrize("time_is_up", [False, True])
def test_a_fetch_that_goes_wrong_costs_nobody_else_the_answer(time_is_up: bool) -> None:
    async def scenario() -> None:
        waiting = Waiting(asyncio.get_running_loop())
        partition: Any = Partition()
        answered: list[int] = []
        clients: list[Any] = [Client() for _ in range(3)]

        def park(number: int) -> None:
            def retry(now: bool, shared: Shared) -> bool:
                if number == 1:
                    raise ValueError("this one cannot be answered")
                answered.append(number)
                return True

            waiting.park_fetch(ParkedFetch(clients[number], [partition], retry), 0.0 if time_is_up else 30.0)

        for number in range(3):
            park(number)
        if not time_is_up:
            waiting.on_watermark(partition)
        async with asyncio.timeout(5):
            while len(answered) < 2:
                await asyncio.sleep(0.001)
        assert [client.closed for client in clients] == [[], ["internal error"], []]
        assert not waiting.has_reader(partition)

    asyncio.run(scenario())


def test_a_produce_whose_time_is_up_leaves_nothing_behind() -> None:
    """Its partition may stand still for hours while producers ask again and again."""

    async def scenario() -> None:
        waiting = Waiting(asyncio.get_running_loop())
        stuck: Any = Partition()
        answered: list[str] = []

        def park(name: str, timeout_s: float) -> "weakref.ref[Callable[[ParkedProduce], None]]":
            def done(_: ParkedProduce) -> None:
                answered.append(name)

            waiting.park_produce([(stuck, 2)], timeout_s, done)
            return weakref.ref(done)

        late, patient = park("late", 0.0), park("patient", 30.0)
        async with asyncio.timeout(5):
            while not answered:
                await asyncio.sleep(0.01)
        gc.collect()
        assert (late(), patient() is None) == (None, False)
        stuck.high_watermark = 2
        waiting.on_watermark(stuck)
        assert answered == ["late", "patient"]

    asyncio.run(scenario())


class Here:
    """All partitions there are, and nobody to sync them."""

    def __init__(self, directory: Path, count: int) -> None:
        self.replicas = [self._replica(directory, TopicPartition("orders", number)) for number in range(count)]

    @staticmethod
    def _replica(directory: Path, place: TopicPartition) -> Replica:
        log = Log.create(RealDisk(), f"{directory}/{place}", place, TopicConfig(), now_ms=NOW)
        log.flush()
        return Replica(log, NO_TOPIC_ID, 0)

    def find(self, topic: str, topic_id: object, partition: int) -> Replica:
        if partition >= len(self.replicas):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        return self.replicas[partition]

    def mark(self, replica: Replica) -> None:
        pass


@pytest.mark.parametrize(("asked", "known"), [(1, 1), (2, 2), (2, 1)])
def test_what_waits_to_be_safe_holds_on_to_nothing_that_was_written(tmp_path: Path, asked: int, known: int) -> None:
    """A request of many partitions has a buffer of its own, of up to a hundred megabytes, and hundreds of them may
    wait for a slow follower."""

    async def scenario() -> None:
        here: Any = Here(tmp_path, known)
        waiting = Waiting(asyncio.get_running_loop())
        nobody: Any = None
        produce = ProduceHandler(here, waiting, here, nobody, nobody, SystemClock()).produce
        batch = memoryview(build_pairs([(b"key", b"value")], NOW))
        data = tuple(PartitionProduceData(index=number, records=batch) for number in range(asked))
        topic = TopicProduceData(name="orders", partition_data=data)
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
        client: Any = Client()
        buffer = bytearray(encode(request, 9))
        assert produce(Context(client, 0, 9, 1, "test"), memoryview(buffer), 0) is None
        assert len(client.answers) == 1
        gc.collect()  # an error and its traceback have each other
        buffer.clear()  # refused while anybody has a view of it

    asyncio.run(scenario())
