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
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,  # the transaction commits
                "isolation.level": "read_committed",
                **shared,
                **reading,
            }
        )
        self.producer = Producer({**common, "transactional.id": name, **shared, **writing})
        self.membership: Any = None
        self.producer.init_transactions(CALL_S)
        self.consumer.subscribe([source], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """Which generation of the group gave us our records. Once it is over, commits in its name are refused."""
        self.membership = consumer.consumer_group_metadata()

    def run(self) -> None:
        while True:
            messages = [message for message in self.consumer.consume(100, 0.2) if message.error() is None]
            if messages:
                self.process(messages)

    def process(self, messages: list[Message]) -> None:
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.producer.produce(self.target, transform(message.value() or b""), message.key())
            done = {
                message.partition(): TopicPartition(message.topic(), message.partition(), message.offset() + 1)
                for message in messages
            }
            patiently(self.producer.send_offsets_to_transaction, list(done.values()), self.membership)
            patiently(self.producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise  # another worker has our name, or worse: start anew
            patiently(self.producer.abort_transaction)
            self.rewind(messages)

    def rewind(self, messages: list[Message]) -> None:
        """Nothing happened: read them again, unless they are somebody else's by now."""
        ours = {each.partition for each in self.consumer.assignment()}
        first: dict[int, Message] = {}
        for message in messages:
            first.setdefault(message.partition(), message)
        for partition, message in first.items():
            if partition in ours:
                self.consumer.seek(TopicPartition(message.topic(), partition, message.offset()))


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
