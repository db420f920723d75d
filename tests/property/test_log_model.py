"""The log against a list: whatever is appended, read, rolled, expired, cut, replaced or reopened, both agree."""

import sys
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

import pytest
from batches import NOW, batch, create_log, found, open_log, read_batches, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import OffsetOutOfRange
from tidelog.storage.log import Log, delete_segments
from tidelog.storage.recovery import verify
from tidelog.wire.record_batch import read_header

DIRECTORY = "/data/orders-0"


class LogMachine(RuleBasedStateMachine):
    log: Log

    @initialize(segment_bytes=st.sampled_from([200, 700, 100_000]), interval=st.sampled_from([0, 100, 4096]))
    def create(self, segment_bytes: int, interval: int) -> None:
        self.disk = SimDisk()
        self.config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=1000)
        self.log = create_log(self.disk, DIRECTORY, self.config)
        self.batches: list[tuple[int, list[tuple[int, bytes, int]]]] = []  # base, [(offset, value, timestamp)]
        self.start = 0
        self.end = 0
        self.epoch = 0

    @property
    def records(self) -> list[tuple[int, bytes, int]]:
        return [record for _, records in self.batches for record in records if record[0] >= self.start]

    @rule(
        values=st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 5000)), min_size=1, max_size=4),
        codec=st.sampled_from([0, 0, 1, 3]),
        new_epoch=st.booleans(),
    )
    def append(self, values: list[tuple[bytes, int]], codec: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        data = batch(*(value for value, _ in values), timestamps=[NOW + time for _, time in values], codec=codec)
        answer = self.log.append(data, leader_epoch=self.epoch, now_ms=NOW)
        assert answer == (self.end, self.end + len(values) - 1, -1, False)
        self.batches.append((self.end, [(self.end + i, value, NOW + time) for i, (value, time) in enumerate(values)]))
        self.end += len(values)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.end

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(clean=st.booleans(), lose=st.sets(st.sampled_from([".index", ".timeindex", ".snapshot", "epoch-checkpoint"])))
    def reopen(self, clean: bool, lose: set[str]) -> None:
        if clean:
            self.log.close()
        self.log.abandon("stop")
        for name in [name for name in self.disk.names if name.endswith(tuple(lose)) and lose]:
            del self.disk.names[name]
        point = self.log.flushed_offset
        self.log = open_log(
            self.disk, DIRECTORY, self.config, clean=clean, recovery_point=point, start_offset=self.start
        )
        assert not self.log.recovery.bytes_truncated
        assert not self.log.recovery.corrupt

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_start_offset(self.start)

    @rule(age=st.integers(0, 7000))
    def expire(self, age: int) -> None:
        gone = self.log.expire(NOW + age, self.log.end_offset)
        delete_segments(gone)
        first = self.log.segments[0].base_offset
        for base, records in self.batches:
            if base < first and base >= self.start and records[-1][0] >= self.start:
                assert max(time for _, _, time in records) < NOW + age - 1000
        self.batches = [one for one in self.batches if one[0] >= first]
        self.start = max(self.start, first)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(to)
        dropped = [base for base, records in self.batches if records[-1][0] >= to]
        self.batches = [one for one in self.batches if one[1][-1][0] < to]
        self.end = min([to, *dropped])  # a batch is kept whole or not at all
        self.start = min(self.start, self.end)
        self.epoch += 1

    @rule(data=st.data(), max_bytes=st.integers(0, 400), min_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        upper = data.draw(st.integers(self.start, self.end))
        piece = self.log.read(offset, max_bytes, upper=upper, min_one=min_one)
        whole = [one for one in self.batches if one[1][-1][0] >= offset and one[1][-1][0] < upper]
        if not whole or offset >= upper:
            assert piece.length == 0
            return
        content = piece.file.read(piece.position, piece.length)
        assert len(content) == piece.length
        header = read_header(piece.file.read(piece.position, 61))
        assert header.base_offset == whole[0][0]
        assert piece.length <= max(max_bytes, header.size if min_one else 0)
        assert not min_one or piece.length >= header.size

    @rule(outside=st.sampled_from([-1, 1]))
    def read_outside(self, outside: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.start - 1 if outside < 0 else self.end + 1, 100, upper=self.end)

    @rule(time=st.integers(-100, 5100), data=st.data())
    def find_by_time(self, time: int, data: st.DataObject) -> None:
        upper = data.draw(st.integers(self.start, self.end))
        answer = found(self.log.find_by_time(NOW + time, upper))
        expected = next(((o, t) for o, _, t in self.records if t >= NOW + time and o < upper), None)
        assert (answer and answer[:2]) == expected

    @rule()
    def newest(self) -> None:
        answer = found(self.log.find_newest(self.end))
        newest = max((time for _, _, time in self.records), default=None)
        if newest is None:
            assert answer is None
        else:
            assert answer is not None
            assert answer.timestamp == newest
            assert (answer.offset, newest) in [(offset, time) for offset, _, time in self.records]

    @invariant()
    def same_content(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert read_values(self.log) == [(offset, value) for offset, value, _ in self.records]
        assert self.log.size_bytes == sum(segment.size for segment in self.log.segments)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            assert verify(self.disk, DIRECTORY).problems == []
            assert all(header.magic == 2 for header, _ in read_batches(open_log(self.disk, DIRECTORY, self.config)))


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
