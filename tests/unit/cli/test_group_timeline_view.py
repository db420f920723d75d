"""A group's past as text: who was there when, also where the history has forgotten the beginning."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.cli.group.timeline_view import LANES_MAX, draw, lanes, stays, why
from tidelog.groups.history import EventKind, GroupEvent

LABEL = len("generation") + 2


def event(kind: EventKind, at_ms: int, who: str = "", **more: object) -> GroupEvent:
    fields = {"generation": 1, "member_id": f"{who}-id" if who else "", "client_id": who, **more}
    return GroupEvent(group_id="g", at_ms=at_ms, kind=kind, **fields)  # type: ignore[arg-type]


def test_a_life_from_joining_to_leaving() -> None:
    events = [
        event(EventKind.JOINED, 0, "a"),
        event(EventKind.GENERATION, 0),
        event(EventKind.JOINED, 10, "b"),
        event(EventKind.GENERATION, 10, generation=2),
        event(EventKind.STABLE, 12, stopped_ms=2),
        event(EventKind.EVICTED, 15, "b"),
        event(EventKind.LEFT, 19, "a"),
    ]
    lines = list(draw(events, [], from_ms=0, to_ms=19, width=LABEL + 20))
    assert lines[1:] == [
        "generation  │1        │2",
        "stood still           ▒▒▒",
        "a           ●━━━━━━━━━━━━━━━━━━○",
        "b                     ●━━━━✗",
    ]


def test_members_whose_coming_is_forgotten_are_there_from_the_start() -> None:
    events = [event(EventKind.LEFT, 10, "gone")]
    lines = list(draw(events, [("here-id", "here")], from_ms=0, to_ms=19, width=LABEL + 20))
    assert lines[-2:] == ["gone        ━━━━━━━━━━○", "here        ━━━━━━━━━━━━━━━━━━━━"]


def test_a_static_member_that_came_back_ends_its_predecessor() -> None:
    events = [
        event(EventKind.JOINED, 0, "till"),
        event(EventKind.REPLACED, 10, "till", member_id="till-new"),
    ]
    (lane,) = lanes(stays(events, [("till-new", "till")], 0))
    assert [(stay.from_ms, stay.to_ms, stay.arrival) for stay in lane] == [(0, 10, "●"), (10, None, "◆")]


def test_two_at_once_with_one_client_id_have_two_lanes() -> None:
    events = [
        event(EventKind.JOINED, 0, "rdkafka", member_id="1"),
        event(EventKind.JOINED, 5, "rdkafka", member_id="2"),
        event(EventKind.LEFT, 7, "rdkafka", member_id="1"),
        event(EventKind.JOINED, 8, "rdkafka", member_id="3"),
    ]
    packed = lanes(stays(events, [("2", "rdkafka"), ("3", "rdkafka")], 0))
    assert [[stay.member_id for stay in lane] for lane in packed] == [["1", "3"], ["2"]]


def test_a_group_that_emptied_has_nobody_left() -> None:
    events = [event(EventKind.JOINED, 0, "a"), event(EventKind.EMPTY, 5)]
    (stay,) = stays(events, [], 0)
    assert stay.to_ms == 5


def test_a_storm_of_names_is_cut() -> None:
    events = [event(EventKind.JOINED, each, f"member-{each}") for each in range(100)]
    lines = list(draw(events, [], from_ms=0, to_ms=100, width=80))
    assert len(lines) == 3 + LANES_MAX + 1
    assert lines[-1] == f"({100 - LANES_MAX} earlier members are not drawn)"


def test_the_rest_in_words() -> None:
    stable = event(EventKind.STABLE, 1, stopped_ms=1234, partitions_moved=1, members=2)
    assert why(stable) == "stood still for 1,234 ms, 1 partition moved, 2 members"
    assert why(event(EventKind.LEFT, 1, "a", reason="poll\x1b[0m timeout")) == "poll\\x1b[0m timeout"


events = st.lists(
    st.builds(
        event,
        st.sampled_from(EventKind),
        st.integers(0, 10_000),
        st.sampled_from(["", "a", "b", "ü\x1b", "c" * 60]),
        stopped_ms=st.integers(-1, 20_000),
        generation=st.integers(-1, 2**31 - 1),
    ),
    min_size=1,
    max_size=40,
).map(lambda found: sorted(found, key=lambda each: each.at_ms))


@settings(max_examples=200)
@given(events, st.lists(st.sampled_from(["a", "b", "d"]), unique=True), st.integers(20, 200))
def test_any_history_fits_its_width(history: list[GroupEvent], here: list[str], width: int) -> None:
    members = [(f"{name}-id", name) for name in here]
    span = history[0].at_ms, max(history[-1].at_ms, 10_000)
    lines = list(draw(history, members, from_ms=span[0], to_ms=span[1], width=width))
    limit = max(width, 24 + 2 + 20)
    assert all(len(line) <= limit and line.isprintable() for line in lines[:-1])
