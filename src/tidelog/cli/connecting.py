"""The way from a command to a cluster: confluent-kafka clients, made once it is known that somebody listens."""

import logging
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tidelog.cli.problems import Problem
from tidelog.config import parse_assignments
from tidelog.errors import InvalidConfig

TIMEOUT_SECONDS: Final = 15.0
_DIAL_SECONDS: Final = 3.0
_DEFAULT_PORT: Final = 9092


@dataclass(frozen=True)
class Cluster:
    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict)

    @classmethod
    def dial(cls, bootstrap: str, properties: Iterable[str] | None = None) -> "Cluster":
        """Raises a `Problem` at once if nobody listens; the client library would retry for its whole timeout."""
        refusals = []
        for host, port in addresses(bootstrap):
            try:
                socket.create_connection((host, port), timeout=_DIAL_SECONDS).close()
            except OSError as refused:
                refusals.append((f"{host}:{port}", refused))
            else:
                return cls(bootstrap, _client_settings(properties or ()))
        where = ", ".join(address for address, _ in refusals)
        if all(isinstance(refused, ConnectionRefusedError) for _, refused in refusals):
            raise Problem(f"no broker at {where}", "start one with `tidelog serve`, or name another with -b HOST:PORT")
        reason = refusals[0][1]
        raise Problem(f"cannot reach {where}: {reason.strerror or reason}", "name a broker with -b HOST:PORT")

    @cached_property
    def admin(self) -> Any:
        """One for all calls: an answer that is still on its way dies with the client that asked."""
        return admin_api().AdminClient(self._settings(), logger=_silent())

    def producer(self, **settings: object) -> Any:
        from confluent_kafka import Producer

        # Java's default partitioner, so that a key written here and by a Java client meet in one partition.
        return Producer(self._settings({"partitioner": "murmur2_random", **settings}), logger=_silent())

    def consumer(self, **settings: object) -> Any:
        from confluent_kafka import Consumer

        # The library wants a group.id even from a consumer that only assigns; nothing is ever committed to it.
        assigning = {"group.id": "tidelog-cli", "enable.auto.commit": False, "enable.auto.offset.store": False}
        return Consumer(self._settings({**assigning, **settings}), logger=_silent())

    def topics(self, topic: str | None = None) -> Any:
        """Cluster metadata. A topic asked for by name must exist: asking must not create it."""
        if topic == "":
            raise Problem("the name of the topic is empty", "is a variable of the shell not set?")
        metadata = self.admin.list_topics(timeout=TIMEOUT_SECONDS)
        if topic is not None and topic not in metadata.topics:
            from difflib import get_close_matches

            near = get_close_matches(topic, metadata.topics, n=1)
            hint = f"did you mean {near[0]}?" if near else f"`tidelog topic create {topic}` makes it"
            raise Problem(f"there is no topic {topic} at {self.bootstrap}", hint)
        return metadata

    def await_topic(self, topic: str) -> int:
        """The number of its partitions. In a cluster a new topic reaches the brokers a moment after it was made."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics.get(topic)
            if found is not None and found.error is None and found.partitions:
                return len(found.partitions)
            if time.monotonic() > deadline:
                raise Problem(f"{topic} was created, but {self.bootstrap} does not list it yet", "`tidelog topic list`")
            time.sleep(0.05)

    def _settings(self, settings: dict[str, object] | None = None) -> dict[str, object]:
        common: dict[str, object] = {"bootstrap.servers": self.bootstrap, "client.id": "tidelog-cli"}
        return {**common, **(settings or {}), **self.properties}


def _client_settings(properties: Iterable[str]) -> dict[str, str]:
    try:
        return parse_assignments(properties)
    except InvalidConfig as mistyped:
        raise Problem(str(mistyped), "client settings are listed in librdkafka's CONFIGURATION.md") from None


def admin_api() -> Any:
    """confluent_kafka.admin, imported when first needed. Any: it does not tell mypy which of its names are public."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    found = []
    for part in filter(None, (each.strip() for each in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(_DEFAULT_PORT)
        if not port.isdecimal() or int(port) > 65_535:
            raise Problem(f"{part} is not a broker address", "give HOST:PORT, such as localhost:9092")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise Problem("no broker address given", "give HOST:PORT, such as -b localhost:9092")
    return found


def result(futures: dict[Any, Any]) -> Any:
    """The answer to an admin call about one thing."""
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def _silent() -> logging.Logger:
    """Errors are told once, by us; the library's own running commentary would only repeat them."""
    logger = logging.getLogger("tidelog.cli.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
