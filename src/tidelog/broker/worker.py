"""The worker process: CPU-bound work that would cost every request milliseconds if a broker thread did it.

    python -m tidelog.broker.worker

Reads jobs from stdin and writes results to stdout, each as a length and that many bytes of MessagePack. A thread
watches stdin, so when the broker dies the worker dies at once, also in the middle of a compaction: two writers must
never meet.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable
from struct import Struct
from typing import IO, Any, Final

import msgspec

from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.compaction import CompactionRequest, CompactionResult, compact_partition
from tidelog.storage.validation import prepare_batch

LENGTH: Final = Struct(">I")


class PrepareRequest(msgspec.Struct, frozen=True):
    records: bytes
    config: TopicConfig


def prepare(request: PrepareRequest) -> bytes:
    return prepare_batch(request.records, request.config)


class Job(msgspec.Struct, frozen=True):
    name: str
    request: msgspec.Raw


class Result(msgspec.Struct, frozen=True):
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str | None = None
    error_code: int = 0


JOBS: Final[dict[str, tuple[type, Callable[[Any], Any], type]]] = {
    "prepare": (PrepareRequest, prepare, bytes),
    "compact": (CompactionRequest, compact_partition, CompactionResult),
}

encode: Final = msgspec.msgpack.encode


def run_job(data: bytes) -> bytes:
    job = msgspec.msgpack.decode(data, type=Job)
    request_type, function, _ = JOBS[job.name]
    try:
        value = function(msgspec.msgpack.decode(job.request, type=request_type))
    except KafkaError as error:
        return encode(Result(error=str(error), error_code=error.code))
    except Exception as error:
        return encode(Result(error=f"{type(error).__name__}: {error}", error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    return encode(Result(value=msgspec.Raw(encode(value))))


def read_frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    data = stream.read(size)
    return data if len(data) == size else None


def write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def main() -> None:
    os.nice(10)  # requests first
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while (data := read_frame(sys.stdin.buffer)) is not None:
            jobs.put(data)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        write_frame(sys.stdout.buffer, run_job(jobs.get()))


if __name__ == "__main__":
    main()
