"""The image is a value: applying records gives a new one, and its own records rebuild it."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster import controller
from tidelog.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from tidelog.cluster.records import ConfigRecord, ProducerIdsRecord, VoterRecord, decode_record, encode_record
from tidelog.errors import KafkaError

EMPTY = MetadataImage("test-cluster")


def with_topic(image: MetadataImage, name: str, partitions: int = 2, number: int = 1) -> MetadataImage:
    return image.apply(
        controller.create_topic(
            image, name, topic_id=UUID(int=number), brokers=[1], partitions=partitions, replication_factor=1
        )
    )


def test_apply_leaves_the_old_image_alone() -> None:
    before = with_topic(EMPTY, "orders")
    after = before.apply(controller.delete_topic(before, "orders"))
    assert "orders" in before.topics
    assert "orders" not in after.topics
    assert after.names_by_id == {}
    assert after.version == before.version + 1


def test_untouched_topics_are_the_same_object() -> None:
    before = with_topic(EMPTY, "orders")
    after = with_topic(before, "payments", number=2)
    assert after.topics["orders"] is before.topics["orders"]


def test_partitions_grow_at_the_end() -> None:
    image = with_topic(EMPTY, "orders", partitions=2)
    image = image.apply(controller.create_partitions(image, "orders", total=5, brokers=[1]))
    assert [partition.partition for partition in image.topics["orders"].partitions] == [0, 1, 2, 3, 4]


def test_a_deleted_topic_takes_its_settings_along() -> None:
    image = with_topic(EMPTY, "orders")
    image = image.apply([ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "1")])
    image = image.apply(controller.delete_topic(image, "orders"))
    assert with_topic(image, "orders", number=9).topic_config("orders") == {}


def test_producer_ids_never_go_back() -> None:
    assert EMPTY.apply([ProducerIdsRecord(2000), ProducerIdsRecord(1000)]).next_producer_id == 2000


def test_broker_settings_of_one_node_win_over_the_clusters() -> None:
    image = EMPTY.apply(
        [
            ConfigRecord(BROKER_RESOURCE, "", "log.retention.ms", "1"),
            ConfigRecord(BROKER_RESOURCE, "", "log.segment.bytes", "2"),
            ConfigRecord(BROKER_RESOURCE, "7", "log.retention.ms", "3"),
        ]
    )
    assert image.broker_config(7) == {"log.retention.ms": "3", "log.segment.bytes": "2"}


wishes = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from("abcd"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("grow"), st.sampled_from("abcd"), st.integers(1, 8)),
        st.tuples(st.just("config"), st.sampled_from("abcd"), st.integers(1000, 1003)),
        st.tuples(st.just("ids"), st.just(""), st.just(0)),
        st.tuples(st.just("vote"), st.just(""), st.integers(-3, 3)),
    ),
    max_size=30,
)


@given(wishes)
def test_an_images_own_records_rebuild_it(history: list[tuple[str, str, int]]) -> None:
    image = EMPTY
    for number, (what, name, count) in enumerate(history, start=1):
        try:
            match what:
                case "create":
                    image = with_topic(image, name, count, number)
                case "delete":
                    image = image.apply(controller.delete_topic(image, name))
                case "grow":
                    image = image.apply(controller.create_partitions(image, name, total=count, brokers=[1]))
                case "config":
                    image = image.apply(controller.alter_topic_config(image, name, {"retention.ms": str(count)}))
                case "vote":
                    image = image.apply([VoterRecord(abs(count), count > 0)])
                case "ids":
                    image = image.apply(controller.allocate_producer_ids(image)[1])
        except KafkaError:
            continue
    stored = [encode_record(record) for record in image.as_records()]
    rebuilt = with_topic(EMPTY, "forgotten").apply(map(decode_record, stored))
    assert rebuilt.topics == image.topics
    assert rebuilt.names_by_id == image.names_by_id
    assert {key: value for key, value in rebuilt.configs.items() if value} == {
        key: value for key, value in image.configs.items() if value
    }
    assert rebuilt.voters == image.voters
    assert rebuilt.next_producer_id == image.next_producer_id
