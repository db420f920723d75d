"""Read one topic, write another, exactly once: stop or kill it at any moment, and nothing is lost or done twice.

    tidelog serve &
    tidelog topic create orders --partitions 4
    tidelog topic create shouted --partitions 4
    python examples/exactly_once.py orders shouted --name worker-1 &
    python examples/orders.py 1000
    tidelog consume shouted --from-beginning

What is written and how far was read are one transaction: both are there, or neither. Start as many as there are
partitions, each with a name of its own; a worker that comes back under its name ends what it left open.
"""

import argparse
import contextlib
import os
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

CALL_S = 30


def transform(value: bytes) -> bytes:
    return value.upper()


class Worker:
    def __init__(self, source: str, target: str, name: str, group: str, settings: dict[str, str]) -> None:
        common = {
            "bootstrap.servers": os.environ.get("TIDELOG_BOOTSTRAP", "localhost:9092"),
            # When no broker answers, librdkafka forgets all of them and starts over. A transaction that was waiting for
            # its group's coordinator then waits for ever (librdkafka issue 5511).
            "metadata.recovery.strategy": "none",
        }
        reading = {k: v for k, v in settings.items() if k.startswith(("session.", "heartbeat."))}
        writing = {k: v for k, v in settings.items() if k.startswith("transaction.")}
        shared = {k: v for k, v in settings.items() if k not in reading and k not in writing}
        self.target = target
        self.consumer = Consumer(
            {
                **common,
                "group.id": group,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,  # the transaction commits
                "isolation.level": "read_committed",
                **shared,
                **reading,
            }
        )
        self.producer = Producer({**common, "transactional.id": name, **shared, **writing})
        self.membership: Any = None
        self.next_offsets: dict[int, int] = {}
        self.producer.init_transactions(CALL_S)
        self.consumer.subscribe([source], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Note which generation of the group gave us our records: once it is over, commits in its name are refused."""
        self.membership = consumer.consumer_group_metadata()
        starts = consumer.committed(partitions, CALL_S)
        for start in starts:
            if start.offset < 0:
                start.offset = consumer.get_watermark_offsets(start, CALL_S)[0]
        self.next_offsets = {start.partition: start.offset for start in starts}
        consumer.assign(starts)

    def run(self) -> None:
        while True:
            messages = [message for message in self.consumer.consume(100, 0.2) if self.is_next(message)]
            if messages:
                self.process(messages)

    def is_next(self, message: Message) -> bool:
        """librdkafka can hand out records that it fetched when the partition was ours the last time. Others have done
        them since."""
        start = self.next_offsets.get(message.partition())
        return message.error() is None and start is not None and message.offset() >= start

    def process(self, messages: list[Message]) -> None:
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.producer.produce(self.target, transform(message.value() or b""), message.key())
            done = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(messages[0].topic(), *each) for each in done.items()]
            patiently(self.producer.send_offsets_to_transaction, offsets, self.membership)
            patiently(self.producer.commit_transaction)
            self.next_offsets.update(done)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise  # another worker has our name, or worse: start anew
            patiently(self.producer.abort_transaction)
            self.rewind()

    def rewind(self) -> None:
        """Nothing happened: read on where the last transaction ended."""
        for place in self.consumer.assignment():
            self.consumer.seek(TopicPartition(place.topic, place.partition, self.next_offsets[place.partition]))


def patiently(call: Callable[..., Any], *arguments: Any) -> None:
    """The broker may be away for a while; what is not known to have happened may be asked for again."""
    while True:
        try:
            call(*arguments)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--name", default="worker-1", help="transactional.id: one per worker that runs")
    parser.add_argument("--group", default="shouters", help="group.id: the same for all workers")
    parser.add_argument("-X", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = dict(each.split("=", 1) for each in options.settings)
    with contextlib.suppress(KeyboardInterrupt):
        Worker(options.source, options.target, options.name, options.group, settings).run()


if __name__ == "__main__":
    main()
