"""One small adapter per client: write these records to a partition, read that many back. Nothing is patched."""

import asyncio
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from .records import Headers, Received, Record

DEADLINE_S = 60.0


class Client(Protocol):
    name: str
    sets_timestamps: bool

    def can_send(self, record: Record) -> bool: ...

    def produce(self, bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> None: ...

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> dict[int, list[Received]]:
        """Reads `counts[partition]` records of each partition from the earliest one on."""
        ...


def _headers(pairs: Sequence[tuple[str, bytes | None]] | None) -> Headers:
    return tuple((name, value) for name, value in pairs or ())


class Confluent:
    name = "confluent"
    sets_timestamps = True

    def can_send(self, record: Record) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
        )
        failures: list[object] = []

        def delivered(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        assert producer.flush(DEADLINE_S) == 0
        assert not failures

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> dict[int, list[Received]]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in counts])
        got: dict[int, list[Received]] = {p: [] for p in counts}
        deadline = time.monotonic() + DEADLINE_S
        while _missing(got, counts) and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                got[message.partition() or 0].append(_received_by_confluent(message))
        consumer.close()
        return got


class KafkaPython:
    name = "kafka-python"
    sets_timestamps = True

    def can_send(self, record: Record) -> bool:
        null_header = any(value is None for _, value in record.headers)
        return not null_header and (record.key is not None or record.value is not None)

    def produce(self, bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> None:
        compression = None if codec == "none" else codec
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20)
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(timeout=DEADLINE_S)
        assert all(future.get(timeout=DEADLINE_S).partition == partition for future in futures)
        producer.close()

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> dict[int, list[Received]]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True)
        consumer.assign([kafka.TopicPartition(topic, p) for p in counts])
        got: dict[int, list[Received]] = {p: [] for p in counts}
        deadline = time.monotonic() + DEADLINE_S
        while _missing(got, counts) and time.monotonic() < deadline:
            for partition, messages in consumer.poll(timeout_ms=200).items():
                got[partition.partition] += [_received(message) for message in messages]
        consumer.close()
        return got


class AioKafka:
    name = "aiokafka"
    sets_timestamps = True

    def can_send(self, record: Record) -> bool:
        return record.key is not None or record.value is not None

    def produce(self, bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> None:
        async def run() -> None:
            compression = None if codec == "none" else codec
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20, enable_idempotence=True
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)

        asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {p: [] for p in counts}

        async def run() -> None:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", check_crcs=True
            )
            consumer.assign([aiokafka.TopicPartition(topic, p) for p in counts])
            async with consumer:
                deadline = time.monotonic() + DEADLINE_S
                while _missing(got, counts) and time.monotonic() < deadline:
                    for partition, messages in (await consumer.getmany(timeout_ms=200)).items():
                        got[partition.partition] += [_received(message) for message in messages]

        asyncio.run(run())
        return got


class Kcat:
    """kcat cannot set a timestamp, nor send a NULL and an empty field at once: `-Z` turns every empty one into NULL.

    Headers are per process, so each run of records with equal headers and equal need of `-Z` is one process.
    """

    name = "kcat"
    sets_timestamps = False
    _KEY_END = "<k>"
    _RECORD_END = "<r>"

    def can_send(self, record: Record) -> bool:
        return not (None in (record.key, record.value) and b"" in (record.key, record.value))

    def produce(self, bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> None:
        for headers, nulls, run in _kcat_runs(records):
            command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-z", codec]
            command += ["-X", "enable.idempotence=true", "-K", self._KEY_END, "-D", self._RECORD_END]
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode(errors='surrogateescape')}"]
            if nulls:
                command.append("-Z")
            between = self._KEY_END.encode()
            lines = [(r.key or b"") + between + (r.value or b"") + self._RECORD_END.encode() for r in run]
            subprocess.run(command, input=b"".join(lines), check=True, timeout=DEADLINE_S, capture_output=True)

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {}
        for partition, count in counts.items():
            command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning", "-q"]
            command += ["-X", "check.crcs=true", "-c", str(count), "-f", "%o %T %K %S %h\n%k%s\n"]
            output = subprocess.run(command, check=True, timeout=DEADLINE_S, capture_output=True).stdout
            got[partition] = _parse_kcat(output)
        return got


def _kcat_runs(records: Sequence[Record]) -> list[tuple[Headers, bool, list[Record]]]:
    runs: list[tuple[Headers, bool, list[Record]]] = []
    for record in records:
        nulls = record.key is None or record.value is None
        if not runs or runs[-1][:2] != (record.headers, nulls):
            runs.append((record.headers, nulls, []))
        runs[-1][2].append(record)
    return runs


def _parse_kcat(output: bytes) -> list[Received]:
    records: list[Received] = []
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        offset, timestamp, key_size, value_size, headers = output[position:line_end].split(b" ", 4)
        key, position = _kcat_field(output, line_end + 1, int(key_size))
        value, position = _kcat_field(output, position, int(value_size))
        pairs = [pair.split(b"=", 1) for pair in headers.split(b",")] if headers else []
        records.append(
            Received(
                key=key,
                value=value,
                headers=tuple((name.decode(), None if field == b"NULL" else field) for name, field in pairs),
                timestamp_ms=int(timestamp),
                offset=int(offset),
            )
        )
        position += 1
    return records


def _kcat_field(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    return (None, position) if size < 0 else (output[position : position + size], position + size)


def _received_by_confluent(message: Any) -> Received:
    return Received(
        key=message.key(),
        value=message.value(),
        headers=_headers(message.headers()),
        timestamp_ms=message.timestamp()[1],
        offset=message.offset(),
    )


def _received(message: Any) -> Received:
    """kafka-python and aiokafka share the shape of their consumer records."""
    return Received(
        key=message.key,
        value=message.value,
        headers=_headers(message.headers),
        timestamp_ms=message.timestamp,
        offset=message.offset,
    )


def _missing(got: Mapping[int, list[Received]], counts: Mapping[int, int]) -> bool:
    return any(len(got[partition]) < count for partition, count in counts.items())


CLIENTS: dict[str, Client] = {client.name: client for client in (Confluent(), KafkaPython(), AioKafka(), Kcat())}
