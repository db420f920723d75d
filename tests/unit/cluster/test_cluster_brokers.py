"""Brokers register, are heard of, fenced, unfenced, stop and go."""

from typing import Any
from uuid import UUID

import pytest
from pictures import only, picture

from tidelog.cluster import brokers
from tidelog.cluster.brokers import Liveness
from tidelog.cluster.image import NO_LEADER, MetadataImage
from tidelog.cluster.records import BrokerEndpoint, decode_record, encode_record
from tidelog.errors import ErrorCode, KafkaError


def register(image: MetadataImage, node: int, **given: Any) -> MetadataImage:
    wish: dict[str, Any] = {
        "incarnation": UUID(int=1000 + node),
        "broker_epoch": 77,
        "directory_id": f"disk-{node}",
        "endpoints": (BrokerEndpoint("PLAINTEXT", "localhost", 9092),),
        "rack": "a",
        "is_alive": False,
    }
    return image.apply(brokers.register(image, node, **{**wish, **given}))


def test_a_new_broker_is_fenced_until_it_has_caught_up() -> None:
    image = register(picture(1, 2), 9)
    assert (image.brokers[9].broker_epoch, image.brokers[9].rack, image.brokers[9].fenced) == (77, "a", True)
    assert not image.is_available(9)
    assert image.apply(brokers.unfence(image, 9)).is_available(9)


def test_a_restarted_broker_leads_nothing_and_nobody_waits_for_it() -> None:
    image = register(picture(1, 2, 3), 1)
    assert (only(image).leader, only(image).isr, only(image).leader_epoch) == (2, (2, 3), 4)
    assert image.brokers[1].broker_epoch == 77


def test_restarted_as_the_last_in_sync_it_leads_again_when_it_is_back() -> None:
    image = register(picture(1, 2, isr=(1,)), 1)
    assert (only(image).leader, only(image).isr) == (NO_LEADER, (1,))
    image = image.apply(brokers.unfence(image, 1))
    assert (only(image).leader, only(image).leader_epoch) == (1, 5)


def test_on_another_disk_it_has_nothing_of_what_it_had() -> None:
    image = register(picture(1, 2, isr=(1,)), 1, directory_id="another")
    image = image.apply(brokers.unfence(image, 1))
    assert (only(image).leader, only(image).isr) == (NO_LEADER, ())


def test_asking_again_changes_nothing() -> None:
    image = register(picture(1, 2), 1)
    assert register(image, 1, broker_epoch=99).brokers == image.brokers


