"""Send made-up orders to a topic with an ordinary Kafka client, and see each one acknowledged.

    tidelog serve &
    python examples/orders.py 1000
    tidelog consume orders --from-beginning

Orders of one customer have the same key, so they share a partition and stay in order.
"""

import os
import sys
import time
from itertools import islice
from random import Random

from confluent_kafka import KafkaError, Message, Producer

from tidelog.cli.orders import orders

TOPIC = "orders"


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    producer = Producer(
        {
            "bootstrap.servers": os.environ.get("TIDELOG_BOOTSTRAP", "localhost:9092"),
            "acks": "all",
            "compression.type": "snappy",
            "partitioner": "murmur2_random",  # as Java does, so that every client finds a key in the same partition
        }
    )
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for order in islice(orders(Random(), time.time_ns() // 1_000_000), number):
        producer.produce(TOPIC, order.value, order.key, on_delivery=delivered)
        producer.poll(0)
    unsent = producer.flush(30)
    print(f"{number - len(refused) - unsent} of {number} orders acknowledged")
    if refused or unsent:
        sys.exit(refused[0] if refused else "the broker did not answer in time")


if __name__ == "__main__":
    main()
