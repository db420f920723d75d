"""The machine's own limits: what a program that does nothing else gets from its sockets and its disk."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

from bench import native
from bench.results import Limits, quantile

_CHUNK = 1 << 20


def measure(work_dir: Path, quick: bool) -> Limits:
    megabytes = 256 if quick else 1024
    write_mb_s = _write(work_dir / "limit", megabytes)  # once: a second run reuses pages and shows memory's speed
    (work_dir / "limit").unlink()
    return Limits(
        loopback_mb_s=max(_transfer(_send_memory, work_dir, megabytes) for _ in range(3)),
        sendfile_mb_s=sendfile_mb_s(work_dir, megabytes),
        write_mb_s=write_mb_s,
        fdatasync_us=_fdatasync(work_dir / "sync", 50 if quick else 200),
        echo_us=echo_us(request_bytes=200, response_bytes=60, count=5000 if quick else 30_000, work_dir=work_dir),
    )


def _write(path: Path, megabytes: int) -> float:
    block = os.urandom(_CHUNK)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began = time.perf_counter()
    for _ in range(megabytes):
        os.write(fd, block)
    took = time.perf_counter() - began
    os.close(fd)
    return megabytes * _CHUNK / 1e6 / took


def write_cpu_s(work_dir: Path, megabytes: float) -> float:
    """CPU seconds that the kernel takes for writing this much to a growing file: nobody can store it for less."""
    before = os.times()
    _write(work_dir / "limit", max(1, round(megabytes * 1e6 / _CHUNK)))
    after = os.times()
    (work_dir / "limit").unlink()
    return after.user + after.system - before.user - before.system


def sendfile_mb_s(work_dir: Path, megabytes: int) -> float:
    path = work_dir / "limit"
    _write(path, megabytes)
    best = max(_transfer(_send_file, path, megabytes) for _ in range(3))
    path.unlink()
    return best


def _fdatasync(path: Path, count: int) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    took = []
    for _ in range(count):
        os.write(fd, b"x" * 200)
        began = time.perf_counter()
        os.fdatasync(fd)
        took.append((time.perf_counter() - began) * 1e6)
    os.close(fd)
    path.unlink()
    return quantile(took, 0.5)


def _send_memory(port: int, _path: Path, megabytes: int) -> None:
    block = bytes(_CHUNK)
    with socket.create_connection(("127.0.0.1", port)) as sender:
        for _ in range(megabytes):
            sender.sendall(block)


def _send_file(port: int, path: Path, megabytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sender, path.open("rb") as file:
        position, size = 0, megabytes * _CHUNK
        while position < size:
            position += os.sendfile(sender.fileno(), file.fileno(), position, size - position)


def _transfer(send: Callable[[int, Path, int], None], path: Path, megabytes: int) -> float:
    """Receives from a second process, into one reused buffer, as `bench.consume` does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = get_context("fork").Process(target=send, args=(listener.getsockname()[1], path, megabytes))
        sender.start()
        connection, _ = listener.accept()
        buffer, got = bytearray(_CHUNK), 0
        began = time.perf_counter()
        while count := connection.recv_into(buffer):
            got += count
        took = time.perf_counter() - began
        connection.close()
        sender.join()
    return got / 1e6 / took


def echo_us(*, request_bytes: int, response_bytes: int, count: int, work_dir: Path) -> float:
    """Median round trip of a request to a C program that only reads it and answers: the floor for any broker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    request = work_dir / "echo-request"
    request.write_bytes(request_bytes.to_bytes(4, "big") + bytes(request_bytes))
    command = [str(native.program("blast")), "echo", str(port), str(response_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            answer = native.run("blast", "send", "127.0.0.1", port, request, count, 1)
        finally:
            server.kill()
    return float(answer["p50_us"])