def test_two_processes_of_one_id_are_refused_only_while_the_first_is_heard_of() -> None:
    with pytest.raises(KafkaError) as refused:
        register(picture(1, 2), 1, is_alive=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    image = picture(1, 2)
    register(image.apply(brokers.fence(image, 1)), 1, is_alive=True)
    register(image.apply(brokers.begin_stop(image, 1)), 1, is_alive=True)


@pytest.mark.parametrize(
    ("code", "node", "epoch"),
    [(ErrorCode.BROKER_ID_NOT_REGISTERED, 9, 90), (ErrorCode.STALE_BROKER_EPOCH, 1, 9)],
)
def test_who_may_not_speak_for_a_broker(code: ErrorCode, node: int, epoch: int) -> None:
    with pytest.raises(KafkaError) as refused:
        brokers.check_epoch(picture(1, 2), node, epoch)
    assert refused.value.code is code


def test_its_last_registration_may_speak_for_it() -> None:
    assert brokers.check_epoch(picture(1, 2), 1, 10).node_id == 1


def test_fenced_and_back() -> None:
    image = picture(1, 2)
    image = image.apply(brokers.fence(image, 1))
    assert image.brokers[1].fenced
    assert (only(image).leader, only(image).isr) == (2, (2,))
    assert brokers.fence(image, 1) == []
    assert brokers.fence(image, 9) == []
    image = image.apply(brokers.unfence(image, 1))
    assert image.is_available(1)
    assert (only(image).leader, only(image).isr) == (2, (2,))  # it must catch up first
    assert brokers.unfence(image, 1) == []


def test_all_fenced_one_after_the_other_the_last_to_go_is_the_first_to_lead() -> None:
    image = picture(1, 2, 3)
    for node in (1, 3, 2):
        image = image.apply(brokers.fence(image, node))
    assert (only(image).leader, only(image).isr) == (NO_LEADER, (2,))
    for node in (1, 3):
        image = image.apply(brokers.unfence(image, node))
        assert only(image).leader == NO_LEADER
    image = image.apply(brokers.unfence(image, 2))
    assert (only(image).leader, only(image).isr) == (2, (2,))


def test_stopping_moves_leaders_first() -> None:
    image = picture(1, 2)
    assert not brokers.may_stop(image, 1)
    image = image.apply(brokers.begin_stop(image, 1))
    assert (only(image).leader, only(image).isr) == (2, (2,))
    assert brokers.may_stop(image, 1)
    assert brokers.begin_stop(image, 1) == []
    image = image.apply(brokers.fence(image, 1))
    assert not image.apply(brokers.unfence(image, 1)).brokers[1].stopping


def test_the_last_in_sync_may_stop_too_and_leads_when_it_is_back() -> None:
    image = picture(1, 2, isr=(1,))
    image = image.apply(brokers.begin_stop(image, 1))
    assert brokers.may_stop(image, 1)
    assert (only(image).leader, only(image).isr) == (NO_LEADER, (1,))
    image = register(image, 1)
    image = image.apply(brokers.unfence(image, 1))
    assert only(image).leader == 1


def test_a_broker_is_removed_only_when_it_holds_nothing() -> None:
    image = picture(1, 2)
    assert 5 not in image.apply(brokers.unregister(image, 5)).brokers
    for code, node in ((ErrorCode.INVALID_REQUEST, 2), (ErrorCode.BROKER_ID_NOT_REGISTERED, 9)):
        with pytest.raises(KafkaError) as refused:
            brokers.unregister(image, node)
        assert refused.value.code is code


def test_an_image_with_brokers_and_a_reassignment_survives_its_own_records() -> None:
    image = register(picture(4, 1, 2, leader=1, isr=(1, 2), adding=(4,), removing=(2,), away=(3,)), 5, rack="b")
    records = [decode_record(encode_record(record)) for record in image.as_records()]
    for base in (MetadataImage("other"), picture(1, 2, 3)):
        rebuilt = base.apply(records)
        assert rebuilt.brokers == image.brokers
        assert rebuilt.topics == image.topics
        assert rebuilt.names_by_id == image.names_by_id
        assert rebuilt.cluster_id == image.cluster_id


# -- who was heard of when ---------------------------------------------------------------------------------------------


def test_silence_is_named_once() -> None:
    liveness = Liveness(1000, 100)
    liveness.heard(1, 0)
    liveness.heard(2, 500)
    assert liveness.next_deadline_ms == 1000
    assert liveness.silent(999) == []
    assert liveness.silent(1000) == [1]
    assert liveness.silent(1001) == []
    assert liveness.is_alive(2, 1499)
    assert not liveness.is_alive(2, 1500)
    assert not liveness.is_alive(1, 1001)


def test_a_suspect_has_a_moment_and_not_more_than_it_had() -> None:
    liveness = Liveness(1000, 100)
    liveness.heard(1, 0)
    liveness.suspect(1, 200)
    assert liveness.silent(299) == []
    liveness.heard(1, 299)
    assert liveness.silent(300) == []
    liveness.suspect(1, 1250)
    assert liveness.silent(1299) == [1]
    liveness.suspect(9, 0)
    assert liveness.next_deadline_ms is None


def test_a_new_controller_gives_everyone_the_whole_time_but_not_its_suspects() -> None:
    liveness = Liveness(1000, 100)
    liveness.heard(7, 0)
    liveness.take_office([1, 2, 3], [2], 5000)
    assert liveness.silent(5100) == [2]
    assert sorted(liveness.silent(6000)) == [1, 3]


def test_who_died_with_the_last_controller_is_not_taken_for_alive_by_the_next() -> None:
    """All brokers were killed at once: their next processes must not be refused as second ones."""
    liveness = Liveness(1000, 100)
    liveness.heard(1, 0)
    liveness.take_office([1, 2], [], 10)
    assert not liveness.is_alive(1, 20)
    liveness.heard(2, 30)
    assert liveness.is_alive(2, 40)
    assert not liveness.is_alive(1, 40)


def test_who_stops_last_waits_for_nobody_who_stops_too() -> None:
    image = picture(1, 2)
    image = image.apply(brokers.begin_stop(image, 1))
    image = image.apply(brokers.begin_stop(image, 2))
    assert brokers.may_stop(image, 2)
