"""`tidelog log …`: read log files on disk, without a broker. Nothing is ever written."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.options import Output, OutputOption
from tidelog.cli.output import count, print_json, size
from tidelog.cli.problems import Problem
from tidelog.cli.render import json_bytes, printable, when
from tidelog.storage.naming import parse_offset_name

if TYPE_CHECKING:
    from tidelog.storage.verify import VerifyReport
    from tidelog.wire.record_batch import BatchHeader
    from tidelog.wire.records import Record

app = typer.Typer(help="Read and check log files on disk, without a broker.", no_args_is_help=True)

WhereArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A data directory, a partition's directory, or one .log file.")
]


@app.command()
def dump(
    where: WhereArgument,
    records: Annotated[bool, typer.Option("--records", "-r", help="Also every record of every batch.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the batches of log files, and with --records the records in them. json is one object a line."""
    damaged = 0
    for path in log_files(where):
        if output is Output.TEXT:
            print(path)
        for position, header, batch in batches(path):
            if isinstance(header, str):
                damaged += 1
                _print_damage(path, position, header, output)
                break
            if output is Output.JSON:
                print_json({"file": str(path), "position": position, **_batch_json(header, batch, records)})
            else:
                _print_batch(position, header, batch, records)
    if damaged:
        directory = where.parent if where.is_file() else where
        raise Problem(
            f"{count(damaged, 'file')} could not be read to the end",
            f"`tidelog log verify {directory}` says what is wrong",
        )


@app.command()
def verify(
    where: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory or a partition's directory.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Check every batch, offset and index entry. Exits with 1 if anything is damaged."""
    from tidelog.storage.disk import RealDisk
    from tidelog.storage.verify import verify as check

    if not where.is_dir():
        raise Problem(f"{where} is not a directory", "give a data directory, or a partition's directory")
    directories = partition_directories(where)
    if not directories:
        raise Problem(
            f"no partitions in {where}", "a partition's directory is called TOPIC-PARTITION, such as orders-0"
        )
    reports = [check(RealDisk(), str(directory)) for directory in directories]
    if output is Output.JSON:
        print_json([_report_json(report) for report in reports])
    else:
        for report in reports:
            _print_report(report)
    damaged = sum(not report.sound for report in reports)
    if damaged:
        raise Problem(
            f"{count(damaged, 'partition')} of {len(reports)} damaged",
            "stop the broker and keep a copy before anything else; a torn end is cut when the broker next starts",
        )


def _print_report(report: "VerifyReport") -> None:
    verdict = "sound" if report.sound else count(len(report.problems), "problem")
    print(
        f"{report.directory}: {verdict}, offsets {report.start_offset}..{report.end_offset}, "
        f"{count(report.records, 'record')}, {size(report.bytes)}"
    )
    for problem in report.problems:
        print(f"  {problem}")
    for name in report.quarantined:
        print(f"  {name}: kept aside by an earlier recovery")


def _report_json(report: "VerifyReport") -> dict[str, object]:
    return {
        "directory": report.directory,
        "sound": report.sound,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "size_bytes": report.bytes,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "problems": [{"file": each.file, "position": each.position, "reason": each.reason} for each in report.problems],
        "quarantined": report.quarantined,
    }


def log_files(where: Path) -> list[Path]:
    """The segments meant by a path, partition by partition and in offset order."""
    if not where.exists():
        raise Problem(f"{where} does not exist", "give a data directory, a partition's directory, or a .log file")
    if where.is_file():
        if ".log" not in where.suffixes:  # .log.corrupt-… is what a recovery has put aside
            raise Problem(
                f"{where} is not a .log file", "the batches are in the .log files; indexes are checked by verify"
            )
        return [where]
    files = [path for directory in partition_directories(where) for path in segments(directory)]
    if not files:
        raise Problem(f"no log files in {where}", "a partition's directory is called TOPIC-PARTITION, such as orders-0")
    return files


def segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.log") if parse_offset_name(path.name))


def partition_directories(where: Path) -> list[Path]:
    """`where` itself if it holds segments, otherwise the partitions inside it."""
    if segments(where):
        return [where]

    def order(path: Path) -> tuple[str, int]:
        topic, _, partition = path.name.rpartition("-")
        return topic, int(partition)

    inside = [path for path in where.iterdir() if path.is_dir() and path.name.rpartition("-")[2].isdecimal()]
    return sorted(inside, key=order)


def batches(path: Path) -> Iterator[tuple[int, "BatchHeader | str", bytes]]:
    """Each batch with its position; where one is damaged, what is wrong with it and no more."""
    from tidelog.storage.disk import RealFile
    from tidelog.storage.scan import BatchReader

    file = RealFile(str(path), os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    reader, position = BatchReader(file, file.size), 0
    while position < file.size:
        header = reader.check(position)
        if isinstance(header, str):
            yield position, header, b""
            return
        yield position, header, file.read(position, header.size)
        position += header.size


def _print_damage(path: Path, position: int, reason: str, output: Output) -> None:
    if output is Output.JSON:
        print_json({"file": str(path), "position": position, "problem": reason})
    else:
        print(f"  at {position}: {reason}")


def _print_batch(position: int, header: "BatchHeader", batch: bytes, with_records: bool) -> None:
    facts = [
        f"  offsets {header.base_offset}..{header.last_offset}",
        count(header.records_count, "record"),
        size(header.size),
        _codec(header),
        when(header.max_timestamp),
        f"epoch {header.partition_leader_epoch}",
    ]
    if header.producer_id >= 0:
        facts.append(f"producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}")
    print("  ".join([*facts, *_flags(header), f"at {position}"]))
    for record in _records(batch) if with_records else ():
        headers = "".join(f"  {name}={printable(value)}" for name, value in record.headers)
        content = f"{printable(record.key)}  {printable(record.value)}{headers}"
        print(f"    {record.offset}  {when(record.timestamp)}  {content}")


def _batch_json(header: "BatchHeader", batch: bytes, with_records: bool) -> dict[str, object]:
    facts: dict[str, object] = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "size_bytes": header.size,
        "compression": _codec(header),
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "crc": header.crc,
        "flags": _flags(header),
    }
    if with_records:
        facts["records"] = [_record_json(record) for record in _records(batch)]
    return facts


def _record_json(record: "Record") -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [{"name": name, "value": json_bytes(value)} for name, value in record.headers],
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }


def _records(batch: bytes) -> "Iterator[Record]":
    from tidelog.wire.record_batch import iter_records

    return iter_records(batch)


def _codec(header: "BatchHeader") -> str:
    from tidelog.wire.compression import Codec

    return Codec(header.codec).name.lower() if header.codec in tuple(Codec) else f"codec {header.codec}"


def _flags(header: "BatchHeader") -> list[str]:
    from tidelog.wire.record_batch import CONTROL, HAS_DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL

    names = {
        LOG_APPEND_TIME: "LogAppendTime",
        TRANSACTIONAL: "transactional",
        CONTROL: "control",
        HAS_DELETE_HORIZON: "delete-horizon",
    }
    return [name for bit, name in names.items() if header.attributes & bit]
