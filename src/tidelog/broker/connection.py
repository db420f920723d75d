"""One client socket: bytes in, whole frames to dispatch, answers out in request order.

Raw non-blocking sockets on the event loop, without asyncio transports: reads go straight into our buffer, answers
leave in the same turn of the loop that made them, together with those to other clients (`outbox`), and file slices
leave by `sendfile`, none of which transports allow.

All connections read into one shared buffer, and most requests are whole when they arrive, so an idle or quick client
costs no buffer at all; only the rest of a half-received frame is kept.

Memory is bounded by design. A frame gets room as its bytes arrive. Answers queue as (file, position, length), not as
bytes. A client that does not read its answers, or has too many requests in flight, is not read from: it stops only
itself.
"""

import os
import socket
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Protocol

from tidelog.broker.buffers import BufferPool
from tidelog.broker.outbox import Outbox
from tidelog.storage.log import Slice

Part = bytes | Slice

SENDFILE_MIN: Final = 64 * 1024
"""Below this, one pread and one send cost less than a sendfile."""
WRITE_TURN: Final = 2 * 1024 * 1024
"""Bytes one connection may send before the others get their turn."""
WARM_BYTES: Final = WRITE_TURN
"""Read ahead in one go for a client whose history is not in the page cache."""
MAX_GATHER: Final = 64
FRAMES_PER_TURN: Final = 64
"""Requests of one connection answered before the others get their turn."""
MAX_CORKED: Final = 32
"""Answers gathered for one send. If the client does not take them, no further request of it is looked at."""

_SIZE: Final = Struct(">i")
_MIN_FRAME: Final = 8  # api key, version, correlation id


