"""`listeners` and `advertised.listeners`: where the broker binds, and what it tells clients."""

import re
from typing import Final

import msgspec

from tidelog.errors import InvalidConfig

PROTOCOLS: Final = ("PLAINTEXT",)
_SHAPE: Final = re.compile(r"^(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]/:\s]*):(?P<port>\d{1,5})$")

_VOTER: Final = re.compile(r"^(?P<id>\d{1,9})@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]/:\s]+):(?P<port>\d{1,5})$")


class Listener(msgspec.Struct, frozen=True):
    name: str
    host: str  # "" binds every interface
    port: int

    @classmethod
    def parse(cls, text: str) -> "Listener":
        shape = _SHAPE.match(text)
        if shape is None or int(shape["port"]) > 65_535 or shape["name"].upper() not in PROTOCOLS:
            raise ValueError(text)
        return cls(shape["name"].upper(), shape["host"].strip("[]"), int(shape["port"]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def listens(values: tuple[str, ...] | None) -> bool:
    """True for a non-empty list of listeners on different ports (port 0 asks the system for a free one)."""
    parsed = _parsed(values)
    fixed = [listener.port for listener in parsed if listener.port]
    return bool(parsed) and len(fixed) == len(set(fixed))


def reachable(values: tuple[str, ...] | None) -> bool:
    """True for a list of addresses a client could connect to: a host that names one machine and a real port."""
    parsed = _parsed(values)
    return bool(parsed) and all(each.host not in ("", "0.0.0.0", "::") and each.port > 0 for each in parsed)


def quorum_voters(values: tuple[str, ...] | None) -> bool:
    """True for a list of id@host:port, each id and each address once."""
    try:
        parsed = parse_voters(values or ())
    except ValueError:
        return False
    return len(parsed) == len(values or ()) == len(set(parsed.values()))


def parse_voters(values: tuple[str, ...]) -> dict[int, tuple[str, int]]:
    voters = {}
    for value in values:
        shape = _VOTER.match(value)
        if shape is None or not 0 < int(shape["port"]) <= 65_535:
            raise ValueError(value)
        voters[int(shape["id"])] = (shape["host"].strip("[]"), int(shape["port"]))
    return voters


def own_address(node_id: int, voters: dict[int, tuple[str, int]], listener: str | None) -> tuple[str, int]:
    """Where a broker of a cluster listens for the others."""
    if listener is not None:
        host, _, port = listener.rpartition(":")
        if not port.isdigit():
            raise InvalidConfig(f"controller.listener={listener} is not host:port")
        return host, int(port)
    address = voters.get(node_id)
    if address is None:
        raise InvalidConfig(
            f"node.id={node_id} is not in controller.quorum.voters: say where it listens for brokers with "
            f"controller.listener=host:port"
        )
    return address


def _parsed(values: tuple[str, ...] | None) -> list[Listener]:
    try:
        return [Listener.parse(value) for value in values or ()]
    except ValueError:
        return []
