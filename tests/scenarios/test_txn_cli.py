"""`tidelog txn …` on Tidelog."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.txn_cli_cases import Hang, Hung, TxnCliCases

from tidelog.config import TopicConfig
from tidelog.ids import TopicPartition
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.testing import Broker
from tidelog.wire.record_batch import TRANSACTIONAL, build_batch, read_header
from tidelog.wire.records import Record

HUNG = 3
PRODUCER_ID = 1 << 40


def write_open_transaction(directory: Path, topic: str, producer_id: int) -> None:
    """Into the files of a broker that has stopped: a running one asks its coordinator first, and refuses."""
    now_ms = time.time_ns() // 1_000_000
    place = TopicPartition(topic, 0)
    log = Log.open(RealDisk(), str(directory), place, TopicConfig(), now_ms=now_ms, recovery_point=0)
    batch = build_batch(
        [Record(0, now_ms, None, b"hangs", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    verification = log.begin_verification(read_header(batch))
    log.append(bytearray(batch), leader_epoch=0, now_ms=now_ms, verification=verification)
    log.close()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data_dir = tmp_path_factory.mktemp("data")
    topics = [f"hangs-{number}" for number in range(HUNG)]
    with Broker(data_dir=data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
            future.result(20)
    for number, topic in enumerate(topics):
        write_open_transaction(data_dir / f"{topic}-0", topic, PRODUCER_ID + number)
    with Broker(data_dir=data_dir) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def unused() -> Iterator[int]:
    return count()


class TestTxnCliOnTidelog(TxnCliCases):
    @pytest.fixture
    def hang(self, unused: Iterator[int]) -> Hang:
        def make() -> Hung:
            number = next(unused)
            return Hung(f"hangs-{number}", PRODUCER_ID + number, 0)

        return make
