"""A connection over a real socket pair: frames arrive whole whatever pieces they come in, answers leave in order."""

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.buffers import GRANT, SHARED, BufferPool
from tidelog.broker.connection import FRAMES_PER_TURN, SENDFILE_MIN, Answer, Connection
from tidelog.broker.outbox import SENDERS_MAX, Outbox
from tidelog.storage.disk import RealFile
from tidelog.storage.log import Slice

MAX_FRAME = 16 * 1024 * 1024


class Peer:
    """The client's end, and what the broker's end was given."""

    def __init__(
        self, handle: Callable[[Connection, bytes], None], max_in_flight: int = 100, outbox: Outbox | None = None
    ) -> None:
        self.client = socket.create_server(("127.0.0.1", 0))
        listener = self.client
        self.client = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
        listener.close()
        self.client.setblocking(False)
        ours.setblocking(False)
        self.pool = BufferPool()
        self.closed: list[str] = []
        self.frames: list[bytes] = []

        def dispatch(connection: Connection, frame: memoryview) -> None:
            self.frames.append(bytes(frame))
            handle(connection, self.frames[-1])

        self.connection = Connection(
            ours,
            asyncio.get_running_loop(),
            dispatch,
            self.pool,
            outbox or Outbox(asyncio.get_running_loop()),
            max_frame=MAX_FRAME,
            max_in_flight=max_in_flight,
            on_close=lambda connection, reason: self.closed.append(reason),
        )

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.client, data)

    async def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.client, count - len(data)), 60)
            if not piece:
                break
            data += piece
        return data

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)

    def end(self) -> None:
        self.connection.close("the test is over")
        self.client.close()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(connection: Connection, body: bytes) -> None:
    connection.answer([frame(body)])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(
        st.sampled_from([8, 9, 100, 5000, SHARED - 4, SHARED - 3, SHARED, SHARED + 1, 200_000, 3_000_000]), max_size=6
    ),
    seed=st.integers(0, 1000),
)
def test_frames_arrive_whole_whatever_the_pieces(sizes: list[int], seed: int) -> None:
    dice = Random(seed)
    bodies = [dice.randbytes(size) for size in sizes]
    stream = b"".join(map(frame, bodies))
    cuts = sorted({dice.randrange(len(stream) + 1) for _ in range(dice.randrange(12))} | {0, len(stream)})

    async def scenario() -> None:
        peer = Peer(lambda connection, body: None)
        for begin, end in pairwise(cuts):
            await peer.send(stream[begin:end])
            if dice.random() < 0.5:
                await asyncio.sleep(0)
        await peer.until(lambda: len(peer.frames) == len(bodies))
        assert peer.frames == bodies
        assert not peer.closed
        peer.end()

    run(scenario)


def test_a_frame_larger_than_what_is_granted_on_its_word() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        body = Random(1).randbytes(3 * GRANT)
        sending = asyncio.create_task(peer.send(frame(body) + frame(b"and after")))
        assert await peer.receive(len(body) + 4) == frame(body)
        assert await peer.receive(13) == frame(b"and after")
        await sending
        peer.end()

    run(scenario)


def test_answers_leave_in_request_order() -> None:
    async def scenario() -> None:
        promised: dict[bytes, Answer] = {}

        def handle(connection: Connection, body: bytes) -> None:
            if body.startswith(b"later"):
                promised[body] = connection.promise()
            else:
                connection.answer([frame(body)])

        peer = Peer(handle)
        bodies = [b"later--1", b"at once2", b"later--3", b"at once4"]
        await peer.send(b"".join(map(frame, bodies)))
        await peer.until(lambda: len(peer.frames) == 4)
        peer.connection.fulfil(promised[b"later--3"], [frame(b"later--3")])
        peer.connection.fulfil(promised[b"later--1"], [frame(b"later--1")])
        assert await peer.receive(4 * 12) == b"".join(map(frame, bodies))
        peer.end()

    run(scenario)


