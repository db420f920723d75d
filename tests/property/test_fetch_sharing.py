"""Fetches that are alike: decoded once and answered once, byte for byte as each of them would have been alone."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import Dice, Drawn, make

from tidelog.broker.connection import Part
from tidelog.broker.handlers.fetch_sharing import ASKED_BYTES_MAX, ASKED_MAX, IN_MEMORY_MAX, AskedBefore, SharedAnswer
from tidelog.errors import MalformedMessage
from tidelog.storage.disk import RealFile
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, decode_fetch, encode_fetch_response
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.schema import encode

HEAD = b"a request's header"


def framed(request: FetchRequest, version: int) -> memoryview:
    return memoryview(bytearray(HEAD + encode(request, version)))


def a_request(offset: int, **options: int) -> FetchRequest:
    wish = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=(FetchTopic(topic="t", partitions=(wish,)),), **options)


@settings(max_examples=80, deadline=None)
@given(st.integers(4, 18), st.data())
def test_any_request_is_decoded_as_if_it_were_the_first(version: int, data: st.DataObject) -> None:
    asked_before = AskedBefore()
    requests = [make(FetchRequest, version, Drawn(data)) for _ in range(data.draw(st.integers(1, 3)))]
    for request in requests * 2:
        frame = framed(request, version)
        expected = decode_fetch(frame, len(HEAD), version)
        asked = asked_before.decode(frame, len(HEAD), version)
        frame[:] = bytes(len(frame))  # the connection's buffer is used again
        assert asked.request == expected
        assert asked.follower == max(expected.replica_id, expected.replica_state.replica_id)
        assert asked.topics == [(topic.topic, topic.topic_id, topic.partitions) for topic in expected.topics]


def test_the_same_bytes_mean_something_else_in_another_version() -> None:
    asked_before = AskedBefore()
    body = encode(a_request(5), 7)
    frame = memoryview(HEAD + body)
    alike = asked_before.decode(frame, len(HEAD), 7)
    assert asked_before.decode(frame, len(HEAD), 7) is alike
    assert asked_before.decode(frame, len(HEAD), 8) is not alike
    with pytest.raises(MalformedMessage):
        asked_before.decode(frame, len(HEAD), 12)


def test_garbage_is_refused_every_time() -> None:
    asked_before = AskedBefore()
    whole = encode(a_request(5), 10)
    for length in range(len(whole)):
        for _ in range(2):
            with pytest.raises(MalformedMessage):
                asked_before.decode(memoryview(whole[:length]), 0, 10)
    assert len(asked_before) == 0


def test_little_is_kept() -> None:
    asked_before = AskedBefore()
    for offset in range(3 * ASKED_MAX):
        asked_before.decode(framed(a_request(offset), 10), len(HEAD), 10)
        assert len(asked_before) <= ASKED_MAX
    kept = len(asked_before)
    asked_before.decode(framed(a_request(1, session_id=7, session_epoch=3), 10), len(HEAD), 10)
    wide = FetchRequest(max_wait_ms=1, min_bytes=1, topics=(FetchTopic(topic="t" * ASKED_BYTES_MAX, partitions=()),))
    asked_before.decode(framed(wide, 12), len(HEAD), 12)
    assert len(asked_before) == kept


@settings(max_examples=60, deadline=None)
@given(
    version=st.integers(4, 18),
    sizes=st.lists(st.sampled_from([0, 1, 100, 1000, IN_MEMORY_MAX, 3 * IN_MEMORY_MAX]), max_size=4),
    ids=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
)
def test_one_answer_for_all_is_the_answer_for_each(
    version: int, sizes: list[int], ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = a_file(tmp_path_factory.getbasetemp() / "segment", 4 * IN_MEMORY_MAX)

    def parts_for(correlation_id: int) -> list[Part]:
        partitions = [
            FetchedPartition(number, 0, 9, 9, 0, records=Slice(file, number, size) if size else None)
            for number, size in enumerate(sizes)
        ]
        topic = FetchedTopic("orders", make(FetchTopic, 13, Dice(1)).topic_id, partitions)
        return encode_fetch_response(version, correlation_id, 0, 0, 0, [topic])

    shared = SharedAnswer(parts_for(77))
    for correlation_id in ids:
        assert sent(shared.to(correlation_id)) == sent(parts_for(correlation_id))
    if sum(sizes) <= IN_MEMORY_MAX // 2:
        assert len(shared.to(1)) == 1
    if sum(sizes) > IN_MEMORY_MAX:
        assert any(isinstance(part, Slice) for part in shared.to(1)), "a client that does not read costs no memory"


def a_file(path: Path, size: int) -> RealFile:
    if not path.exists():
        path.write_bytes(bytes(number % 251 for number in range(size)))
    return RealFile(str(path), os.open(path, os.O_RDONLY))


def sent(parts: list[Part]) -> bytes:
    return b"".join(part if isinstance(part, bytes) else part.file.read(part.position, part.length) for part in parts)
