"""Requests, plausible and broken, against a live broker.

Whatever the bytes: the broker answers in the protocol or closes that connection. It never dies, never fails inside
(its log would say so), never keeps a connection waiting, and its memory stays where it was.
"""

import contextlib
import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.fuzz.mutate import mutated
from tests.fuzz.run import loop, main
from tests.scenarios import kit

from tidelog.cli.cluster.ports import HeldPort
from tidelog.client.connection import Connection
from tidelog.errors import MalformedMessage
from tidelog.wire.frames import decode_response_header, encode_request
from tidelog.wire.layout import Field, Message, fields_of
from tidelog.wire.messages import API
from tidelog.wire.messages.admin import ApiVersionsRequest, MetadataRequest
from tidelog.wire.record_batch import build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import UnencodableMessage, decode, encode

PARKED_FOR_LONG = {11, 14}  # JoinGroup and SyncGroup wait for other members, which is no fault
ANSWER_WITHIN_S = 10.0
RSS_MB_MAX = 400.0
FAILED_INSIDE = ("Traceback", "request failed", "background work failed")

TOPICS = ("orders", "table", "packed", "stamped")
TEXTS = (
    *TOPICS,
    *TOPICS,
    "",
    "..",
    "a/b",
    "x" * 249,
    "y" * 300,
    "naïve",
    "__consumer_offsets",
    "retention.ms",
    "1",
    "-1",
)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, 4, 5, 100)
SMALL = {"max_wait_ms": 30, "timeout_ms": 30, "num_partitions": 3, "count": 4, "session_timeout_ms": 10}
"""Fields whose true values would only make the fuzzer wait, or fill the disk."""


