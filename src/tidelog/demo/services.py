"""The shop's services: four consumer groups over the same topic, each at its own pace, each with its own business."""

import json
import threading
from collections.abc import Callable
from typing import Any, Final

from tidelog.demo.shop import PAID, PLACED, RESERVED

BATCH: Final = 1000
SUSPICIOUS_CENTS: Final = 10_000

Make = Callable[[str], Any]
"""A consumer of this group."""


class Service:
    """One group with one member, in a thread. Commits after it has done its work: nothing is forgotten by a crash."""

    def __init__(self, name: str, make: Make, topic: str, run: str, work: Callable[[dict[str, Any]], None]) -> None:
        self.name = name
        self._run_id = run
        self.handled = 0
        self.failure: str | None = None
        self._consumer = make(name)
        self._topic = topic
        self._work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"demo-{name}", daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([self._topic])
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(20)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                messages = [each for each in self._consumer.consume(BATCH, timeout=0.2) if each.error() is None]
                events = [json.loads(message.value()) for message in messages]
                # Others may write to the same topic, and an earlier demo may have been ended before its time.
                ours = [event for event in events if event["event_id"].startswith(self._run_id)]
                for event in ours:
                    self._work(event)
                if messages:
                    self._consumer.commit(asynchronous=False)
                self.handled += len(ours)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            self._consumer.close()


class Services:
    """Billing counts money, fulfilment parcels, fraud what looks strange, analytics everything."""

    def __init__(self, make: Make, topic: str, run: str) -> None:
        self.billed_cents = 0
        self.parcels = 0
        self.suspicious = 0
        self.orders = 0
        self._billed: set[str] = set()
        self.all = [
            Service("billing", make, topic, run, self._bill),
            Service("fulfilment", make, topic, run, self._fulfil),
            Service("fraud", make, topic, run, self._suspect),
            Service("analytics", make, topic, run, self._analyse),
        ]

    def _bill(self, event: dict[str, Any]) -> None:
        # A payment that is told twice is one payment.
        if event["type"] == PAID and event["event_id"] not in self._billed:
            self._billed.add(event["event_id"])
            self.billed_cents += event["cents"]

    def _fulfil(self, event: dict[str, Any]) -> None:
        self.parcels += event["type"] == RESERVED

    def _suspect(self, event: dict[str, Any]) -> None:
        self.suspicious += event["type"] == PLACED and event["cents"] > SUSPICIOUS_CENTS

    def _analyse(self, event: dict[str, Any]) -> None:
        self.orders += event["type"] == PLACED

    def start(self) -> None:
        for service in self.all:
            service.start()

    def stop(self) -> None:
        for service in self.all:
            service.ask_to_stop()
        for service in self.all:
            service.join()

    @property
    def slowest(self) -> int:
        return min(service.handled for service in self.all)
