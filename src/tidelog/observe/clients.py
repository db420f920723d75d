"""The clients an observer needs, and the words for what they cannot do."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Protocol

TIMEOUT_SECONDS: Final = 15.0


class Kafka(Protocol):
    """Clients of one cluster, as confluent-kafka makes them."""

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def admin(self) -> Any: ...

    def consumer(self, **settings: object) -> Any:
        """One that only assigns and never commits."""
        ...


class Clients:
    """Of a cluster named by its address, for programs."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        self.properties: Mapping[str, str] = dict(properties or {})
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "tidelog", **self.properties}

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka import admin as kafka

        return kafka.AdminClient(self._common)

    def consumer(self, **settings: object) -> Any:
        from confluent_kafka import Consumer

        # The library wants a group.id even from a consumer that only assigns; nothing is ever committed to it.
        assigning = {"group.id": "tidelog", "enable.auto.commit": False, "enable.auto.offset.store": False}
        return Consumer({**self._common, **assigning, **settings})


def speaks_plainly(kafka: Kafka) -> bool:
    """Our own small client knows neither TLS nor passwords."""
    return kafka.properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"