class Requests:
    """Makes requests that mean something: topics that exist, offsets in range, batches with valid checksums."""

    def __init__(self, dice: random.Random, topic_ids: list[UUID]) -> None:
        self._dice = dice
        self._topic_ids = topic_ids

    def make(self, message: type[Message], version: int) -> Any:
        return message(
            **{field.name: self._value(field, version) for field in fields_of(message) if field.present(version)}
        )

    def _value(self, field: Field, version: int) -> Any:
        dice = self._dice
        if field.tag is not None and dice.random() < 0.7:
            return field.default
        if field.nullable(version) and dice.random() < 0.2:
            return None
        if field.is_array:
            return tuple(self._element(field, version) for _ in range(dice.choice((0, 1, 1, 1, 2, 3))))
        return self._element(field, version)

    def _element(self, field: Field, version: int) -> Any:
        dice = self._dice
        if field.struct is not None:
            return self.make(field.struct, version)
        if field.is_string:
            return dice.choice(TEXTS)
        if field.is_opaque:
            return self._batch()
        if field.is_uuid:
            return dice.choice(self._topic_ids) if dice.random() < 0.8 else UUID(int=dice.getrandbits(128))
        if field.format == "?":
            return dice.random() < 0.5
        if field.name in SMALL:
            return dice.randint(-1, SMALL[field.name])
        if dice.random() < 0.9:
            return dice.choice(NUMBERS)
        bits = {"b": 8, "h": 16, "i": 32, "q": 64}[field.format or "i"]
        return dice.getrandbits(bits) - (1 << (bits - 1))

    def _batch(self) -> bytes:
        dice = self._dice
        now = time.time_ns() // 1_000_000
        records = [
            Record(i, now, dice.choice((None, b"k", b"key")), dice.choice((None, b"", b"v" * 300)), ())
            for i in range(dice.randint(1, 4))
        ]
        producer = dice.choice(((-1, -1, -1), (-1, -1, -1), (dice.randrange(5), 0, dice.randrange(8))))
        batch = build_batch(
            records,
            codec=dice.randrange(5),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        return mutated(batch, dice, 2) if dice.random() < 0.3 else batch


class Target:
    """`tidelog serve` in a process of its own, its log in a file."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "stderr"
        self._held = HeldPort()
        self.port = self._held.port
        command = [sys.executable, "-m", "tidelog", "serve", "-p", str(self.port), "-d", str(directory / "data")]
        command += ["--set", "log.cleaner.backoff.ms=200", "--set", "log.retention.check.interval.ms=500"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self._read = 0
        deadline = time.monotonic() + 30
        while True:
            try:
                self.connection = Connection("127.0.0.1", self.port, ANSWER_WITHIN_S)
                break
            except OSError:
                assert time.monotonic() < deadline, "the broker did not start"
                time.sleep(0.02)
        served = self.connection.call(ApiVersionsRequest(), 0).api_keys
        self.served = [each for each in served if each.api_key in API and each.api_key not in PARKED_FOR_LONG]
        self.topic_ids: list[UUID] = []
        self.prepare()

    def prepare(self) -> None:
        """Topics to talk about; earlier turns may have deleted them."""
        configs = (
            {},
            {"cleanup_policy": "compact"},
            {"compression_type": "zstd"},
            {"message_timestamp_type": "LogAppendTime"},
        )
        for name, config in zip(TOPICS, configs, strict=True):
            with contextlib.suppress(AssertionError):  # it exists
                kit.create_topic(self.connection, name, 2, segment_bytes=20_000, **config)
        self.topic_ids = [each.topic_id for each in self.connection.call(MetadataRequest(topics=None)).topics]

    def check(self) -> None:
        assert self.process.poll() is None, f"the broker died: {self.log.read_text()[-3000:]}"
        text = self.log.read_bytes()
        news, self._read = text[self._read :].decode(errors="replace"), len(text)
        assert not any(sign in news for sign in FAILED_INSIDE), f"the broker failed inside:\n{news[-3000:]}"
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        rss_mb = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        assert rss_mb < RSS_MB_MAX, f"the broker has grown to {rss_mb:.0f} MB"

    def stop(self) -> None:
        self.connection.close()
        self._held.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(30) == 0, "the broker did not stop cleanly"
        finally:
            self.process.kill()
        text = self.log.read_text(errors="replace")
        assert not any(sign in text for sign in FAILED_INSIDE), f"the broker failed while stopping:\n{text[-3000:]}"


def fuzz(seconds: float, seed: int, most: int | None = None) -> int:
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as directory:
        target = Target(Path(directory))
        count = itertools.count(1)

        def once(dice: random.Random) -> None:
            one_turn(target, dice)
            if next(count) % 50 == 0:
                target.prepare()
                target.check()

        try:
            turns = loop("frames", seconds, seed, once, most)
            target.check()
            target.stop()
        finally:
            target.process.kill()
            target.process.wait()
    return turns


def one_turn(target: Target, dice: random.Random) -> None:
    """A few frames on one connection, some of them broken, then a question that must be answered or hung up on."""
    with Connection("127.0.0.1", target.port, ANSWER_WITHIN_S) as connection:
        intact = True
        sent: dict[int, tuple[int, int]] = {}
        try:
            for number in range(dice.randint(1, 4)):
                api = dice.choice(target.served)
                version = dice.randint(max(api.min_version, API[api.api_key].min), api.max_version)
                frame = make_frame(target, dice, api.api_key, version, number)
                if frame is None:
                    continue
                if dice.random() < 0.4:
                    intact = False
                    frame = broken(frame, dice)
                sent[number] = (api.api_key, version)
                connection.send_raw(frame)
            connection.send_raw(encode_request(18, 0, 999, None, b""))
            if not intact:
                connection._socket.shutdown(socket.SHUT_WR)  # or the broker waits for the rest of a frame, and rightly
            read_answers(connection, sent, intact)
        except TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_WITHIN_S} s to {sent}") from None
        except OSError:
            pass  # hung up: allowed for what is broken, and for an acks=0 that failed


def make_frame(target: Target, dice: random.Random, key: int, version: int, correlation_id: int) -> bytes | None:
    try:
        request = Requests(dice, target.topic_ids).make(API[key].request, version)
        body = encode(request, version)
    except UnencodableMessage:
        return None
    return encode_request(key, version, correlation_id, dice.choice((None, "", "fuzz")), body)


def broken(frame: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.7:  # the length fits, so that what is inside gets looked at
        inside = mutated(frame[4:], dice)
        return struct.pack(">i", len(inside)) + inside
    return mutated(frame, dice)


def read_answers(connection: Connection, sent: dict[int, tuple[int, int]], intact: bool) -> None:
    while True:
        frame = connection.recv_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        if correlation_id == 999:
            return
        if not intact:
            continue
        key, version = sent[correlation_id]
        try:
            _, body = decode_response_header(key, version, frame)
            decode(API[key].response, version, frame, body)
        except MalformedMessage as error:
            raise AssertionError(f"the answer to API {key} version {version} cannot be read: {error}") from error


if __name__ == "__main__":
    main("frames", fuzz)
