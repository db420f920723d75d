"""The address clients are told. Unless `advertised.listeners` says otherwise, it is the one they already reached us
at.
"""

from typing import Final

from tidelog.broker.connection import Connection
from tidelog.config import BrokerConfig

Address = tuple[str, int]

_MAPPED: Final = "::ffff:"
"""How a socket for both families spells an IPv4 address. The client may know no other spelling than its own."""


class Advertised:
    def __init__(self, config: BrokerConfig) -> None:
        listeners, addresses = config.listener_addresses, config.advertised_addresses or ()
        self._fixed: Address | None = (addresses[0].host, addresses[0].port) if addresses else None
        self._by_port: dict[int, Address] = {}
        if len(addresses) == len(listeners):
            # One for each listener: a client is told the one that belongs to the door it came in by.
            self._by_port = {
                listener.port: (address.host, address.port)
                for listener, address in zip(listeners, addresses, strict=True)
            }

    def to(self, connection: Connection) -> Address:
        if self._fixed is None:
            return connection.host.removeprefix(_MAPPED), connection.port
        return self._by_port.get(connection.port, self._fixed)
