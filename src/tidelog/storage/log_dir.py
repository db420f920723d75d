"""One data directory: its lock, its identity, its checkpoints and the logs in it.

A failing disk is not the trouble of one log: after `fail` no log of the directory acknowledges anything any more.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageOffline
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOCK,
    META_PROPERTIES,
    RECOVERY_POINTS,
    START_OFFSETS,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_uuid,
    read_offsets,
)
from tidelog.storage.disk import Disk, Lock
from tidelog.storage.flush import RestartPoint
from tidelog.storage.log import Log
from tidelog.storage.naming import PARTITION_METADATA
from tidelog.storage.open_segments import OpenSegments

_NAME_MAX: Final = 255
_DELETE_SUFFIX: Final = "-delete"
_STRAY_SUFFIX: Final = "-stray"


class WrongDirectory(Exception):
    """The directory belongs to another cluster or node. Starting on it would mix two histories."""


class LogDir:
    def __init__(self, disk: Disk, path: str, lock: Lock, properties: dict[str, str], *, clean: bool) -> None:
        self.disk = disk
        self.path = path
        self.cluster_id = properties["cluster.id"]
        self.node_id = int(properties["node.id"])
        self.directory_id = properties["directory.id"]
        self.clean = clean
        self.failure: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = read_offsets(disk, f"{path}/{HIGH_WATERMARKS}")
        self._recovery_points = read_offsets(disk, f"{path}/{RECOVERY_POINTS}")
        self._start_offsets = read_offsets(disk, f"{path}/{START_OFFSETS}")
        self._start_offsets_written = encode_offsets(self._start_offsets)
        self._lock = lock
        self._open_segments = OpenSegments()
        self._restart_points: list[tuple[Log, RestartPoint]] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        cluster_id: str | None,
        node_id: int,
        new_id: Callable[[], UUID],
        new_cluster_id: str | None = None,
    ) -> "LogDir":
        """Raises DiskLocked if another broker is using it, WrongDirectory if it is not this node's. `new_cluster_id`:
        what to call the cluster of a new directory if nobody says."""
        path = path.rstrip("/") or "/"
        disk.make_dir(path)
        lock = disk.lock(f"{path}/{LOCK}")
        try:
            properties = _identify(disk, path, cluster_id, node_id, new_id, new_cluster_id)
            marker = f"{path}/{CLEAN_SHUTDOWN}"
            clean = disk.exists(marker)
            if clean:
                # Gone before anything is written: only the next clean stop may bring it back.
                disk.remove(marker)
                disk.sync_dir(path)
            for name in disk.listdir(path):
                if name.endswith(_DELETE_SUFFIX):
                    disk.remove_tree(f"{path}/{name}")
            return cls(disk, path, lock, properties, clean=clean)
        except BaseException:
            lock.release()
            raise

    def _directory_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    @property
    def failed(self) -> bool:
        return self.failure is not None

    def _check_online(self) -> None:
        if self.failure is not None:
            raise StorageOffline(f"{self.path} is offline: {self.failure}")

    # -- logs ------------------------------------------------------------------------------------------------------

    def has_log(self, partition: TopicPartition) -> bool:
        return partition in self.logs or self.disk.exists(self._directory_of(partition))

    def create_log(self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig, *, now_ms: int) -> Log:
        """Durable with its first flush: until then nobody was told that anything is in it."""
        self._check_online()
        directory = self._directory_of(partition)
        log = Log.create(self.disk, directory, partition, config, now_ms=now_ms, open_segments=self._open_segments)
        if topic_id != NO_TOPIC_ID:
            log.write_beside(PARTITION_METADATA, encode_partition_metadata(topic_id))
        self.logs[partition] = log
        return log

    def open_log(self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig, *, now_ms: int) -> Log:
        self._check_online()
        directory = self._directory_of(partition)
        self._check_topic_id(directory, partition, topic_id)
        if partition not in self._recovery_points:
            # There was no checkpoint since it was created, and perhaps no flush: then its name is not durable yet.
            self.disk.sync_dir(self.path)
        log = Log.open(
            self.disk,
            directory,
            partition,
            config,
            now_ms=now_ms,
            recovery_point=self._recovery_points.get(partition, 0),
            clean=self.clean,
            start_offset=self._start_offsets.get(partition, 0),
            open_segments=self._open_segments,
        )
        self.logs[partition] = log
        if log.end_offset < self._recovery_points.get(partition, 0):
            # Else a recovery would believe what is written up to there from now on, synced or not.
            self._recovery_points[partition] = log.end_offset
            self.disk.write_atomic(f"{self.path}/{RECOVERY_POINTS}", encode_offsets(self._recovery_points))
        return log

    def delete_log(self, partition: TopicPartition) -> Callable[[], None]:
        """The log is gone at once; call what is returned in a thread to free its space. Write a checkpoint before a log
        of that name is created again.
        """
        target = self._take_out(partition, _DELETE_SUFFIX)
        return lambda: self.disk.remove_tree(target)

    def set_aside(self, partition: TopicPartition) -> str:
        """As `delete_log`, but what was in it is kept, under the name that is returned."""
        return self._take_out(partition, _STRAY_SUFFIX)

    def _take_out(self, partition: TopicPartition, kind: str) -> str:
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon("deleted")
        for offsets in (self._recovery_points, self._start_offsets, self.high_watermarks):
            offsets.pop(partition, None)
        suffix = f"-{partition.partition}.{(self.topic_id_of(partition) or NO_TOPIC_ID).hex}{kind}"
        target = f"{self.path}/{partition.topic[: _NAME_MAX - len(suffix)]}{suffix}"
        with suppress(FileNotFoundError):
            self.disk.rename(self._directory_of(partition), target)
        return target

    def topic_id_of(self, partition: TopicPartition) -> TopicId | None:
        """Of the topic that the directory of this name is of, as far as it says."""
        return self._read_topic_id(self._directory_of(partition))

    def delete_leftovers(self, topic: str, topic_id: UUID) -> None:
        """Directories of a deleted topic that a crash left behind; those of a new topic of that name stay."""
        for name in self.disk.listdir(self.path):
            stem, _, number = name.rpartition("-")
            if stem == topic and number.isdigit() and self._read_topic_id(f"{self.path}/{name}") == topic_id:
                self.delete_log(TopicPartition(topic, int(number)))()

    def _read_topic_id(self, directory: str) -> TopicId | None:
        try:
            return decode_partition_metadata(self.disk.read_all(f"{directory}/{PARTITION_METADATA}"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _check_topic_id(self, directory: str, partition: TopicPartition, topic_id: TopicId) -> None:
        if topic_id == NO_TOPIC_ID:
            return
        found = self._read_topic_id(directory)
        if found is None:
            self.disk.write_atomic(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
        elif found != topic_id:
            raise KafkaError(
                f"{directory} holds topic id {encode_uuid(found)}, but {partition} has {encode_uuid(topic_id)}",
                ErrorCode.INCONSISTENT_TOPIC_ID,
            )

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def prepare_checkpoint(self) -> Callable[[], None]:
        """Gathers what to write; call what is returned in a thread."""
        self._check_online()
        for log, point in self._restart_points:
            if not log.closed:
                log.complete_restart_point(point)
        started = [(log, log.begin_restart_point()) for log in self.logs.values()]
        self._restart_points = [(log, point) for log, point in started if point is not None]
        points = [point for _, point in self._restart_points]
        for partition, log in self.logs.items():
            self._recovery_points[partition] = log.flushed_offset
        files = {
            RECOVERY_POINTS: encode_offsets(self._recovery_points),
            HIGH_WATERMARKS: encode_offsets(self.high_watermarks),
            START_OFFSETS: self._gather_start_offsets(),
        }

        def write() -> None:
            for point in points:
                point.run()
            for name, data in files.items():
                self.disk.write_atomic(f"{self.path}/{name}", data)
            self._start_offsets_written = files[START_OFFSETS]

        return write

    def checkpoint(self) -> None:
        """Both steps at once, for a caller that may block."""
        self.prepare_checkpoint()()

    def forget_absent(self) -> None:
        """With every log open: drop what checkpoints say of partitions that are gone. A crash right after their removal
        left it there, and a new topic of that name must not begin with it.
        """
        checkpoints = (self._recovery_points, self._start_offsets, self.high_watermarks)
        absent = set().union(*checkpoints) - self.logs.keys()
        for offsets in checkpoints:
            for partition in absent:
                offsets.pop(partition, None)
        if absent:
            self.checkpoint()

    def prepare_start_offsets(self) -> Callable[[], None] | None:
        """After DeleteRecords or retention; call what is returned in a thread. None if the disk says it already."""
        self._check_online()
        data = self._gather_start_offsets()

        def write() -> None:
            self.disk.write_atomic(f"{self.path}/{START_OFFSETS}", data)
            self._start_offsets_written = data  # not before: whoever tries again after an error must not be told yes

        return None if data == self._start_offsets_written else write

    def checkpoint_start_offsets(self) -> None:
        """Both steps at once, for a caller that may block."""
        write = self.prepare_start_offsets()
        if write is not None:
            write()

    def _gather_start_offsets(self) -> bytes:
        for partition, log in self.logs.items():
            if log.start_offset > log.segments[0].base_offset:
                self._start_offsets[partition] = log.start_offset
            else:
                self._start_offsets.pop(partition, None)
        return encode_offsets(self._start_offsets)

    # -- the end ---------------------------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """The whole directory, for good: the logs in it share a disk."""
        if self.failure is None:
            self.failure = reason
        for log in self.logs.values():
            log.fail(reason)

    def close(self, *, clean: bool) -> None:
        """Clean: everything is durable and the next start scans nothing."""
        try:
            if clean and self.failure is None and not any(log.failed for log in self.logs.values()):
                flushed: dict[TopicPartition, int] = {}
                for partition, log in self.logs.items():
                    log.close()
                    flushed[partition] = log.flushed_offset
                self._recovery_points.update(flushed)
                files = {
                    RECOVERY_POINTS: encode_offsets(self._recovery_points),
                    HIGH_WATERMARKS: encode_offsets(self.high_watermarks),
                    START_OFFSETS: self._gather_start_offsets(),
                    CLEAN_SHUTDOWN: b'{"version":0,"brokerEpoch":-1}',  # last: it vouches for all before it
                }
                for name, data in files.items():
                    self.disk.write_atomic(f"{self.path}/{name}", data)
        finally:
            for log in self.logs.values():
                log.abandon("closed")
            self._lock.release()


def _identify(
    disk: Disk,
    path: str,
    cluster_id: str | None,
    node_id: int,
    new_id: Callable[[], UUID],
    new_cluster_id: str | None,
) -> dict[str, str]:
    file = f"{path}/{META_PROPERTIES}"
    properties: dict[str, str] = {}
    if disk.exists(file):
        properties = decode_properties(disk.read_all(file))
    for key, wanted in (("cluster.id", cluster_id or None), ("node.id", str(node_id))):
        found = properties.get(key)
        if found is not None and wanted is not None and found != wanted:
            raise WrongDirectory(f"{path} belongs to {key}={found}, this broker has {key}={wanted}")
    complete = {
        "version": "1",
        "cluster.id": properties.get("cluster.id") or cluster_id or new_cluster_id or encode_uuid(new_id()),
        "node.id": str(node_id),
        "directory.id": properties.get("directory.id") or encode_uuid(new_id()),
    }
    if any(properties.get(key) != value for key, value in complete.items()):
        disk.write_atomic(file, encode_properties(complete))
    return complete
