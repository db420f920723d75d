"""The broker's side of its worker processes: started when first needed, restarted if they die."""

import asyncio
import subprocess
import sys
from asyncio import AbstractEventLoop
from typing import Any

import msgspec

from tidelog.broker.worker import JOBS, Job, PrepareRequest, Result, read_frame, write_frame
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.compaction import CompactionRequest, CompactionResult


class WorkerProcess:
    """One job at a time; whoever comes second waits."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = asyncio.Lock()

    async def call(self, name: str, request: Any) -> Any:
        job = msgspec.msgpack.encode(Job(name, msgspec.Raw(msgspec.msgpack.encode(request))))
        async with self._turn:
            # In a thread: it only waits for pipes, which does not hold the GIL.
            result = await self._loop.run_in_executor(None, self._exchange, job)
        if result.error is not None:
            raise KafkaError(result.error, ErrorCode(result.error_code))
        return msgspec.msgpack.decode(result.value, type=JOBS[name][2])

    def _exchange(self, job: bytes) -> Result:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog.broker.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the broker's to handle; the worker ends with it
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin, job)
            answer = read_frame(self._process.stdout)
        except OSError:
            answer = None
        if answer is None:
            self.stop()
            return Result(error="the worker process died", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return msgspec.msgpack.decode(answer, type=Result)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class DeepWork:
    """Two workers, so that a produce never waits for a compaction."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._for_requests = WorkerProcess(loop)
        self._for_compaction = WorkerProcess(loop)

    async def prepare(self, records: bytes, config: TopicConfig) -> bytes:
        prepared = await self._for_requests.call("prepare", PrepareRequest(records, config))
        assert isinstance(prepared, bytes)
        return prepared

    async def compact(self, request: CompactionRequest) -> CompactionResult:
        result = await self._for_compaction.call("compact", request)
        assert isinstance(result, CompactionResult)
        return result

    def stop(self) -> None:
        self._for_requests.stop()
        self._for_compaction.stop()
