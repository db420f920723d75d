"""What a log remembers of writers whose coordinator is being asked."""

from tidelog.storage.open_transactions import Verifications
from tidelog.wire.record_batch import TRANSACTIONAL, BatchHeader, build_batch, read_header
from tidelog.wire.records import Record


def header(epoch: int, sequence: int = 0, producer_id: int = 7) -> BatchHeader:
    record = Record(0, 1_700_000_000_000, None, b"x", ())
    return read_header(
        build_batch(
            [record],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def test_who_was_replaced_does_not_take_the_place_of_its_successor() -> None:
    known = Verifications()
    owner = known.begin(header(epoch=1), every_epoch_is_new=False)
    zombie = known.begin(header(epoch=0), every_epoch_is_new=False)
    assert known.holds(owner, header(epoch=1))
    assert not known.holds(zombie, header(epoch=0))


def test_a_successor_takes_the_place_of_whom_it_replaces() -> None:
    known = Verifications()
    zombie = known.begin(header(epoch=0), every_epoch_is_new=False)
    owner = known.begin(header(epoch=1), every_epoch_is_new=False)
    assert known.holds(owner, header(epoch=1))
    assert not known.holds(zombie, header(epoch=0))


def test_requests_side_by_side_share_the_lowest_sequence() -> None:
    known = Verifications()
    second = known.begin(header(epoch=0, sequence=3), every_epoch_is_new=False)
    first = known.begin(header(epoch=0, sequence=0), every_epoch_is_new=False)
    assert first is second
    assert first.lowest_sequence == 0


def test_an_end_makes_it_worthless_and_there_is_a_limit() -> None:
    known = Verifications(limit=2)
    ended = known.begin(header(epoch=0), every_epoch_is_new=False)
    known.end(7)
    assert not known.holds(ended, header(epoch=0))
    oldest = known.begin(header(epoch=0, producer_id=1), every_epoch_is_new=False)
    for producer_id in (2, 3):
        known.begin(header(epoch=0, producer_id=producer_id), every_epoch_is_new=False)
    assert not known.holds(oldest, header(epoch=0, producer_id=1))
