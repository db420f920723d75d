"""Batches and logs for storage tests: small enough to read in a failure, made by the code that real clients check."""

from tidelog.config import TopicConfig
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk
from tidelog.storage.log import Log
from tidelog.storage.timestamps import Search, TimestampOffset
from tidelog.wire.record_batch import BatchHeader, build_batch, iter_batches, iter_records
from tidelog.wire.records import Record

PARTITION = TopicPartition("orders", 0)
NOW = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamps: list[int] | None = None,
    producer: tuple[int, int, int] | None = None,
    codec: int = 0,
    attributes: int = 0,
) -> bytearray:
    """A client's batch; `producer` is (id, epoch, first sequence)."""
    times = timestamps or [NOW] * len(values)
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [Record(i, times[i], b"k%d" % i, value, ()) for i, value in enumerate(values)]
    return bytearray(
        build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
        )
    )


def open_log(disk: Disk, directory: str, config: TopicConfig | None = None, **options: object) -> Log:
    return Log.open(disk, directory, PARTITION, config or TopicConfig(), now_ms=NOW, **options)  # type: ignore[arg-type]


def create_log(disk: Disk, directory: str, config: TopicConfig | None = None, **options: object) -> Log:
    return Log.create(disk, directory, PARTITION, config or TopicConfig(), now_ms=NOW, **options)  # type: ignore[arg-type]


def append(log: Log, *values: bytes, epoch: int = 0, **options: object) -> int:
    """Returns the base offset."""
    return log.append(batch(*values, **options), leader_epoch=epoch, now_ms=NOW).base_offset  # type: ignore[arg-type]


def read_batches(log: Log, offset: int | None = None, upper: int | None = None) -> list[tuple[BatchHeader, memoryview]]:
    """Everything from `offset` to `upper`, as a client would get it: fetch after fetch."""
    at = log.start_offset if offset is None else offset
    end = log.end_offset if upper is None else upper
    found: list[tuple[BatchHeader, memoryview]] = []
    while at < end:
        piece = log.read(at, 1 << 16, upper=end)
        if piece.length == 0:
            break
        for header, view in iter_batches(piece.file.read(piece.position, piece.length)):
            found.append((header, view))
            at = header.last_offset + 1
    return found


def read_values(log: Log, offset: int | None = None, upper: int | None = None) -> list[tuple[int, bytes]]:
    start = log.start_offset if offset is None else offset
    return [
        (record.offset, bytes(record.value or b""))
        for _, view in read_batches(log, offset, upper)
        for record in iter_records(view)
        if record.offset >= start
    ]


def found(search: Search) -> TimestampOffset | None:
    """A search without pauses."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            answer: TimestampOffset | None = end.value
            return answer