def test_too_many_in_flight_stops_only_the_reading() -> None:
    async def scenario() -> None:
        promised: list[Answer] = []
        peer = Peer(lambda connection, body: promised.append(connection.promise()), max_in_flight=5)
        await peer.send(frame(b"question") * 2000)
        await peer.until(lambda: len(promised) == 5)
        await asyncio.sleep(0.02)
        assert len(promised) == 5
        for count in range(2000):
            await peer.until(lambda count=count: len(promised) > count)  # type: ignore[misc]
            peer.connection.fulfil(promised[count], [frame(b"answered")])
        assert await peer.receive(2000 * 12) == frame(b"answered") * 2000
        peer.end()

    run(scenario)


def test_an_exclusive_request_holds_back_those_behind_it() -> None:
    async def scenario() -> None:
        def handle(connection: Connection, body: bytes) -> None:
            if body == b"alone---":
                connection.begin_exclusive()
            else:
                connection.answer([frame(body)])

        peer = Peer(handle)
        await peer.send(frame(b"alone---") + frame(b"next----"))
        await peer.until(lambda: len(peer.frames) == 1)
        await asyncio.sleep(0.02)
        assert peer.frames == [b"alone---"]
        peer.connection.answer([frame(b"alone---")])
        peer.connection.end_exclusive()
        assert await peer.receive(24) == frame(b"alone---") + frame(b"next----")
        peer.end()

    run(scenario)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def scenario() -> None:
        big = b"x" * 1_000_000
        peer = Peer(lambda connection, body: connection.answer([frame(big)]))
        await peer.send(frame(b"question") * 100)
        await peer.until(lambda: len(peer.frames) > 0)
        await asyncio.sleep(0.05)
        held_back = len(peer.frames)
        assert held_back < 100
        for _ in range(100):
            assert len(await peer.receive(len(big) + 4)) == len(big) + 4
        assert len(peer.frames) == 100
        peer.end()

    run(scenario)


@pytest.mark.parametrize("size", [-1, 0, 7, MAX_FRAME + 1, 2**31 - 1, -(2**31)])
def test_absurd_lengths_end_the_connection(size: int) -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        await peer.send(struct.pack(">i", size) + b"whatever")
        await peer.until(lambda: bool(peer.closed))
        assert str(size) in peer.closed[0]
        assert await peer.receive(1) == b""
        peer.client.close()

    run(scenario)


def test_an_idle_connection_keeps_no_buffer() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        await peer.send(frame(b"x" * 500_000))
        await peer.receive(500_004)
        await peer.until(lambda: peer.connection._buffer is peer.pool.shared)
        peer.end()

    run(scenario)


class ColdFile(RealFile):
    """As after a reboot: nothing is in the page cache until somebody has waited for the device."""

    warmed_to = 0

    def read(self, position: int, length: int) -> bytes:
        assert threading.current_thread() is not threading.main_thread(), "the event loop waited for the device"
        self.warmed_to = max(self.warmed_to, position + length)
        return super().read(position, length)

    def read_cached(self, position: int, length: int) -> bytes | None:
        return super().read_cached(position, length) if position + length <= self.warmed_to else None


@pytest.mark.parametrize("size", [100, SENDFILE_MIN - 1, SENDFILE_MIN, 5_000_000])
def test_cold_data_is_waited_for_in_a_thread(tmp_path: Path, size: int) -> None:
    content = Random(2).randbytes(size)
    (tmp_path / "segment").write_bytes(content)
    file = ColdFile("segment", os.open(tmp_path / "segment", os.O_RDWR))

    async def scenario() -> None:
        peer = Peer(lambda connection, body: connection.answer([body, Slice(file, 0, size)]))
        await peer.send(frame(b"question") + frame(b"question"))
        expected = b"question" + content
        assert await peer.receive(2 * len(expected)) == 2 * expected
        await peer.until(lambda: not peer.connection.busy)
        peer.end()

    run(scenario)


