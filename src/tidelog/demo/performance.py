"""Runs the demo from the first event to the last, and holds all who counted against what the shop knows."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tidelog.demo.services import Services
from tidelog.demo.shop import Shop
from tidelog.demo.spark_child import SparkChild
from tidelog.demo.traffic import Traffic

TOPIC: Final = "orders"
REVENUE_TOPIC: Final = "revenue-by-minute"
PARTITIONS: Final = 12
AS_THE_BROKERS_SAY: Final = -1
"""How many replicas: `default.replication.factor`."""
DRAIN_SECONDS: Final = 60.0
SPARK_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 0.05
_CRITICAL: Final = 2


@dataclass
class Scene:
    """Everything there is to see."""

    traffic: Traffic
    services: Services
    shop: Shop
    spark: SparkChild | None
    partitions: int
    revenue: dict[str, int] = field(default_factory=dict)
    """Cents by minute, as Spark wrote them."""
    phase: str = "running"

    @property
    def spark_revenue_cents(self) -> int:
        return sum(self.revenue.values())


@dataclass
class Account:
    """One number that must be equal to another."""

    what: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        return self.expected == self.found


Draw = Callable[[Scene], None]


class Performance:
    def __init__(self, bootstrap: str, *, rate: int, lake: Path, with_spark: bool) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self.run_id = f"{time.time_ns() // 1_000_000:x}"
        self.lake = lake / self.run_id
        self._with_spark = with_spark
        self._revenue_reader: Any = None

    def play(self, seconds: float | None, draw: Draw) -> list[Account]:
        """Until the time is up or Ctrl-C. What everybody counted, against what was sent."""
        starting = self._set_the_stage()
        shop = Shop(Random(), self.run_id)
        scene = Scene(
            Traffic(self._producer(), TOPIC, shop, self._rate),
            Services(self._consumer, TOPIC, self.run_id),
            shop,
            SparkChild(self._bootstrap, TOPIC, REVENUE_TOPIC, self.lake, starting) if self._with_spark else None,
            PARTITIONS,
        )
        try:
            scene.services.start()
            with suppress(KeyboardInterrupt):  # the way to end it; what is on its way still arrives below
                self._run(scene, seconds, draw)
            self._finish(scene, draw)
            return accounts(scene)
        finally:
            scene.services.stop()
            if scene.spark is not None:
                scene.spark.kill()
            if self._revenue_reader is not None:
                self._revenue_reader.close()

    def _run(self, scene: Scene, seconds: float | None, draw: Draw) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            scene.traffic.step()
            self._read_revenue(scene)
            draw(scene)
            time.sleep(_LOOK_SECONDS)

    def _finish(self, scene: Scene, draw: Draw) -> None:
        scene.phase = "closing: everything that was sent is still handled"
        scene.traffic.finish(DRAIN_SECONDS)
        if scene.spark is not None:
            scene.spark.ask_to_finish()
        deadline = time.monotonic() + DRAIN_SECONDS
        while scene.services.slowest < scene.traffic.acknowledged and time.monotonic() < deadline:
            self._read_revenue(scene)
            draw(scene)
            time.sleep(_LOOK_SECONDS)
        if scene.spark is not None:
            deadline = time.monotonic() + SPARK_SECONDS
            while not scene.spark.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
                self._read_revenue(scene)
                draw(scene)
            quiet = time.monotonic() + 2
            while time.monotonic() < quiet and scene.spark_revenue_cents != scene.shop.books.revenue_cents:
                self._read_revenue(scene)

    # -- clients ----------------------------------------------------------------------------------------------------

    def _set_the_stage(self) -> str:
        """Topics, and where in them this performance begins, as Spark's `startingOffsets` has it."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(self._common())
        wanted = [
            NewTopic(TOPIC, PARTITIONS, AS_THE_BROKERS_SAY),
            NewTopic(REVENUE_TOPIC, 1, AS_THE_BROKERS_SAY, config={"cleanup.policy": "compact"}),
        ]
        for created in admin.create_topics(wanted).values():
            try:
                created.result(15)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        reader = Consumer({**self._common(), "group.id": "demo", "enable.auto.commit": False})
        ends = {
            partition: reader.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=15)[1]
            for partition in range(PARTITIONS)
        }
        revenue = TopicPartition(REVENUE_TOPIC, 0)
        revenue.offset = reader.get_watermark_offsets(revenue, timeout=15)[1]
        reader.assign([revenue])
        self._revenue_reader = reader
        return json.dumps({TOPIC: {str(partition): end for partition, end in ends.items()}})

    def _common(self) -> dict[str, Any]:
        """A broker may be killed for fun: what librdkafka says about that would write over the screen."""
        return {"bootstrap.servers": self._bootstrap, "log_level": _CRITICAL}

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                **self._common(),
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 10,
            }
        )

    def _consumer(self, group: str) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **self._common(),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )

    def _read_revenue(self, scene: Scene) -> None:
        for message in self._revenue_reader.consume(1000, timeout=0):
            if message.error() is None and message.value() is not None:
                scene.revenue[message.key().decode()] = json.loads(message.value())["cents"]


def accounts(scene: Scene) -> list[Account]:
    books, traffic = scene.shop.books, scene.traffic
    found = [Account("events acknowledged", traffic.sent, traffic.acknowledged)]
    found += [
        Account(f"events handled by {service.name}", traffic.sent, service.handled) for service in scene.services.all
    ]
    found.append(Account("cents billed", books.revenue_cents, scene.services.billed_cents))
    if scene.spark is not None:
        said = scene.spark.last
        found += [
            Account("events archived", traffic.sent, int(said.get("rows", -1))),
            Account("distinct events archived", books.distinct, int(said.get("distinct", -1))),
            Account("cents in the archive", books.revenue_cents, int(said.get("revenue_cents", -1))),
            Account("cents by minute, from Spark", books.revenue_cents, scene.spark_revenue_cents),
        ]
    return found
