"""Stamps, their bytes, and clocks that are given their time."""

import pytest

from tidelog.causality import (
    HEADER,
    Clock,
    ClockDrift,
    HybridTime,
    InvalidStamp,
    Order,
    Stamp,
    VectorClock,
    read_stamp,
)

NOW = 1_726_000_000_000


class Hand:
    """A clock that is moved by hand."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def test_a_stamp_is_text_that_sorts_as_time() -> None:
    stamp = Stamp(HybridTime.at(NOW, 3), "checkout", VectorClock({"payment": 7, "checkout": 12}))
    assert stamp.encode() == b"0191dd9dec000003;checkout;checkout=12,payment=7"
    assert Stamp.decode(stamp.encode()) == stamp
    assert (stamp.count, stamp.time.wall_ms, stamp.time.count) == (12, NOW, 3)
    later = Stamp(HybridTime.at(NOW + 1), "a", VectorClock({"a": 1}))
    assert later.encode() > stamp.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"0191dd9530000003;checkout;payment=7",
        b"0191dd9530000003;checkout;checkout=0",
        b"0191dd9530000003;checkout;checkout=1,checkout=2",
        b"0191dd9530000003;checkout;checkout=1,",
        b"f191dd9530000003;checkout;checkout=1",
        b"0191DD9530000003;checkout;checkout=1",
        b"0191dd9530000003;check out;check out=1",
        b"0191dd9530000003;a;a=1234567890123456789",
        b"0191dd9530000003;a;a=1" + b",b=1" * 20_000,
        b"\xff" * 16 + b";a;a=1",
    ],
)
def test_what_is_no_stamp_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidStamp):
        Stamp.decode(data)


@pytest.mark.parametrize("name", ["", "a;b", "a=b", "a,b", "é", "x" * 65])
def test_names_that_would_break_the_header_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a node"):
        Clock(name, Hand())


def test_a_conversation() -> None:
    checkout, payment, mail = (Clock(name, Hand()) for name in ("checkout", "payment", "mail"))
    placed = checkout.send_headers([("trace", b"1")])
    assert [name for name, _ in placed] == ["trace", HEADER]
    cause = payment.receive(placed)
    paid = read_stamp(payment.send_headers(placed))
    other = mail.stamp()
    assert cause is not None
    assert paid is not None
    assert cause.before(paid)
    assert paid.after(cause)
    assert not cause.concurrent(paid)
    assert other.concurrent(paid)
    assert other.compare(other) is Order.EQUAL
    assert cause.place < paid.place
    assert str(paid.vector) == "checkout=1,payment=1"


def test_headers_in_every_shape_a_client_gives() -> None:
    clock = Clock("a", Hand())
    stamp = clock.stamp()
    pair = (HEADER, stamp.encode())
    for headers in ([pair], (pair,), dict([pair]), [("x", None), pair]):
        assert read_stamp(headers) == stamp
    for headers in (None, [], (), {}, [("x", b"1")], [(HEADER, None)]):
        assert read_stamp(headers) is None
        assert clock.receive(headers) is None


def test_a_forwarded_record_gets_the_stamp_of_who_forwards_it() -> None:
    first, second = Clock("first", Hand()), Clock("second", Hand())
    forwarded = second.send_headers(first.send_headers())
    assert [name for name, _ in forwarded] == [HEADER]
    stamp = read_stamp(forwarded)
    assert stamp is not None
    assert stamp.node == "second"


def test_time_goes_on_when_the_clock_stands_or_goes_back() -> None:
    hand = Hand()
    clock = Clock("a", hand)
    times = [clock.stamp().time for _ in range(3)]
    hand.now_ms -= 3_600_000
    times.append(clock.stamp().time)
    assert times == [HybridTime.at(NOW, n) for n in range(4)]
    hand.now_ms = NOW + 1
    assert clock.stamp().time == HybridTime.at(NOW + 1)


def test_a_full_count_carries_into_the_milliseconds() -> None:
    full = HybridTime.at(NOW, 0xFFFF)
    assert full.next(NOW) == HybridTime.at(NOW + 1, 0)
    assert full.next(NOW) > full


def test_a_clock_that_is_wrong_by_an_hour_is_not_believed() -> None:
    wrong = Clock("wrong", Hand(NOW + 3_600_000)).send_headers()
    clock = Clock("a", Hand())
    before = clock.time, clock.vector
    with pytest.raises(ClockDrift, match="3600000 ms ahead"):
        clock.receive(wrong)
    assert (clock.time, clock.vector) == before
    patient = Clock("b", Hand(), drift_ms_max=3_600_000)
    patient.receive(wrong)
    assert patient.stamp().time > HybridTime.at(NOW + 3_600_000)


def test_a_life_goes_on_from_the_last_stamp() -> None:
    first = Clock("a", Hand())
    last = [first.stamp() for _ in range(5)][-1]
    second = Clock("a", Hand(NOW - 10))
    second.resume(last)
    assert second.stamp().count == 6
    assert last.before(second.stamp())
    with pytest.raises(ValueError, match="one of a, not of b"):
        Clock("b", Hand()).resume(last)