class Answer:
    """A place in the response order. Filled at once or later; it leaves when everything before it has left."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Part] | None = None) -> None:
        self.parts = parts


class FrameHandler(Protocol):
    def __call__(self, connection: "Connection", frame: memoryview, /) -> None: ...


class Connection:
    __slots__ = (
        "_answers", "_armed", "_buffer", "_closed", "_corked", "_dispatch", "_end", "_exclusive", "_loop", "_max_frame",
        "_max_in_flight", "_on_close", "_out", "_outbox", "_pool", "_reading", "_sock", "_start", "_view", "_warming",
        "_writing", "fd", "host", "last_active", "number", "parked", "peer", "port",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        loop: AbstractEventLoop,
        dispatch: FrameHandler,
        pool: BufferPool,
        outbox: Outbox,
        *,
        max_frame: int,
        max_in_flight: int,
        on_close: "Callable[[Connection, str], None]",
        number: int = 0,
    ) -> None:
        self._sock = sock
        self.number = number
        """In the order in which they were accepted, from 1."""
        self.fd = sock.fileno()
        self._loop = loop
        self._dispatch = dispatch
        self._pool = pool
        self._outbox = outbox
        self._max_frame = max_frame
        self._max_in_flight = max_in_flight
        self._on_close = on_close
        self._buffer = pool.shared
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._answers: deque[Answer] = deque()
        self._out: deque[Part] = deque()
        self._corked = self._writing = self._closed = self._exclusive = self._armed = self._warming = False
        self._reading = True
        self.parked: dict[object, Callable[[], None]] = {}
        """What waits for this client elsewhere, and how to end it when the client is gone."""
        self.last_active = loop.time()
        local, remote = sock.getsockname(), sock.getpeername()
        # Where the client reached us: what Metadata tells it, unless advertised.listeners says otherwise.
        self.host, self.port = str(local[0]), int(local[1])
        self.peer = f"{remote[0]}:{remote[1]}"
        loop.add_reader(self.fd, self._on_readable)

    # -- in ---------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        end = self._end
        try:
            count = self._sock.recv_into(self._view[end:] if end else self._view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"read failed: {error}")
            return
        if count == 0:
            if end == len(self._view):
                self._process()  # it was our room that ended, not the stream
            else:
                self.close("closed by the client")
            return
        self._end = end + count
        self.last_active = self._loop.time()
        self._process()

    def _may_take(self) -> bool:
        """Whether the client has earned another request: it reads its answers and has not too many in flight."""
        return not (self._exclusive or self._writing or self._closed or len(self._answers) >= self._max_in_flight)

    def _process(self) -> None:
        """Dispatch every whole frame at hand; all their answers are sent in one go."""
        if self._corked or self._closed:
            return
        self._corked = True
        frames = 0
        while self._end - self._start >= 4 and frames < FRAMES_PER_TURN and self._may_take():
            begin = self._start + 4
            size = _SIZE.unpack_from(self._buffer, begin - 4)[0]
            if not _MIN_FRAME <= size <= self._max_frame:
                self.close(f"frame of {size} bytes; {_MIN_FRAME} to {self._max_frame} are allowed")
                return
            if self._end - begin < size:
                break
            frames += 1
            self._start = begin + size
            self._dispatch(self, self._view[begin : self._start])
            if len(self._out) >= MAX_CORKED:
                self._write()
        self._corked = False
        if self._closed:
            return
        quick = self._buffer is self._pool.shared
        if quick and self._start == self._end:
            self._start = self._end = 0
        else:
            self._make_room()
        if self._out and not self._writing:
            if quick:
                self._outbox.add(self)
            else:
                self._write()  # a big request has taken its time
        if frames == FRAMES_PER_TURN and self._start < self._end:
            self._loop.call_soon(self._process)
        self._watch_reading()

    def _make_room(self) -> None:
        """Keep what is left of the buffer where the rest of its frame fits, and let go of the shared one."""
        start, end = self._start, self._end
        left = end - start
        if left == 0:
            self._start = self._end = 0
            if self._buffer is not self._pool.shared:
                self._use(self._pool.shared)
            return
        wanted = _SIZE.unpack_from(self._buffer, start)[0] + 4 if left >= 4 else 4
        wanted = max(wanted, left)  # more than one frame is left when the client is being held back
        own = self._buffer is not self._pool.shared
        if own and end < len(self._view) and start + wanted <= len(self._view):
            return
        if own and start == 0 and end < len(self._view):
            return  # a huge frame, still filling the room it was granted
        if own and start > 0 and wanted <= len(self._buffer):
            # Through bytes: the two ranges may overlap.
            self._buffer[:left] = bytes(self._view[start:end])
            target = self._buffer
        else:
            target = self._pool.take(wanted, received=left)
            target[:left] = self._view[start:end]
        self._start, self._end = 0, left
        # Reading stops at the end of the frame, so that what follows it never has to be moved.
        self._use(target, until=max(wanted, left + 1))

    def _use(self, buffer: bytearray, until: int | None = None) -> None:
        old, self._buffer = self._buffer, buffer
        whole = memoryview(buffer)
        self._view = whole if until is None else whole[:until]
        if old is not buffer:
            self._pool.give_back(old)

    def _watch_reading(self) -> None:
        wanted = self._may_take()
        if wanted != self._reading and not self._closed:
            self._reading = wanted
            if wanted:
                self._loop.add_reader(self.fd, self._on_readable)
                if self._start < self._end:
                    # Later and not now: we may be deep inside another connection's request.
                    self._loop.call_soon(self._process)
            else:
                self._loop.remove_reader(self.fd)

    def begin_exclusive(self) -> None:
        """Take no further request until `end_exclusive`: the one at hand must have its effect first."""
        self._exclusive = True

    def end_exclusive(self) -> None:
        self._exclusive = False
        if not self._corked:
            self._watch_reading()

    # -- out --------------------------------------------------------------------------------------------------------

    def answer(self, parts: Sequence[Part]) -> None:
        """Answer the request at hand, which may overtake nothing before it."""
        if self._answers:
            self._answers.append(Answer(parts))
            return
        self._out.extend(parts)
        if not self._corked and not self._writing:
            self._write()

    def promise(self) -> Answer:
        """Keep a place for an answer that comes later through `fulfil`."""
        answer = Answer()
        self._answers.append(answer)
        return answer

    def fulfil(self, answer: Answer, parts: Sequence[Part]) -> None:
        answer.parts = parts
        answers = self._answers
        while answers and answers[0].parts is not None:
            self._out.extend(answers.popleft().parts or ())
        if self._closed or self._corked:
            return
        if self._out and not self._writing:
            self._write()
        self._watch_reading()

    def send_now(self) -> None:
        if self._out and not self._writing and not self._closed:
            self._write()

    def _write(self) -> None:
        out = self._out
        budget = WRITE_TURN
        try:
            while out and budget > 0:
                head = out[0]
                budget -= self._write_bytes(head) if isinstance(head, bytes) else self._write_slice(head)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"write failed: {error}")
        if self._closed:
            return
        self._writing = bool(out)
        armed = self._writing and not self._warming
        if armed != self._armed:
            self._armed = armed
            if armed:
                self._loop.add_writer(self.fd, self._write)
            else:
                self._loop.remove_writer(self.fd)
        if not self._writing:
            self.last_active = self._loop.time()
        if not self._corked:
            self._watch_reading()

    def _write_bytes(self, head: bytes) -> int:
        """One send for all bytes up to the next slice that is not small."""
        out = self._out
        if len(out) == 1:
            sent = self._sock.send(head)
            if sent == len(head):
                out.clear()
            else:
                out[0] = head[sent:]
            return sent
        gathered = self._gather()
        # More follows at once: let the kernel fill the packet.
        sent = self._sock.sendmsg(gathered, (), socket.MSG_MORE if len(gathered) < len(out) else 0)
        left = sent
        for part in gathered:
            if left < len(part):
                out[0] = part[left:]
                break
            left -= len(part)
            out.popleft()
        return sent

    def _gather(self) -> list[bytes]:
        """What to send at once: bytes, and small slices between them as far as they are in the page cache. No more is
        read than goes by one send, so that it is not read for a client that does not take it."""
        out = self._out
        gathered: list[bytes] = []
        left = SENDFILE_MIN
        for index, part in enumerate(out):
            if not isinstance(part, bytes):
                data = part.file.read_cached(part.position, part.length) if part.length < left else None
                if data is None:
                    break
                out[index] = part = data
            gathered.append(part)
            left -= len(part)
            if len(gathered) == MAX_GATHER:
                break
        return gathered

    def _write_slice(self, piece: Slice) -> int:
        if piece.length < SENDFILE_MIN:
            data = piece.file.read_cached(piece.position, piece.length)
            if data is None:
                self._warm(piece)
                raise BlockingIOError
            self._out[0] = data
            return 0
        if piece.file.read_cached(piece.position, 1) is None:
            self._warm(piece)
            raise BlockingIOError
        sent = os.sendfile(self.fd, piece.file.fileno(), piece.position, min(piece.length, WRITE_TURN))
        if sent == 0:
            raise OSError("a log segment shrank under a reader")
        if sent == piece.length:
            self._out.popleft()
        else:
            self._out[0] = Slice(piece.file, piece.position + sent, piece.length - sent)
        return sent

    def _warm(self, piece: Slice) -> None:
        """The page cache does not hold this: a thread waits for the device, and only this client waits for the
        thread.
        """
        self._warming = True
        length = min(piece.length, WARM_BYTES)

        def warmed(reading: Future[bytes]) -> None:
            self._warming = False
            if self._closed:
                return
            if reading.exception() is not None or len(reading.result()) < length:
                self.close("a log segment cannot be read")
            else:
                self._write()

        self._loop.run_in_executor(None, piece.file.read, piece.position, length).add_done_callback(warmed)

    # -- end --------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def sends_much(self) -> bool:
        """Whether record sets are queued, or several answers."""
        return len(self._out) > 1

    @property
    def busy(self) -> bool:
        return bool(self._answers or self._out or self._exclusive)

    def close_after_sending(self) -> None:
        """End the conversation with whatever is queued, as far as the socket takes it at once."""
        if self._out and not self._writing:
            self._write()
        self.close("refused")

    def close(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if self._reading:
            self._loop.remove_reader(self.fd)
        if self._armed:
            self._loop.remove_writer(self.fd)
        self._sock.close()
        self._answers.clear()
        self._out.clear()
        for end in list(self.parked.values()):
            end()
        if self._buffer is not self._pool.shared:
            self._use(self._pool.shared)
        self._on_close(self, reason)
