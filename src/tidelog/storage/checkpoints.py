"""The small text files of a data directory, in Kafka's formats. A damaged one reads as absent: the logs know better."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tidelog.ids import TopicId, TopicPartition
from tidelog.storage.disk import Disk

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = "".join(f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items()))
    return f"0\n{len(offsets)}\n{lines}".encode("ascii")


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if not data.endswith(b"\n") or int(version) != 0 or int(count) != len(lines):
            return {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
    except ValueError:  # undecodable bytes raise a kind of it too
        return {}
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    try:
        return decode_offsets(disk.read_all(path))
    except FileNotFoundError:
        return {}


def encode_uuid(value: UUID) -> str:
    """Kafka's text form of an id: base64url without padding."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def decode_uuid(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "#\n".encode("ascii") + "".join(f"{key}={value}\n" for key, value in properties.items()).encode("utf-8")


def decode_properties(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in data.decode("utf-8", errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode("ascii")


def decode_partition_metadata(data: bytes) -> TopicId | None:
    """None if the file is not one, as a power loss right after its creation may leave it."""
    fields = dict(line.split(": ", 1) for line in data.decode("ascii", errors="replace").splitlines() if ": " in line)
    try:
        return TopicId(decode_uuid(fields["topic_id"])) if fields["version"] == "0" else None
    except (KeyError, ValueError):
        return None