@pytest.mark.parametrize("length", [1_000, 1_000_000])
@pytest.mark.parametrize("tells_what_is_cached", [True, False])
def test_a_file_that_ends_early_ends_the_connection(
    tmp_path: Path, length: int, tells_what_is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the client would take the next answer for the rest of this one."""
    (tmp_path / "segment").write_bytes(b"short")
    file = RealFile("segment", os.open(tmp_path / "segment", os.O_RDWR))

    def preadv(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "as some file systems say")

    if not tells_what_is_cached:
        monkeypatch.setattr(os, "preadv", preadv)

    async def scenario() -> None:
        peer = Peer(lambda connection, body: connection.answer([Slice(file, 0, length)]))
        await peer.send(frame(b"question"))
        await peer.until(lambda: bool(peer.closed))
        peer.client.close()

    run(scenario)


def test_what_waits_for_a_client_ends_with_it() -> None:
    async def scenario() -> None:
        peer = Peer(lambda connection, body: connection.parked.setdefault(body, lambda: ended.append(body)))
        ended: list[bytes] = []
        await peer.send(frame(b"longpoll"))
        await peer.until(lambda: bool(peer.connection.parked))
        peer.client.close()
        await peer.until(lambda: bool(peer.closed))
        assert ended == [b"longpoll"]

    run(scenario)


def test_a_flood_of_small_requests_leaves_turns_for_others() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        await peer.send(frame(b"question") * (4 * FRAMES_PER_TURN))
        turns = 0
        while len(peer.frames) < 4 * FRAMES_PER_TURN:
            before = len(peer.frames)
            await asyncio.sleep(0)
            assert len(peer.frames) - before <= FRAMES_PER_TURN
            turns += 1
        assert await peer.receive(4 * FRAMES_PER_TURN * 12) == frame(b"question") * (4 * FRAMES_PER_TURN)
        peer.end()

    run(scenario)


def test_clients_that_ask_in_one_turn_are_answered_when_all_were_heard() -> None:
    async def scenario() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        peers: list[Peer] = []
        answered_meanwhile: list[int] = []

        def answer(connection: Connection, body: bytes) -> None:
            answered_meanwhile.append(sum(not _is_silent(peer) for peer in peers))
            echo(connection, body)

        peers += [Peer(answer, outbox=outbox) for _ in range(SENDERS_MAX // 2)]
        for expected in (1, 0):
            # When they come together for the first time, that is not known before the first has its answer.
            answered_meanwhile.clear()
            for peer in peers:
                peer.client.send(frame(b"question"))
            await asyncio.sleep(0.01)  # all are readable before the loop looks
            assert answered_meanwhile == [0, *[expected] * (len(peers) - 1)]
            for peer in peers:
                assert await peer.receive(12) == frame(b"question")
        for peer in peers:
            peer.end()

    run(scenario)


def test_nobody_waits_alone() -> None:
    async def scenario() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        sent: list[int] = []

        async def turn(*numbers: int) -> list[int]:
            """Who was served before the turn ended; in the end all are."""
            sent.clear()
            for number in numbers:
                outbox.add(_Sender(sent, number))
            early = list(sent)
            await asyncio.sleep(0)
            assert sent == list(numbers)
            return early

        assert await turn(1) == [1]
        assert await turn(1, 2, 3) == [1]
        assert await turn(1, 2, 3) == []
        assert await turn(1) == []
        assert await turn(1) == [1]

    run(scenario)


def test_nobody_waits_for_more_than_a_number_of_others() -> None:
    async def scenario() -> None:
        outbox = Outbox(asyncio.get_running_loop())
        sent: list[int] = []
        outbox.add(_Sender(sent, -2))
        outbox.add(_Sender(sent, -1))
        await asyncio.sleep(0)
        sent.clear()
        for number in range(SENDERS_MAX + 1):
            outbox.add(_Sender(sent, number))
        assert sent == list(range(SENDERS_MAX))
        await asyncio.sleep(0)
        assert sent == list(range(SENDERS_MAX + 1))

    run(scenario)


class _Sender:
    def __init__(self, sent: list[int], number: int) -> None:
        self._sent = sent
        self._number = number

    def send_now(self) -> None:
        self._sent.append(self._number)


def _is_silent(peer: Peer) -> bool:
    try:
        peer.client.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False
