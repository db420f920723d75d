"""How long a replica waits, and how much it may have under way."""

from typing import Final, NamedTuple, Protocol


class Dice(Protocol):
    """`random.Random` is one. Replicas must not share a seed, or they stand for election at the same moment."""

    def random(self) -> float: ...


class Settings(NamedTuple):
    election_timeout_ms: int = 1000
    """Without a leader for this long, and up to as much again by dice, a voter stands for election. A leader steps down
    when a majority was silent for this long."""
    heartbeat_ms: int = 200
    append_bytes_max: int = 1 << 20
    """Of entries in one message; a single larger entry still goes."""
    appends_in_flight_max: int = 32
    bytes_in_flight_max: int = 8 << 20
    """To one replica, before it has answered."""
    committed_bytes_max: int = 4 << 20
    """Of entries in one `Ready`."""
    snapshot_piece_bytes: int = 256 << 10
    observer_timeout_ms: int = 10_000
    """An observer that is silent for this long is forgotten until it asks again."""
    observers_max: int = 1000
    cache_bytes: int = 4 << 20
    """Of the newest entries, which are sent without asking the store."""
    proposals_bytes_max: int = 64 << 20
    """Of entries that are not committed yet. More are refused: nobody is served by a longer queue."""


DEFAULTS: Final = Settings()
