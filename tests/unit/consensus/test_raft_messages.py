"""Messages and files as bytes: what is written is read, and nothing else is."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raft_cluster import key_of, voters_of

from tidelog.consensus.control import decode_voters, encode_voters
from tidelog.consensus.entries import DATA, Entry, HardState, SnapshotId
from tidelog.consensus.hard_state_file import StoredState, decode_state, encode_state
from tidelog.consensus.messages import (
    AnyMessage,
    AppendRequest,
    AppendResponse,
    LeaderHint,
    ObserveRequest,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    decode_message,
    encode_message,
)
from tidelog.errors import CorruptMessage, MalformedMessage

HERE, THERE = key_of(1), key_of(2)
MESSAGES: list[AnyMessage] = [
    VoteRequest(3, HERE, THERE, 17, 2, True),
    VoteResponse(3, HERE, THERE, False, True, 2),
    AppendRequest(3, HERE, THERE, 4, 2, 4, 9, (Entry(4, 2, DATA, 2, b"ab"), Entry(6, 3, DATA, 1, b""))),
    AppendResponse(3, HERE, THERE, 7, 9, 9, 12, 2, 5),
    SnapshotRequest(3, HERE, THERE, SnapshotId(9, 2), b"v", 0, 10, 1, b"0123456789"),
    SnapshotResponse(3, HERE, THERE, SnapshotId(9, 2), 10, 1),
    TimeoutNow(3, HERE, THERE),
    ObserveRequest(3, HERE, THERE, 5),
    LeaderHint(3, HERE, THERE, HERE),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_bytes(message: AnyMessage) -> None:
    assert decode_message(encode_message(message)) == message


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_other_bytes_are_malformed_and_nothing_worse(data: st.DataObject) -> None:
    encoded = bytearray(encode_message(data.draw(st.sampled_from(MESSAGES))))
    for _ in range(data.draw(st.integers(0, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    del encoded[data.draw(st.integers(0, len(encoded))) :]
    try:
        message = decode_message(encoded)
    except MalformedMessage:
        return
    if isinstance(message, AppendRequest):
        ends = [message.prev_offset, *(entry.end for entry in message.entries)]
        assert [entry.offset for entry in message.entries] == ends[:-1]


@pytest.mark.parametrize(
    "entries",
    [
        (Entry(5, 2, DATA, 1, b""),),  # a hole
        (Entry(4, 1, DATA, 1, b""),),  # an epoch that was over
        (Entry(4, 4, DATA, 1, b""),),  # an epoch that is not yet
        (Entry(4, 2, DATA, 0, b""),),  # nothing
    ],
)
def test_entries_that_do_not_follow_each_other_are_refused(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(MalformedMessage):
        decode_message(encode_message(AppendRequest(3, HERE, THERE, 4, 2, 4, 9, entries)))


def test_voters_are_kafkas_record() -> None:
    encoded = encode_voters(voters_of(1))
    # version, count + 1, id, directory id, no endpoints, supported versions 0 to 1, tags of each struct
    assert encoded.hex() == "00000200000001000000000000000100000000000000000100000001000000"
    assert decode_voters(encoded) == voters_of(1)


def test_the_state_file_is_believed_only_whole() -> None:
    state = StoredState(HERE.directory_id, HardState(4, THERE), 12)
    encoded = encode_state(state)
    assert decode_state(encoded, "quorum-state") == state
    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 2
        with suppress(CorruptMessage):
            assert decode_state(bytes(damaged), "quorum-state") == state
        with pytest.raises(CorruptMessage):
            decode_state(encoded[:position], "quorum-state")
