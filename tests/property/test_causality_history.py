"""Random histories of processes that send and read records: stamps order them exactly as they happened."""

from dataclasses import dataclass, field
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.causality import Clock, Order, Stamp, read_stamp

NODES = ["a", "b", "c", "d"]
EPOCH = 1_726_000_000_000
SKEW_MS = 500


@dataclass
class History:
    """`causes[i]` are the records that happened before record i, found by following messages, not by clocks."""

    stamps: list[Stamp] = field(default_factory=list)
    causes: list[set[int]] = field(default_factory=list)
    sent_at: list[int] = field(default_factory=list)


steps = st.lists(
    st.tuples(
        st.sampled_from(range(len(NODES))),
        st.one_of(st.none(), st.integers(0, 60)),  # None sends; a number reads that record, counted from the last
        st.integers(0, 3),  # how far real time goes on
    ),
    min_size=1,
    max_size=60,
)
skews = st.lists(st.integers(-SKEW_MS, SKEW_MS), min_size=len(NODES), max_size=len(NODES))


def run(script: list[tuple[int, int | None, int]], skew: list[int]) -> History:
    history = History()
    real = [EPOCH]
    clocks = [Clock(name, lambda n=n: real[0] + skew[n]) for n, name in enumerate(NODES)]
    known: list[set[int]] = [set() for _ in NODES]
    bytes_of: list[list[tuple[str, bytes | None]]] = []
    for node, what, pause in script:
        real[0] += pause
        if what is None:
            headers = clocks[node].send_headers()
            stamp = read_stamp(headers)
            assert stamp is not None
            bytes_of.append(headers)
            history.stamps.append(stamp)
            history.causes.append(set(known[node]))
            history.sent_at.append(real[0])
            known[node].add(len(bytes_of) - 1)
        elif bytes_of:
            record = len(bytes_of) - 1 - what % len(bytes_of)
            before = clocks[node].time
            clocks[node].receive(bytes_of[record])
            assert clocks[node].time >= before
            known[node] |= {record} | history.causes[record]
    return history


@settings(max_examples=150, deadline=None)
@given(steps, skews)
def test_vectors_are_exactly_happened_before(script, skew):
    history = run(script, skew)
    for i, j in combinations(range(len(history.stamps)), 2):
        one, other = history.stamps[i], history.stamps[j]
        if i in history.causes[j]:
            expected = Order.BEFORE
        elif j in history.causes[i]:
            expected = Order.AFTER
        else:
            expected = Order.CONCURRENT
        assert one.compare(other) is expected
        # One number of the vector is enough to know: the merge in Spark relies on it.
        assert (one.count <= other.vector.of(one.node)) is (expected is Order.BEFORE)


@settings(max_examples=150, deadline=None)
@given(steps, skews)
def test_sorted_by_place_no_effect_precedes_its_cause(script, skew):
    history = run(script, skew)
    order = sorted(range(len(history.stamps)), key=lambda i: history.stamps[i].place)
    seen: set[int] = set()
    for record in order:
        assert history.causes[record] <= seen
        seen.add(record)
    assert len({stamp.place for stamp in history.stamps}) == len(history.stamps)


@settings(max_examples=150, deadline=None)
@given(steps, skews)
def test_hybrid_time_is_monotonic_and_stays_near_the_clocks(script, skew):
    history = run(script, skew)
    for name in NODES:
        times = [stamp.time for stamp in history.stamps if stamp.node == name]
        assert all(one < other for one, other in pairwise(times))
    for stamp, sent_at in zip(history.stamps, history.sent_at, strict=True):
        own = sent_at + skew[NODES.index(stamp.node)]
        # Never behind its own clock, and never ahead of the fastest one there is.
        assert own <= stamp.time.wall_ms <= sent_at + max(skew)
