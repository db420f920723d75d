"""The state machine of the simulation: a fold of all that is applied, so a wrong, missing or doubled entry shows."""

from typing import NamedTuple
from zlib import crc32

import msgspec

from tidelog.consensus.entries import Entry
from tidelog.wire.record_batch import Record, build_batch, iter_records


class State(NamedTuple):
    end_offset: int
    fold: int


EMPTY = State(0, 0)


def fold(state: State, entry: Entry) -> State:
    seed = state.fold * 31 + entry.offset * 7 + entry.epoch
    return State(entry.end, crc32(entry.data, seed & 0xFFFFFFFF))


class FoldMachine:
    def __init__(self) -> None:
        self.state = EMPTY
        self.applied: list[Entry] = []
        """Since the checker last looked."""
        self.loaded: list[State] = []

    def apply(self, entry: Entry) -> None:
        self.state = fold(self.state, entry)
        self.applied.append(entry)

    def snapshot(self) -> bytes:
        return build_batch([Record(0, 0, None, msgspec.msgpack.encode(self.state))])

    def load(self, data: bytes) -> None:
        (record,) = iter_records(data)
        self.state = State(*msgspec.msgpack.decode(record.value or b""))
        self.applied.clear()
        self.loaded.append(self.state)


def value_batch(number: int, count: int, padding: int) -> bytes:
    """A proposal like no other."""
    text = b"%d " % number + b"x" * padding
    return build_batch([Record(i, 0, None, text) for i in range(count)])
