"""Numbered records per key, written through every accident, and the judgement over what was made of them."""

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

FLUSH_S = 60


class KeyedLoad:
    """Writes `key/0`, `key/1`, … of many keys, idempotently, from a thread, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, keys: int, *, pause_s: float = 0.01) -> None:
        self.sent: dict[bytes, int] = {b"KEY-%d" % number: 0 for number in range(keys)}
        self.failed: list[KafkaError] = []
        self._topic, self._pause_s = topic, pause_s
        self._dice = random.Random(keys)
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": FLUSH_S * 1000,
                "linger.ms": 5,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        keys = list(self.sent)
        while not self._ending.is_set():
            for key in self._dice.choices(keys, k=10):
                value = b"%s/%d" % (key, self.sent[key])
                self._producer.produce(self._topic, value.lower(), key, on_delivery=self._told)
                self.sent[key] += 1
            self._producer.poll(self._pause_s)

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed.append(error)

    def finish(self) -> int:
        """All is written; how many they are."""
        self._ending.set()
        self._thread.join(FLUSH_S)
        assert self._producer.flush(FLUSH_S) == 0
        assert not self.failed
        return sum(self.sent.values())


class Output:
    """Everything that a reader of committed records is given, in its order, read on while it grows."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.numbers: dict[bytes, list[int]] = defaultdict(list)
        self.count = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "check.crcs": True,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def read(self, seconds: float) -> None:
        for message in self._consumer.consume(5000, seconds):
            if message.error() is None:
                key, _, number = (message.value() or b"").partition(b"/")
                assert key == message.key()
                self.numbers[key].append(int(number))
                self.count += 1

    def read_until(self, count: int, seconds: float) -> None:
        """And a moment more: there might be more than there should be."""
        deadline = time.monotonic() + seconds
        while self.count < count and time.monotonic() < deadline:
            self.read(0.2)
        self.read(1.5)

    def close(self) -> None:
        self._consumer.close()


def judge(sent: Mapping[bytes, int], found: Mapping[bytes, Sequence[int]]) -> dict[str, int]:
    """How many records are lost, doubled, out of order within their key, or from nowhere. Nothing is wrong: all 0."""
    wrong = {"lost": 0, "doubled": 0, "disordered": 0, "strange": 0}
    for key in {*sent, *found}:
        numbers, expected = found.get(key, ()), sent.get(key, 0)
        distinct = set(numbers)
        wrong["lost"] += sum(number not in distinct for number in range(expected))
        wrong["doubled"] += len(numbers) - len(distinct)
        wrong["strange"] += sum(number >= expected for number in distinct)
        firsts = list(dict.fromkeys(numbers))
        wrong["disordered"] += sum(one > two for one, two in itertools.pairwise(firsts))
    return wrong
