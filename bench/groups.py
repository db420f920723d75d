"""Groups: what a thousand of them cost, and how long a commit takes beside a produce."""

import select
import socket
import time
from statistics import median

from bench import requests
from bench.results import Limits, Result
from bench.target import Target
from tidelog.client.connection import Connection
from tidelog.wire.frames import encode_request
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.schema import encode

GROUPS, PARTITIONS, SLICES, ROUNDS = 1000, 12, 50, 3
COMMIT_KEY, COMMIT_VERSION = 8, 7


def measure(target: Target, _limits: Limits) -> list[Result]:
    topic = target.make_topic("groups", partitions=PARTITIONS)
    assert topic is not None
    with Connection(target.host, target.port, timeout=30) as connection:
        _wait_for_coordinator(connection)
    results = [_commit_latency(target, topic)]
    if target.pid:
        results.append(_crowd(target, topic))
    target.delete_topic(topic)
    return results


def _wait_for_coordinator(connection: Connection) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = connection.call(FindCoordinatorRequest(key="bench"), version=2)
        if answer.error_code == 0:
            return
        time.sleep(0.05)
    raise RuntimeError("no group coordinator within 60 s")


def _commit(group: str, topic: str, offset: int) -> bytes:
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
        for each in range(PARTITIONS)
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,  # a consumer that assigns its own partitions, as any commit costs the same
        member_id="",
        topics=(OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )
    return encode_request(COMMIT_KEY, COMMIT_VERSION, 7, "bench", encode(request, COMMIT_VERSION))


def _round_trips(sock: socket.socket, frame: bytes, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        sock.sendall(frame)
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
        sock.recv(size, socket.MSG_WAITALL)
        times.append((time.perf_counter() - began) * 1e6)
    return times


def _commit_latency(target: Target, topic: str) -> Result:
    """In turns with the produces it is compared to: the machine changes its mind from second to second."""
    produce = requests.produce(topic, requests.batch(1, 100), acks=-1)
    commits: list[float] = []
    produces: list[float] = []
    with socket.create_connection((target.host, target.port), timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(10):
            produces += _round_trips(sock, produce, target.scaled(100))
            commits += _round_trips(sock, _commit("bench-latency", topic, turn), target.scaled(100))
    ratio = median(commits) / median(produces)
    return Result(
        name="commit of 12 partitions",
        value=median(commits),
        unit="µs p50",
        ratio=ratio,
        limit="produce, acks=all",
        target="ratio ≤ 3",
        ok=ratio <= 3,
        detail={"produce_us": median(produces)},
    )


def _crowd(target: Target, topic: str) -> Result:
    """A thousand groups, each committing once a second, spread over the second and over ten connections. In rounds: on
    a shared machine the same work costs more CPU while a neighbour empties the caches."""
    frames = [_commit(f"bench-{number}", topic, 1) for number in range(GROUPS)]
    socks = [socket.create_connection((target.host, target.port), timeout=30) for _ in range(10)]
    try:
        socks[0].sendall(frames[0])
        answer_bytes = 4 + int.from_bytes(socks[0].recv(4, socket.MSG_WAITALL), "big")  # all are alike
        socks[0].recv(answer_bytes - 4, socket.MSG_WAITALL)
        _commits(target, socks, frames, answer_bytes, 1)  # every group known, every log open
        seconds = 2 if target.quick else 5
        rounds = sorted(_commits(target, socks, frames, answer_bytes, seconds) for _ in range(ROUNDS))
    finally:
        for sock in socks:
            sock.close()
    cores = median(rounds)
    return Result(
        name="1,000 groups committing 12 partitions once a second",
        value=cores,
        unit="cores",
        target="< 0.5",
        ok=cores < 0.5,
        detail={"least": rounds[0], "most": rounds[-1]},
    )


def _commits(target: Target, socks: list[socket.socket], frames: list[bytes], answer_bytes: int, seconds: int) -> float:
    """The cores that the broker used until every commit was answered."""
    poller = select.poll()
    by_fd = {sock.fileno(): sock for sock in socks}
    for sock in socks:
        poller.register(sock, select.POLLIN)
    received = 0
    began, cpu = time.monotonic(), target.cpu_s()
    for turn in range(seconds * SLICES):
        for position, frame in enumerate(frames[turn % SLICES :: SLICES]):
            socks[position % len(socks)].sendall(frame)
        due = began + (turn + 1) / SLICES
        while (left := due - time.monotonic()) > 0:
            received += _receive(poller, by_fd, left)
    took = time.monotonic() - began
    if took > seconds * 1.1:
        raise RuntimeError(f"{seconds} s of commits took {took:.1f} s: the broker could not keep up")
    while received < (all_of_it := seconds * len(frames) * answer_bytes):
        if time.monotonic() - began > seconds + 10:
            raise RuntimeError(f"only {received / all_of_it:.0%} of the commits were answered")
        received += _receive(poller, by_fd, 1)
    return (target.cpu_s() - cpu) / took


def _receive(poller: select.poll, by_fd: dict[int, socket.socket], seconds: float) -> int:
    return sum(len(by_fd[fd].recv(65536)) for fd, _ in poller.poll(seconds * 1000))
