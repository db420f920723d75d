"""Placement equals Java's, checked against published vectors and two independent clients."""

from random import Random

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from tidelog.partitioning import KeyPartitioner, RoundRobinPartitioner, StickyPartitioner, murmur2, partition_for

JAVA_VECTORS = {  # from the tests of Kafka's Java client, where they are signed
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA_VECTORS.items())
def test_murmur2_gives_the_numbers_java_publishes(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_murmur2_agrees_with_other_python_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_always_has_the_same_valid_partition(key: bytes, partitions: int) -> None:
    by_key = KeyPartitioner(RoundRobinPartitioner())
    assert by_key("orders", key, partitions) == partition_for(key, partitions) == by_key("payments", key, partitions)
    assert 0 <= partition_for(key, partitions) < partitions


def test_no_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        partition_for(b"key", 0)


def test_an_empty_key_is_a_key() -> None:
    by_key = KeyPartitioner(RoundRobinPartitioner())
    assert {by_key("orders", b"", 7) for _ in range(20)} == {partition_for(b"", 7)}


def test_round_robin_is_even_per_topic() -> None:
    spread = RoundRobinPartitioner()
    assert [spread("a", None, 3) for _ in range(4)] == [0, 1, 2, 0]
    assert spread("b", b"key", 3) == 0


def test_sticky_stays_then_moves_elsewhere() -> None:
    sticky = StickyPartitioner(Random(7).randrange, records_per_turn=5)
    turns = [{sticky("orders", None, 4) for _ in range(5)} for _ in range(200)]
    assert all(len(turn) == 1 for turn in turns)
    assert all(now != then for now, then in zip(turns[1:], turns, strict=False))
    assert set.union(*turns) == {0, 1, 2, 3}


def test_sticky_leaves_a_partition_that_is_gone_and_lives_with_a_single_one() -> None:
    sticky = StickyPartitioner(lambda n: n - 1, records_per_turn=1000)
    assert sticky("orders", None, 9) == 8
    assert sticky("orders", None, 3) == 2
    assert {sticky("single", None, 1) for _ in range(3)} == {0}


def test_any_callable_is_a_partitioner() -> None:
    def vip_first(topic: str, key: bytes | None, partitions: int) -> int:
        return 0 if key and key.startswith(b"vip") else partitions - 1

    by_key = KeyPartitioner(vip_first)
    assert by_key("orders", None, 6) == 5
