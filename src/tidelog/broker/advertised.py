"""The address clients are told. Unless `advertised.listeners` says otherwise, it is the one they already reached us
at.
"""

from tidelog.broker.connection import Connection
from tidelog.config import BrokerConfig


class Advertised:
    def __init__(self, config: BrokerConfig) -> None:
        addresses = config.advertised_addresses
        self._fixed = (addresses[0].host, addresses[0].port) if addresses else None

    def to(self, connection: Connection) -> tuple[str, int]:
        return self._fixed or (connection.host, connection.port)
