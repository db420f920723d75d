"""Who may vote. A voter is a node together with the disk it votes from.

A node that comes back with an empty disk has another directory id: it is a stranger until it is added, so it can't give
the same vote twice or elect a leader that lacks what the old disk had promised to keep.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple


class ReplicaKey(NamedTuple):
    id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.id}/{self.directory_id or '?'}"


NOBODY: Final = -1
ANY_DIRECTORY: Final = ""
"""In an address: whatever disk that node has. Nothing that asks for a promise is sent to it."""


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    id: int
    directory_id: str
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)


class VoterSet:
    """Immutable. Two sets that differ by one voter have no disjoint majorities; that is why changes go one by one."""

    __slots__ = ("_by_key", "keys", "majority", "voters")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.voters = tuple(sorted(voters))
        self._by_key = {voter.key: voter for voter in self.voters}
        self.keys = frozenset(self._by_key)
        self.majority = len(self.voters) // 2 + 1

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self.voters)})"

    def has_id(self, node_id: int) -> bool:
        return any(voter.id == node_id for voter in self.voters)

    def with_voter(self, voter: Voter) -> "VoterSet":
        return VoterSet([*(one for one in self.voters if one.key != voter.key), voter])

    def without(self, key: ReplicaKey) -> "VoterSet":
        return VoterSet(one for one in self.voters if one.key != key)

    def is_quorum(self, replicas: Iterable[ReplicaKey]) -> bool:
        """Whether these include a majority. An empty set has none."""
        return len(self.keys.intersection(replicas)) >= self.majority

    def reached_by_majority(self, offset_of: Callable[[ReplicaKey], int]) -> int:
        """The largest value that a majority is at or beyond."""
        values = sorted(map(offset_of, self.keys), reverse=True)
        return values[self.majority - 1]
