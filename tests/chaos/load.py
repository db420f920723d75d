"""Acknowledged load: a producer that remembers what it was promised, and the check that the promise was kept."""

import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

FLUSH_S = 60


class Load:
    """Writes the numbers 0, 1, 2, … round robin, idempotently, with acks=all, through every restart of the broker."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, message_timeout_ms: int = 60_000) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.sent = 0
        self.promised: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value
        self.promised_somewhere: list[tuple[int, bytes]] = []
        """Partition and value: when the answer to a batch is lost and the next one is acknowledged, the library knows
        that the first was written too, but not where."""
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": message_timeout_ms,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )

    def create_topic(self, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, self.partitions, 1, config=config)])[self.topic].result(20)

    def run(self, seconds: float, pause_s: float = 0.0005) -> None:
        """A little pause per record keeps the log short and the broker, not the producer, the thing under test."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(10):
                self._producer.produce(
                    self.topic, b"%d" % self.sent, partition=self.sent % self.partitions, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(pause_s * 10)

    def finish(self) -> None:
        assert self._producer.flush(FLUSH_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        number, offset, value = message.partition() or 0, message.offset(), message.value()
        assert value is not None
        if offset is None or offset < 0:
            self.promised_somewhere.append((number, value))
            return
        assert (number, offset) not in self.promised, f"offset {number}@{offset} was promised twice"
        self.promised[number, offset] = value

    def run_until_promised(self, count: int = 1) -> None:
        """Until so many more were acknowledged."""
        wanted, deadline = len(self.promised) + count, time.monotonic() + FLUSH_S
        while len(self.promised) < wanted:
            assert time.monotonic() < deadline, "nothing is acknowledged"
            self.run(0.05)

    def read_back(self) -> dict[int, list[bytes]]:
        """Every record of every partition; fails if offsets are not 0, 1, 2, …"""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        partitions = [TopicPartition(self.topic, p, 0) for p in range(self.partitions)]
        answers = admin.list_offsets({partition: OffsetSpec.latest() for partition in partitions})
        left = sum(answer.result(20).offset for answer in answers.values())
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        )
        consumer.assign(partitions)
        found: dict[int, list[bytes]] = defaultdict(list)
        deadline = time.monotonic() + FLUSH_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.2):
                assert message.error() is None, message.error()
                values = found[message.partition() or 0]
                assert message.offset() == len(values), "a gap or a repetition in the offsets"
                values.append(message.value() or b"")
                left -= 1
        consumer.close()
        assert left == 0, f"{left} records could not be read"
        return found

    def check(self) -> None:
        """Every promise is kept at its offset, and nothing is stored twice."""
        found = self.read_back()
        broken = {
            place: value
            for place, value in self.promised.items()
            if len(found[place[0]]) <= place[1] or found[place[0]][place[1]] != value
        }
        assert not broken, (
            f"{len(broken)} acknowledged records are lost or elsewhere, such as {next(iter(broken.items()))}"
        )
        lost = [(number, value) for number, value in self.promised_somewhere if value not in found[number]]
        assert not lost, f"{len(lost)} acknowledged records are lost, such as {lost[0]}"
        for partition, values in found.items():
            numbers = [int(value) for value in values]
            assert numbers == sorted(set(numbers)), f"partition {partition} holds a record twice or out of order"
