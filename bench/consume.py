"""Reading history: librdkafka from C, and a raw reader that discards, against the machine's own sendfile."""

import socket
import struct
import time

from bench import native, requests
from bench.limits import sendfile_mb_s
from bench.produce import check_end
from bench.results import Limits, Result
from bench.target import Target

_BATCH_HEADER = struct.Struct(">qiibIhi")  # up to last_offset_delta
_PIECE = 1 << 20
# Of a Fetch answer with one partition: length, correlation, throttle, error, session, topic count, name length,
# partition count, index, error, three offsets, aborted count, records length; the topic's name comes on top.
_ANSWER_HEAD = 4 + 4 + 4 + 2 + 4 + 4 + 2 + 4 + 4 + 2 + 24 + 4 + 4


def measure(target: Target, limits: Limits) -> list[Result]:
    topic = target.make_topic("history")
    assert topic is not None
    batches, per_batch, record_bytes = target.scaled(1000), 9000, 100
    request = target.work_dir / "request"
    request.write_bytes(requests.produce(topic, requests.batch(per_batch, record_bytes), acks=1))
    native.run("blast", "send", target.host, target.port, request, batches, 4)
    count = batches * per_batch
    check_end(target, topic, count)

    runs = [_read_raw(target, topic, count) for _ in range(3)]
    raw_mb_s = max(rate for rate, _ in runs)
    raw_cpu = min(cpu for _, cpu in runs)
    # Measured again next to the figure: on a shared machine a limit from a minute ago is another machine's limit.
    limit = max(limits.sendfile_mb_s, sendfile_mb_s(target.work_dir, target.scaled(1000)))
    cpu = target.cpu_s()
    took = native.rdload("consume", target.bootstrap, topic, 1, count, fetch_max_bytes=67108864, check_crcs="false")
    cpu = target.cpu_s() - cpu
    target.delete_topic(topic)
    return [
        Result(
            name="read history, raw fetches",
            value=raw_mb_s,
            unit="MB/s",
            ratio=raw_mb_s / limit,
            limit="sendfile",
            target="ratio ≥ 0.7",
            ok=raw_mb_s >= 0.7 * limit,
            detail={"broker_cpu_s": raw_cpu},
        ),
        Result(
            name="read history, librdkafka, 100 B",
            value=count / took["seconds"] / 1e6,
            unit="M rec/s",
            detail={"broker_cpu_s": cpu},
        ),
    ]


def _read_raw(target: Target, topic: str, end: int) -> tuple[float, float]:
    """MB/s and broker CPU seconds of reading everything, one request after the other."""
    buffer = bytearray(80 << 20)
    with socket.create_connection((target.host, target.port)) as connection:
        offset, received = 0, 0
        cpu, began = target.cpu_s(), time.perf_counter()
        while offset < end:
            connection.sendall(requests.fetch(topic, [(0, offset)]))
            _receive(connection, memoryview(buffer)[:4])
            size = int.from_bytes(buffer[:4], "big")
            _receive(connection, memoryview(buffer)[4 : 4 + size])
            received += size
            offset = _next_offset(memoryview(buffer)[_ANSWER_HEAD + len(topic) : 4 + size], offset)
        took = time.perf_counter() - began
    return received / 1e6 / took, target.cpu_s() - cpu


def _receive(connection: socket.socket, into: memoryview) -> None:
    position = 0
    while position < len(into):
        count = connection.recv_into(into[position : position + _PIECE])
        if not count:
            raise ConnectionError("the broker closed the connection")
        position += count


def _next_offset(records: memoryview, asked: int) -> int:
    """Walks the batch headers; a last batch that was cut by max_bytes is asked for again."""
    offset, position = asked, 0
    while position + 61 <= len(records):
        base, length, _, _, _, _, last_delta = _BATCH_HEADER.unpack_from(records, position)
        position += 12 + length
        if position <= len(records):
            offset = base + last_delta + 1
    if offset == asked:
        raise RuntimeError("a fetch of history returned nothing")
    return offset
