"""New partitions go round the brokers, over racks, and onto brokers that are away only where too few are up."""

from collections import Counter
from uuid import UUID

import pytest

from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.cluster.placement import place_replicas
from tidelog.cluster.records import BrokerRecord
from tidelog.errors import ErrorCode, KafkaError


def brokers(*racks: str | None, away: tuple[int, ...] = ()) -> MetadataImage:
    """Numbered from 1, each in its rack."""
    return MetadataImage("test-cluster").apply(
        BrokerRecord(node, UUID(int=node), node, f"disk-{node}", rack=rack, fenced=node in away)
        for node, rack in enumerate(racks, 1)
    )


def created(image: MetadataImage, partitions: int, factor: int, **wish: object) -> TopicImage:
    records = controller.create_topic(
        image,
        "orders",
        topic_id=UUID(int=1),
        brokers=image.available,
        partitions=partitions,
        replication_factor=factor,
        **wish,  # type: ignore[arg-type]
    )
    return image.apply(records).topics["orders"]


def test_a_broker_that_is_away_gets_replicas_only_where_too_few_are_up() -> None:
    image = brokers(None, None, None, away=(2,))
    assert {each.replicas for each in created(image, 4, 2).partitions} == {(1, 3), (3, 1)}
    placed = created(image, 3, 3).partitions
    assert [each.replicas for each in placed] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)], "leaders are even when it is back"
    assert [each.isr for each in placed] == [(1, 3), (3, 1), (3, 1)]
    assert [each.leader for each in placed] == [1, 3, 3]


def test_whoever_is_up_has_a_replica_before_anybody_who_is_away() -> None:
    image = brokers(*[None] * 5, away=(2, 3, 4, 5))
    placed = created(image, 8, 2).partitions
    assert all(each.leader == 1 and each.isr == (1,) for each in placed)
    away = Counter(node for each in placed for node in each.replicas if node != 1)
    assert away == Counter({2: 2, 3: 2, 4: 2, 5: 2})


@pytest.mark.parametrize(
    ("away", "factor"), [((), 4), ((2,), 4), ((1, 2, 3), 1)], ids=["too few", "too few registered", "nobody is up"]
)
def test_more_replicas_than_brokers(away: tuple[int, ...], factor: int) -> None:
    with pytest.raises(KafkaError) as refused:
        created(brokers(None, None, None, away=away), 1, factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_by_hand_one_of_them_must_be_up() -> None:
    image = brokers(None, None, None, away=(2, 3))
    (placed,) = created(image, -1, -1, assignments={0: [2, 1]}).partitions
    assert (placed.replicas, placed.leader, placed.isr) == ((2, 1), 1, (1,))
    for replicas in ([2, 3], [1, 9]):
        with pytest.raises(KafkaError) as refused:
            created(image, -1, -1, assignments={0: replicas})
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_added_while_a_broker_is_away() -> None:
    image = brokers(None, None, None)
    image = image.apply(
        controller.create_topic(
            image, "orders", topic_id=UUID(int=1), brokers=[1, 2, 3], partitions=1, replication_factor=3
        )
    )
    image = image.apply([BrokerRecord(3, UUID(int=3), 3, "disk-3", fenced=True)])
    added = image.apply(controller.create_partitions(image, "orders", total=2, brokers=image.available))
    second = added.topics["orders"].partitions[1]
    assert (second.replicas, second.leader, second.isr) == ((2, 3, 1), 2, (2, 1))


def test_replicas_are_in_different_racks() -> None:
    racks = ("a", "a", "b", "b", "c", "c")
    image = brokers(*racks)
    placed = place_replicas(image, image.available, 3, range(12))
    assert all(len({racks[node - 1] for node in nodes}) == 3 for nodes in placed.values())
    assert set(Counter(nodes[0] for nodes in placed.values()).values()) == {2}
    assert set(Counter(node for nodes in placed.values() for node in nodes).values()) == {6}


def test_two_racks_share_three_replicas() -> None:
    racks = ("a", "a", "a", "b")
    image = brokers(*racks)
    for nodes in place_replicas(image, image.available, 3, range(8)).values():
        assert {racks[node - 1] for node in nodes} == {"a", "b"}
